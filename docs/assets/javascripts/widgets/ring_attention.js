/* How efficient a ring of GPUs is: sliders for the link and the rate of a step, and the rate of each GPU over their
   number, with what was measured as dots. The box holds a table of cases, which stays where the script cannot start. */
import { make, partsOf, shape } from "../site/dom.js";
import { fromData } from "../site/from_data.js";

const HEADS = 16;
const D = 128;
const BYTES = 2; // of a number in q, k and v
const RANKS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const NAMED = [2, 8, 64, 1024]; // below the line
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
      <input type="range" min="50" max="2000" step="10" data-part="rate"></label>
  </div>
  <p class="am-ring-summary" data-part="summary" role="status"></p>
  <dl class="am-ring-bars" data-part="bars"></dl>
  <p class="am-ring-axis">TFLOP/s per GPU, by number of GPUs (dashed: yours)</p>
  <svg class="am-ring-line" data-part="line" role="img"></svg>`;
const TOP = 14; // pixels above the line's highest place, and below its lowest
const BOTTOM = 126;
const SAMPLES = 4; // places of the line between a number of GPUs and its double

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

// Places across are percentages, so that the drawing fits any width without being measured.
const across = (ranks) => 8 + (88 * Math.log2(ranks / RANKS[0])) / Math.log2(RANKS.at(-1) / RANKS[0]);

/* The rate of each GPU over their number, by the model; the chosen number; and measured calls with the same mask. */
function drawLine(svg, ring, measured) {
  const reached = (ranks) => ring.rate * predicted({ ...ring, ranks }).share;
  const dots = measured.filter((one) => one.causal === ring.causal);
  const most = Math.max(ring.rate, ...dots.map((one) => one.rate));
  const up = (rate) => BOTTOM - ((BOTTOM - TOP) * rate) / most;
  const at = (ranks, rate) => ({ x: `${across(ranks)}%`, y: up(rate) });
  const places = Array.from({ length: SAMPLES * (RANKS.length - 1) + 1 }, (_, i) => RANKS[0] * 2 ** (i / SAMPLES));
  const line = places.slice(1).map((ranks, i) => {
    const [from, to] = [places[i], ranks].map((one) => at(one, reached(one)));
    return shape("line", { class: "am-ring-model", x1: from.x, y1: from.y, x2: to.x, y2: to.y });
  });
  const tera = (rate) => digits(rate / 1e12);
  const levels = [0, ring.rate].flatMap((rate) => [
    shape("line", { class: "am-ring-level", x1: "8%", x2: "96%", y1: up(rate), y2: up(rate) }),
    shape("text", { x: "8%", dx: -8, y: up(rate) + 4, "text-anchor": "end" }, tera(rate)),
  ]);
  const ticks = NAMED.map((ranks) => (
    shape("text", { x: `${across(ranks)}%`, y: BOTTOM + 18, "text-anchor": "middle" }, ranks)));
  const points = dots.map((one) => {
    const { x, y } = at(one.ranks, one.rate);
    const like = one.N === ring.N ? "am-ring-same" : "am-ring-other";
    const dot = shape("circle", { class: like, cx: x, cy: y, r: 4.5 });
    dot.append(shape("title", {}, `measured, N ${one.N.toLocaleString("en-US")}: ${tera(one.rate)} TFLOP/s per GPU`));
    return dot;
  });
  const chosen = at(ring.ranks, reached(ring.ranks));
  svg.replaceChildren(...levels, ...ticks, ...line,
    shape("line", { class: "am-ring-chosen", x1: chosen.x, x2: chosen.x, y1: chosen.y, y2: BOTTOM }), ...points);
  const told = NAMED.map((ranks) => `${ranks} GPUs ${tera(reached(ranks))}`);
  const same = dots.filter((one) => one.N === ring.N).map((one) => `${one.ranks} GPUs ${tera(one.rate)}`);
  svg.setAttribute("aria-label", `TFLOP/s per GPU, predicted: ${told.join(", ")}; `
    + `measured: ${same.join(", ") || "nothing with as many rows"}.`);
}

function show(parts, measured) {
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
  drawLine(parts.line, ring, measured);
}

function build(box, { start: rates, measured }) {
  const frame = make("div", { innerHTML: FRAME });
  const parts = partsOf(frame);
  parts.ranks.append(...RANKS.map((number) => new Option(number, number)));
  parts.ranks.value = 8;
  parts.rows.value = Math.log2(Math.max(...measured.map((one) => one.N), 2 ** 16));
  parts.link.value = (rates?.link ?? 250e9) / 1e9; // a slider takes the nearest place that it has
  parts.rate.value = (rates?.rate ?? 600e12) / 1e12;
  frame.addEventListener("input", () => show(parts, measured));
  box.replaceChildren(frame);
  show(parts, measured);
}

function checked(data) {
  if (!data?.cases?.length) throw new Error("is not a list of cases");
  if (!Array.isArray(data.measured)) throw new Error("has no list of measured calls");
  return data;
}

export const start = fromData({
  checked, build,
  fails: "The simulator cannot start",
  instead: "For some rings the numbers are in the table below.",
});
