/* How efficient a ring of GPUs is: sliders for the link and the rate of a step. The box holds a table of cases, which
   stays where the script cannot start. */
import { make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";

const HEADS = 16;
const D = 128;
const BYTES = 2; // of a number in q, k and v
const RANKS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const BARS = { step: "am-ring-step", message: "am-ring-message" };
const FRAME = `
  <div class="am-fields">
    <label class="am-field">GPUs <select data-part="ranks"></select></label>
    <label class="am-field">Mask <select data-part="causal"><option value="1">causal</option><option value="">none</option></select></label>
    <label class="am-field">Rows, N <span data-part="rowsShown"></span>
      <input type="range" min="13" max="24" data-part="rows"></label>
    <label class="am-field">Link, each way <span data-part="linkShown"></span>
      <input type="range" min="5" max="900" step="5" data-part="link"></label>
    <label class="am-field">Step rate <span data-part="rateShown"></span>
      <input type="range" min="50" max="2000" step="50" data-part="rate"></label>
  </div>
  <p class="am-ring-summary" data-part="summary" role="status"></p>
  <dl class="am-ring-bars" data-part="bars"></dl>`;

// model.py once more: a test holds them against each other.
export function predicted({ ranks, N, causal, link, rate }) {
  const rows = N / ranks;
  const step = (4 * HEADS * rows * rows * D) / rate / (causal ? 2 : 1);
  const message = (2 * HEADS * rows * D * BYTES) / link;
  const total = (ranks - 1) * Math.max(step, message) + step;
  return { step, message, total, share: (ranks * step) / total, bytes: HEADS * rows * D * (8 * BYTES + 4) };
}

const digits = (value) => (value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3))));

function scaled(value, steps) {
  const [unit, name] = steps.find(([least]) => value >= least) ?? steps.at(-1);
  return `${digits(value / unit)}\u00a0${name}`;
}

const seconds = (value) => scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);
const bytes = (value) => scaled(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]);

function show(parts) {
  const ring = {
    ranks: Number(parts.ranks.value),
    N: 2 ** Number(parts.rows.value),
    causal: parts.causal.value === "1",
    link: Number(parts.link.value) * 1e9,
    rate: Number(parts.rate.value) * 1e12,
  };
  const found = predicted(ring);
  parts.rowsShown.textContent = ring.N.toLocaleString("en-US");
  parts.linkShown.textContent = `${parts.link.value}\u00a0GB/s`;
  parts.rateShown.textContent = `${parts.rate.value}\u00a0TFLOP/s`;
  const hidden = found.message <= found.step ? "hides behind" : "is longer than";
  parts.summary.textContent = `${Math.round(100 * found.share)}\u00a0% of the ideal speed-up: a message ${hidden} a `
    + `step. ${seconds(found.total)} in all, ${bytes(found.bytes)} per GPU.`;
  const longest = Math.max(found.step, found.message);
  parts.bars.replaceChildren(...Object.entries(BARS).flatMap(([name, className]) => {
    const bar = make("i", { className });
    bar.style.width = `${(100 * found[name]) / longest}%`;
    const value = make("dd");
    value.append(bar, make("span", { textContent: seconds(found[name]) }));
    return [make("dt", { textContent: name }), value];
  }));
}

function build(box) {
  const frame = make("div", { innerHTML: FRAME });
  const parts = partsOf(frame);
  parts.ranks.append(...RANKS.map((number) => new Option(number, number)));
  parts.ranks.value = 8;
  parts.rows.value = 17;
  parts.link.value = 250;
  parts.rate.value = 600;
  frame.addEventListener("input", () => show(parts));
  box.replaceChildren(frame);
  show(parts);
}

function checked(data) {
  if (!data?.cases?.length) throw new Error("is not a list of cases");
  return data;
}

export const start = fromData({
  checked, build,
  fails: "The simulator cannot start",
  instead: "For some rings the numbers are in the table below.",
});
