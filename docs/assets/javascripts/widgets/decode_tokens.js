/* Tokens per second by the bytes that a step of decoding reads: its box holds a link to models and measured
   bandwidths, and a table. The table stays where the script or the data cannot be had; otherwise it becomes a calculator. */
import { make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";
import { quantity, writtenOut } from "../site/quantity.js";

const OWN = "own";
const FIELDS = [ // name, label, largest, whether it is whole
  ["layers", "Layers", 1000, true],
  ["heads", "Heads of keys", 1000, true],
  ["D", "D, of a head", 10_000, true],
  ["billions", "Weights, billions", 100_000, false],
  ["keys", "Keys of each sequence", 100_000_000, true],
  ["batch", "Sequences", 1_000_000, true],
  ["terabytes", "Bandwidth, TB/s", 1000, false],
];
const OF_A_MODEL = ["layers", "heads", "D", "billions"];
const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"];
const FRAME = `
  <div class="am-fields">
    <label class="am-field">Model <select data-part="model"></select></label>
    <label class="am-field">GPU <select data-part="gpu"></select></label>
    <label class="am-field">Numbers <select data-part="size">
      <option value="2">16 bits</option><option value="1">8 bits</option></select></label>
  </div>
  <div class="am-fields" data-part="fields"></div>
  <dl class="am-tokens-totals" data-part="totals"></dl>
  <p class="am-tokens-summary" data-part="summary" role="status"></p>`;

// The formula of tokens.py once more: a test holds it against Python's.
export function step({ layers, heads, D, parameters, size, keys, batch, perSecond }) {
  const weights = parameters * size;
  const ofASequence = 2 * layers * heads * D * keys * size;
  const bytes = weights + batch * ofASequence;
  return { weights, ofASequence, bytes, seconds: bytes / perSecond };
}

const digits = (number) => number.toLocaleString("en", { maximumSignificantDigits: 3 });

function readable(bytes) {
  let [value, power] = [bytes, 0];
  for (; value >= 999.5 && power < UNITS.length - 1; power++) value /= 1000;
  return `${digits(value)}\u00a0${UNITS[power]}`;
}

// A field's text as a number, or what is wrong with it.
function parse(text, [, label, largest, whole]) {
  const value = quantity(text);
  const allowed = `${whole ? "a whole number from 1" : "a number above 0"} to ${largest.toLocaleString("en")}`;
  if (Number.isNaN(value)) return { wrong: `${label}: please give ${allowed}.` };
  if (value <= 0 || value > largest || (whole && !Number.isInteger(value))) {
    return { wrong: `${label} is ${text.trim().slice(0, 24)}; give ${allowed}.` };
  }
  return { value };
}

function chosen({ parts, inputs }) {
  const found = { size: Number(parts.size.value) };
  const wrong = [];
  for (const field of FIELDS) {
    const result = parse(inputs[field[0]].value, field);
    if (result.wrong) {
      wrong.push(result.wrong);
      inputs[field[0]].setAttribute("aria-invalid", "true");
    } else {
      found[field[0]] = result.value;
      inputs[field[0]].removeAttribute("aria-invalid");
    }
  }
  return { found, wrong };
}

function show(calculator) {
  const { parts } = calculator;
  const { found, wrong } = chosen(calculator);
  const told = step({ ...found, parameters: found.billions * 1e9, perSecond: found.terabytes * 1e12 });
  const totals = [ // NaN where a field that matters is wrong
    ["Weights", told.weights, readable],
    ["Cache of a sequence", told.ofASequence, readable],
    ["Read in a step", told.bytes, readable],
    ["Least time of a step", told.seconds, (seconds) => `${digits(seconds * 1e3)}\u00a0ms`],
  ];
  parts.totals.replaceChildren(...totals.flatMap(([name, value, said]) => [
    make("dt", { textContent: name }), make("dd", { textContent: Number.isNaN(value) ? "–" : said(value) }),
  ]));
  parts.summary.textContent = !wrong.length
    ? `At most ${digits(found.batch / told.seconds)} tokens per second in all, ${digits(1 / told.seconds)} of each sequence. `
      + `The caches are ${Math.round((100 * (told.bytes - told.weights)) / told.bytes)}\u00a0% of what is read.`
    : wrong.join(" ");
}

function chooseModel({ parts, inputs, models }) {
  const facts = models.get(parts.model.value);
  if (!facts) return;
  OF_A_MODEL.forEach((name, i) => {
    inputs[name].value = name === "billions" ? facts[i] / 1e9 : facts[i];
  });
}

function chooseGpu({ parts, inputs, measured }) {
  const perSecond = measured.get(parts.gpu.value);
  if (perSecond) inputs.terabytes.value = (perSecond / 1e12).toFixed(2);
}

function build(box, data) {
  const frame = make("div", { className: "am-tokens-frame", innerHTML: FRAME });
  const parts = partsOf(frame);
  const calculator = {
    parts, inputs: {},
    models: new Map(data.models.map(([name, ...facts]) => [name, facts])),
    measured: new Map(data.measured),
  };
  const { inputs, models, measured } = calculator;
  for (const [name, label] of FIELDS) {
    inputs[name] = make("input", { type: "text", autocomplete: "off", spellcheck: false });
    parts.fields.append(make("label", { className: "am-field" }, `${label} `, inputs[name]));
  }
  parts.model.append(...[...models.keys()].map((name) => new Option(name, name)), new Option("my own", OWN));
  parts.gpu.append(...[...measured.keys()].map((name) => new Option(`${name}, measured`, name)), new Option("my own", OWN));
  parts.model.value = data.first.name;
  parts.size.value = data.first.size;
  inputs.keys.value = data.first.keys;
  inputs.batch.value = data.first.batch;
  chooseModel(calculator);
  chooseGpu(calculator);
  frame.addEventListener("input", ({ target }) => {
    if (target === parts.model) chooseModel(calculator);
    else if (target === parts.gpu) chooseGpu(calculator);
    else if (OF_A_MODEL.some((name) => inputs[name] === target)) parts.model.value = OWN;
    else if (target === inputs.terabytes) parts.gpu.value = OWN;
    show(calculator);
  });
  writtenOut(frame);
  box.replaceChildren(frame);
  show(calculator);
}

function checked(data) {
  const valid = data?.models?.length && data.models.every(([name, ...facts]) => name && facts.length === 4 && facts.every((x) => x > 0))
    && Array.isArray(data.measured) && data.measured.every(([name, perSecond]) => name && perSecond > 0)
    && data.models.some(([name]) => name === data.first?.name);
  if (!valid) throw new Error("is not a list of models");
  return data;
}

export const start = fromData({
  checked, build,
  fails: "The calculator cannot start",
  instead: "For some models the bytes are in the table below.",
});
