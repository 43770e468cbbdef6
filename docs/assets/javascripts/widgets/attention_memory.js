/* What attention needs, and whether it fits: its box holds a link to a file of cards and dtypes
   and a table. The table stays where the script or the file cannot be had; otherwise it becomes a calculator.

   A view can be shared: ?memory=<B>.<H>.<N>.<D>.<dtype>.<card>.<forward|training>.<all|causal>; the second
   calculator of a page reads ?memory2=, and so on. A reader's own card is called own-<GB>. */
import { asked, remember } from "../site/address.js";
import { make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";
import { quantity, writtenOut } from "../site/quantity.js";
import { copiesLink, onLinkToView } from "../site/view_links.js";

const VIEW = /^(\d{1,20})\.(\d{1,20})\.(\d{1,20})\.(\d{1,20})\.(\w+)\.([\w-]+)\.(forward|training)\.(all|causal)$/;
const FIELDS = [ // name, label, largest
  ["B", "Batch", 1_000_000n],
  ["H", "Heads", 10_000n],
  ["N", "N, tokens", 100_000_000n],
  ["D", "D, of a head", 10_000n],
];
const FIRST = { B: "32", H: "32", N: "4096", D: "64", dtype: "float32", card: "a100-80-gb", run: "forward", mask: "all" };
const OWN = /^own-(\d{1,6})$/; // a reader's card, by its GB
const MOST_GB = 100_000n;
const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];
const ROWS = [ // tensor, elements, who holds it
  ["q", "B · H · N · D", "both"], ["k", "B · H · N · D", "both"], ["v", "B · H · N · D", "both"],
  ["scores", "B · H · N · N", "eager"], ["weights", "B · H · N · N", "eager"],
  ["mask", "N · N, one byte each", "eager"],
  ["output", "B · H · N · D", "both"], ["logsumexp", "B · H · N, float32", "fused"],
];
const FRAME = `
  <div class="am-fields" data-part="fields"></div>
  <div class="am-fields">
    <label class="am-field">Dtype <select data-part="dtype"></select></label>
    <div class="am-field"><label>Card <select data-part="card"></select></label>
      <label class="am-memory-own" data-part="own" hidden>GB of memory <input type="text"
        autocomplete="off" data-part="gigabytes" value="16"></label>
      <p class="am-memory-error" data-part="cardError"></p></div>
    <fieldset class="am-field"><legend>Run</legend>
      <span class="am-memory-choice"><label><input type="radio" value="forward"> forward</label>
      <label><input type="radio" value="training"> and backward</label></span>
    </fieldset>
    <fieldset class="am-field"><legend>Mask</legend>
      <span class="am-memory-choice"><label><input type="checkbox" data-part="mask"> causal</label></span>
    </fieldset>
  </div>
  <p class="am-memory-notice" data-part="notice" role="status"></p>
  <div class="am-memory-totals" data-part="totals"></div>
  <p class="am-memory-summary" data-part="summary" aria-live="polite"></p>
  <div class="am-memory-scroll" tabindex="0" role="region" aria-label="Bytes of each tensor">
    <table class="am-table"><thead><tr><th>tensor</th><th>elements</th><th>in short</th><th>bytes</th><th>held by</th></tr></thead>
    <tbody data-part="rows"></tbody></table>
  </div>
  <p><button type="button" data-part="copy">Copy link to this view</button></p>`;
const boxes = new Map(); // box -> calculator: {parts, inputs, cards, dtypes, param}

const slug = (name) => name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
const digits = (number) => number.toLocaleString("en");
const larger = (a, b) => (a > b ? a : b);

// The formulas of module.py once more, in integers of any size: a test holds them against Python's. `size` is
// that of an element.
export function attentionMemory({ B, H, N, D, size, causal, backward }) {
  const rows = B * H * N * D * size;
  const square = B * H * N * N * size;
  const mask = causal ? N * N : 0n;
  const logsumexp = B * H * N * 4n;
  const eager = backward
    ? larger(4n * square + 4n * rows + mask, square + 6n * rows)
    : square + larger(square, rows) + mask;
  const fused = (backward ? 5n : 1n) * rows + logsumexp;
  return {
    q: rows, k: rows, v: rows, output: rows, scores: square, weights: square, mask, logsumexp,
    eager: 3n * rows + eager, fused: 3n * rows + fused,
  };
}

export function largestLength(memory, implementation, sizes) {
  const fits = (N) => attentionMemory({ ...sizes, N })[implementation] <= memory;
  let beyond = 1n;
  while (fits(beyond)) beyond *= 2n;
  let largest = beyond / 2n;
  while (beyond - largest > 1n) {
    const middle = (largest + beyond) / 2n;
    if (fits(middle)) largest = middle;
    else beyond = middle;
  }
  return largest;
}

