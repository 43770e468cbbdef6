/* How many programs fit on a multiprocessor: its box holds a link to the limits of each architecture and a
   table. The table stays where the script or the limits cannot be had; otherwise it becomes a calculator. */
import { make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";

const KIB = 1024;
const PARTS = 4; // of a multiprocessor: each has a quarter of the registers and of the warps
const LIMITS = ["registers", "shared memory", "warps", "programs"];
const FRAME = `
  <div class="am-fields">
    <label class="am-field">Architecture <select data-part="target"></select></label>
    <label class="am-field">Warps per program <select data-part="warps"></select></label>
    <label class="am-field">Registers per thread <span data-part="registersShown"></span>
      <input type="range" min="16" max="255" data-part="registers"></label>
    <label class="am-field">Shared memory per program <span data-part="sharedShown"></span>
      <input type="range" min="0" data-part="shared"></label>
  </div>
  <p class="am-occupancy-summary" data-part="summary" role="status"></p>
  <div class="am-occupancy-places" data-part="places" aria-hidden="true"></div>
  <dl class="am-occupancy-limits" data-part="limits"></dl>`;

const up = (value, unit) => Math.ceil(value / unit) * unit;

// The rules of gpus.py once more: a test holds them against Python's. `limits` are those of an architecture.
export function programsAtOnce(limits, { registers, warps, shared }) {
  const perWarp = up(registers * limits.lanes, limits.register_unit);
  const allowed = {
    registers: Math.floor((PARTS * Math.floor(Math.floor(limits.registers / PARTS) / perWarp)) / warps),
    "shared memory": Math.floor(limits.shared_sm / Math.max(up(shared + limits.reserved, limits.shared_unit), 1)),
    warps: Math.floor(limits.warps / warps),
    programs: limits.programs,
  };
  const least = Math.min(...Object.values(allowed));
  const limit = LIMITS.find((name) => allowed[name] === least);
  const fits = registers <= limits.widest && shared <= limits.shared_block
    && up(warps, PARTS) * perWarp <= limits.registers;
  return { fits: fits ? least : 0, limit, allowed };
}

function show({ parts, of }) {
  const limits = of.get(parts.target.value);
  parts.shared.max = Math.floor(limits.shared_block / KIB);
  const [registers, warps, kib] = [parts.registers, parts.warps, parts.shared].map((part) => Number(part.value));
  const { fits, limit, allowed } = programsAtOnce(limits, { registers, warps, shared: kib * KIB });
  parts.registersShown.textContent = registers;
  parts.sharedShown.textContent = `${kib}\u00a0KiB`;
  const resident = fits * warps;
  const share = Math.round((100 * resident) / limits.warps);
  parts.summary.textContent = fits
    ? `${fits} ${fits === 1 ? "program fits" : "programs fit"} at once, because of ${limit}: ${resident} of `
      + `${limits.warps} warps, an occupancy of ${share}\u00a0%.`
    : "Not even one program fits.";
  parts.places.replaceChildren(...Array.from({ length: limits.warps }, (_, i) => make("i", {
    className: i >= resident ? "am-occupancy-free" : Math.floor(i / warps) % 2 ? "am-occupancy-odd" : "am-occupancy-even",
  })));
  parts.limits.replaceChildren(...LIMITS.flatMap((name) => [
    make("dt", { textContent: name }),
    make("dd", { textContent: allowed[name], className: name === limit ? "am-occupancy-limit" : "" }),
  ]));
}

function build(box, data) {
  const frame = make("div", { className: "am-occupancy-frame", innerHTML: FRAME });
  const calculator = { parts: partsOf(frame), of: new Map(data.limits.map((limits) => [limits.target, limits])) };
  const { parts } = calculator;
  parts.target.append(...[...calculator.of.keys()].map((target) => new Option(target, target)));
  parts.warps.append(...[1, 2, 4, 8, 16, 32].map((number) => new Option(number, number)));
  parts.target.value = data.first.target;
  parts.warps.value = data.first.num_warps;
  parts.registers.value = data.first.registers;
  parts.shared.max = 256;
  parts.shared.value = data.first.shared_bytes / KIB;
  frame.addEventListener("input", () => show(calculator));
  box.replaceChildren(frame);
  show(calculator);
}

function checked(data) {
  const whole = (limits, names) => names.every((name) => Number.isInteger(limits[name]) && limits[name] >= 0);
  const valid = data?.limits?.length && data.limits.every((limits) => limits.target && whole(limits, [
    "registers", "widest", "register_unit", "shared_sm", "shared_block", "shared_unit", "reserved", "warps", "programs", "lanes",
  ])) && data.limits.some(({ target }) => target === data.first?.target);
  if (!valid) throw new Error("is not a list of limits");
  return data;
}

export const start = fromData({
  checked, build,
  fails: "The calculator cannot start",
  instead: "For some kernels the numbers are in the table below.",
});