function readable(bytes) {
  let value = Number(bytes);
  let power = 0;
  for (; value >= 999.95 && power < UNITS.length - 1; power++) value /= 1000;
  return `${value.toFixed(power === 0 ? 0 : value >= 10 ? 1 : 2)}\u00a0${UNITS[power]}`;
}

// A field's text as a number, or what is wrong with it.
function parse(text, name, largest) {
  const short = text.trim();
  const shown = short.length > 24 ? `${short.slice(0, 24)}…` : short;
  const allowed = `a whole number from 1 to ${digits(largest)}`;
  if (short === "") return { wrong: `${name} is empty; give ${allowed}.` };
  const value = quantity(short);
  if (Number.isNaN(value)) return { wrong: `“${shown}” is not a number; give ${allowed}.` };
  const why = value < 0 ? "negative" : value === 0 ? "too small" : value > largest ? "too large"
    : !Number.isInteger(value) && "not a whole number";
  return why ? { wrong: `${shown} is ${why}; give ${allowed}.` } : { value: BigInt(value) };
}

function read(calculator) {
  const { parts, inputs } = calculator;
  const sizes = {};
  const wrong = [];
  for (const [name, label, largest] of FIELDS) {
    const { input, message } = inputs[name];
    const found = parse(input.value, label, largest);
    message.textContent = found.wrong ?? "";
    if (found.wrong) {
      wrong.push(label);
      input.setAttribute("aria-invalid", "true");
    } else {
      sizes[name] = found.value;
      input.removeAttribute("aria-invalid");
    }
  }
  const run = parts.runs.find((radio) => radio.checked).value;
  sizes.size = calculator.dtypes.get(parts.dtype.value);
  sizes.causal = parts.mask.checked;
  sizes.backward = run === "training";
  const card = cardOf(calculator);
  if (!card) wrong.push("Card");
  return { sizes, wrong, run, card };
}

// The chosen card; of a reader's own, what its field says. Nothing where that is no size.
function cardOf({ cards, parts }) {
  const own = parts.card.value === "own";
  const { value, wrong } = own ? parse(parts.gigabytes.value, "GB", MOST_GB) : {};
  parts.own.hidden = !own;
  parts.cardError.textContent = wrong ?? "";
  if (!own) return cards.get(parts.card.value);
  return value && { bytes: value * 1_000_000_000n, size: `${digits(value)}\u00a0GB` };
}

function show(calculator) {
  const { parts } = calculator;
  const { sizes, wrong, card } = read(calculator);
  const memory = wrong.length ? undefined : attentionMemory(sizes);
  const said = [];
  for (const implementation of ["eager", "fused"]) {
    const { box, amount, verdict, bar, longest } = parts.total[implementation];
    const fits = memory && memory[implementation] <= card.bytes;
    box.dataset.fits = memory ? String(fits) : "";
    amount.textContent = memory ? readable(memory[implementation]) : "–";
    bar.style.width = memory ? `${Math.min(100, (Number(memory[implementation]) / Number(card.bytes)) * 100)}%` : "0";
    if (!memory) {
      verdict.textContent = longest.textContent = "–";
      continue;
    }
    const most = largestLength(card.bytes, implementation, sizes);
    verdict.textContent = `${fits ? "fits" : "does not fit"} into ${card.size}`;
    longest.textContent = most ? `N ${digits(most)} is the largest that fits` : "not even one token fits";
    said.push(`${implementation === "eager" ? "Eager" : "Fused"} attention needs ${amount.textContent} and `
      + `${verdict.textContent}; ${longest.textContent}.`);
  }
  const summary = memory ? said.join(" ") : `No result: see what is wrong with ${wrong.join(", ")}.`;
  if (parts.summary.textContent !== summary) parts.summary.textContent = summary;
  parts.rows.replaceChildren(...ROWS.map(([name, elements, holder]) => {
    const row = make("tr", {});
    const bytes = memory ? digits(memory[name]) : "–";
    for (const text of [name, elements, memory ? readable(memory[name]) : "–", bytes, holder]) {
      row.append(make("td", { textContent: text }));
    }
    return row;
  }));
  return !wrong.length;
}

function keep(calculator) {
  const { parts, inputs, param } = calculator;
  const sizes = FIELDS.map(([name]) => quantity(inputs[name].input.value));
  const run = parts.runs.find((radio) => radio.checked).value;
  const card = parts.card.value === "own" ? `own-${quantity(parts.gigabytes.value)}` : parts.card.value;
  const view = [...sizes, parts.dtype.value, card, run, parts.mask.checked ? "causal" : "all"];
  remember({ [param]: view.join(".") });
}

function fill({ parts, inputs }, view) {
  for (const [name] of FIELDS) inputs[name].input.value = view[name];
  parts.dtype.value = view.dtype;
  const [, gigabytes] = OWN.exec(view.card) ?? [];
  if (gigabytes) parts.gigabytes.value = gigabytes;
  parts.card.value = gigabytes ? "own" : view.card;
  for (const radio of parts.runs) radio.checked = radio.value === view.run;
  parts.mask.checked = view.mask === "causal";
}

// Shows the view of a link, or says why it cannot.
function follow(calculator, link) {
  const [, B, H, N, D, dtype, card, run, mask] = VIEW.exec(link) ?? [];
  const why = !mask ? "it is not of a form that the calculator can read"
    : !calculator.dtypes.has(dtype) ? `there is no dtype “${dtype}”`
      : !calculator.cards.has(card) && !OWN.test(card) && `there is no card “${card}”`;
  calculator.parts.notice.textContent = why
    ? `The link to this view does not work: ${why}. This is the first view instead.` : "";
  fill(calculator, why ? FIRST : { B, H, N, D, dtype, card, run, mask });
  show(calculator);
}

function addField(calculator, id, [name, label, largest]) {
  const field = make("div", { className: "am-field" });
  const input = make("input", {
    type: "text", autocomplete: "off", spellcheck: false, id: `${id}-${name}`,
  });
  const message = make("p", { className: "am-memory-error", id: `${id}-${name}-error` });
  input.setAttribute("aria-describedby", message.id);
  input.addEventListener("keydown", (event) => { // as in a number field
    const step = { ArrowUp: 1n, ArrowDown: -1n }[event.key];
    const { value } = parse(input.value, label, largest);
    if (!step || !value || value + step < 1n || value + step > largest) return;
    event.preventDefault();
    input.value = String(value + step);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
  field.append(make("label", { htmlFor: input.id, textContent: label }), input, message);
  calculator.parts.fields.append(field);
  calculator.inputs[name] = { input, message };
}

function addTotal(parts, implementation, title) {
  const box = make("div", { className: "am-memory-total" });
  const bar = make("i", {});
  const track = make("span", { className: "am-memory-bar", ariaHidden: "true" });
  track.append(bar);
  const [name, amount, verdict, longest] = ["b", "strong", "span", "span"].map((tag) => make(tag, {}));
  name.textContent = title;
  box.append(name, amount, track, verdict, longest);
  parts.totals.append(box);
  parts.total[implementation] = { box, amount, verdict, bar, longest };
}

function build(box, data) {
  const frame = make("div", { className: "am-memory-frame", innerHTML: FRAME });
  const parts = partsOf(frame);
  const index = [...document.querySelectorAll("[data-widget=attention_memory]")].indexOf(box);
  const calculator = {
    parts, inputs: {}, param: index > 0 ? `memory${index + 1}` : "memory",
    cards: new Map(data.cards.map(({ name, bytes }) => [slug(name), {
      name, bytes: BigInt(bytes), size: readable(bytes).replace(/\.0+(?!\d)/, ""),
    }])),
    dtypes: new Map(data.dtypes.map(({ name, size }) => [name, BigInt(size)])),
  };
  const id = calculator.param;
  parts.total = {};
  addTotal(parts, "eager", "Eager, peak");
  addTotal(parts, "fused", "Fused, peak");
  parts.runs = [...frame.querySelectorAll("input[type=radio]")];
  for (const radio of parts.runs) radio.name = `${id}-run`;
  for (const field of FIELDS) addField(calculator, id, field);
  for (const name of calculator.dtypes.keys()) parts.dtype.append(new Option(name, name));
  for (const [value, { name, size }] of calculator.cards) {
    parts.card.append(new Option(name.includes("GB") ? name : `${name}, ${size}`, value));
  }
  parts.card.append(new Option("my card: … GB", "own"));
  frame.addEventListener("input", () => {
    parts.notice.textContent = "";
    if (show(calculator)) keep(calculator);
  });
  writtenOut(frame);
  copiesLink(parts.copy, box, () => {
    if (show(calculator)) keep(calculator);
  });
  for (const old of boxes.keys()) if (!old.isConnected) boxes.delete(old); // of a page before
  boxes.set(box, calculator);
  box.replaceChildren(frame);
  const link = asked(calculator.param);
  if (link !== null) return follow(calculator, link);
  fill(calculator, FIRST);
  return show(calculator);
}

function checked(data) {
  const valid = data?.cards?.length && data.dtypes?.length
    && data.cards.every((card) => card.name && /^\d+$/.test(card.bytes))
    && data.dtypes.every((dtype) => dtype.name && Number.isInteger(dtype.size));
  if (!valid) throw new Error("is not a list of cards and dtypes");
  return data;
}

onLinkToView((link) => {
  const meant = [...boxes].filter(([, { param }]) => link.has(param));
  for (const [box, calculator] of meant) {
    follow(calculator, link.get(calculator.param));
    box.scrollIntoView({ block: "nearest" });
  }
  return meant.length > 0;
});

export const start = fromData({
  checked, build,
  fails: "The calculator cannot start",
  instead: "For one layer the numbers are in the table below.",
});
