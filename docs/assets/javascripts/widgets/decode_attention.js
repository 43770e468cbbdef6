/* How each rule cuts the keys: its box holds a link to the facts of the kernel and a table. The table stays where
   the script or the facts cannot be had; otherwise it becomes sliders and a bar for each rule. */
import { make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";

const BATCHES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
const HEADS = [1, 2, 4, 8, 16, 32];
const LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];
const MOST_DRAWN = 48; // turns of a bar: more are drawn as one
const FRAME = `
  <div class="am-fields">
    <label class="am-field">Sequences <span data-part="batchShown"></span>
      <input type="range" min="0" max="15" data-part="batch"></label>
    <label class="am-field">Heads of keys <span data-part="headsShown"></span>
      <input type="range" min="0" max="5" data-part="heads"></label>
    <label class="am-field">Keys of each <span data-part="keysShown"></span>
      <input type="range" min="0" max="11" data-part="keys"></label>
    <label class="am-field">Multiprocessors <span data-part="processorsShown"></span>
      <input type="range" min="8" max="160" data-part="processors"></label>
  </div>
  <p class="am-splits-summary" data-part="summary" role="status"></p>
  <ol class="am-splits-rules" data-part="rules"></ol>`;

const up = (a, b) => Math.ceil(a / b);
const digits = (number) => number.toLocaleString("en");

function turns(work, splits, facts) {
  const number = up(work.programs * splits, work.slots);
  return { number, long: up(work.tiles, splits) + facts.start_tiles };
}

export function cost(work, splits, facts) {
  const { number, long } = turns(work, splits, facts);
  return number * long + (splits > 1 ? facts.combine_tiles : 0);
}

export function filled(work, splits) {
  const launched = work.programs * splits;
  return launched / (up(launched, work.slots) * work.slots);
}

function ours(work, facts) {
  let [best, least] = [1, Infinity];
  for (let splits = 1; splits <= Math.min(work.tiles, facts.most); splits++) {
    if (up(work.tiles, up(work.tiles, splits)) < splits) continue; // the last one would be empty
    const price = cost(work, splits, facts);
    if (price < least) [best, least] = [splits, price];
  }
  return best;
}

function flashAttentionThree(work, facts) {
  if (work.programs >= 0.8 * work.processors || work.tiles <= 4) return 1;
  const most = Math.min(facts.most_published, work.processors, work.tiles);
  const waves = Array.from({ length: most }, (_, i) => {
    const launched = work.programs * (i + 1);
    return launched / work.processors / up(launched, work.processors);
  });
  const best = Math.max(...waves);
  return 1 + waves.findIndex((efficiency) => efficiency >= 0.85 * best);
}

function flashAttentionFour(work, facts) {
  const each = Math.floor(work.processors / work.programs);
  return Math.max(1, Math.min(each, facts.most_published, work.tiles));
}

function flashInfer(work, facts) {
  if (work.programs >= work.slots) return 1;
  let [low, high] = [facts.chunk, Math.max(facts.chunk, work.keys)];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (work.programs * up(work.keys, middle) > work.slots) low = middle + 1;
    else high = middle;
  }
  return up(work.keys, low);
}

const RULES = [ // in the order of splits.py
  ours, flashAttentionThree, flashAttentionFour, flashInfer,
  (work, facts) => (work.programs < facts.segmented ? facts.segments : 1),
  (work, facts) => up(work.keys, facts.every),
  (work, facts) => up(work.keys, facts.split_keys),
];

// The rules of splits.py once more: a test holds them against Python's.
export function workOf({ batch, heads, keys, processors }, facts) {
  const programs = batch * heads;
  const kind = programs > facts.few * processors ? 1 : 0; // of the kernel's two tiles
  return {
    programs, keys, tiles: up(keys, facts.tiles[kind]), processors, slots: facts.at_once[kind] * processors,
  };
}

export const chosen = (work, facts) => RULES.map((rule) => rule(work, facts));

// A bar: a block for each turn, as high as the share of slots that are busy in it.
function bar(work, splits, facts, longest) {
  const { number, long } = turns(work, splits, facts);
  const launched = work.programs * splits;
  const last = (launched - (number - 1) * work.slots) / work.slots;
  const wide = (tiles) => `${(100 * tiles) / longest}%`;
  const block = (tiles, high, className) => {
    const node = make("i", { className });
    node.style.width = wide(tiles);
    node.style.height = `${100 * high}%`;
    return node;
  };
  const full = number - 1;
  const blocks = full > MOST_DRAWN
    ? [block(full * long, 1, "am-splits-many")]
    : Array.from({ length: full }, () => block(long, 1, "am-splits-turn"));
  blocks.push(block(long, last, "am-splits-turn"));
  if (splits > 1) blocks.push(block(facts.combine_tiles, 1, "am-splits-merge"));
  return make("span", { className: "am-splits-bar", ariaHidden: "true" }, ...blocks);
}

function show({ parts, facts, names }) {
  const at = (list, part) => list[Number(part.value)];
  const shape = {
    batch: at(BATCHES, parts.batch), heads: at(HEADS, parts.heads),
    keys: at(LENGTHS, parts.keys), processors: Number(parts.processors.value),
  };
  for (const [name, value] of Object.entries(shape)) {
    parts[`${name}Shown`].textContent = digits(value);
    parts[name].setAttribute("aria-valuetext", digits(value));
  }
  const work = workOf(shape, facts);
  const splits = chosen(work, facts);
  const longest = Math.max(...splits.map((number) => cost(work, number, facts)));
  parts.summary.textContent = `${digits(work.programs)} ${work.programs === 1 ? "program" : "programs"} without splits, `
    + `${digits(work.slots)} slots. Ours cuts ${digits(work.tiles)} tiles of keys into ${digits(splits[0])}.`;
  parts.rules.replaceChildren(...names.map((name, i) => {
    const { number } = turns(work, splits[i], facts);
    const said = `${digits(splits[i])} ${splits[i] === 1 ? "split" : "splits"}, ${digits(number)} `
      + `${number === 1 ? "turn" : "turns"}, ${Math.round(100 * filled(work, splits[i]))}\u00a0% of slots busy`;
    return make("li", {},
      make("b", { textContent: name }), make("span", { textContent: said }), bar(work, splits[i], facts, longest));
  }));
}

function build(box, data) {
  const frame = make("div", { className: "am-splits-frame", innerHTML: FRAME });
  const explorer = { parts: partsOf(frame), facts: data.facts, names: data.rules };
  const { parts } = explorer;
  parts.batch.value = BATCHES.indexOf(data.first.batch);
  parts.heads.value = HEADS.indexOf(data.first.heads);
  parts.keys.value = LENGTHS.indexOf(data.first.N);
  parts.processors.value = data.first.processors;
  frame.addEventListener("input", () => show(explorer));
  box.replaceChildren(frame);
  show(explorer);
}

const FACTS = [
  "few", "most", "most_published", "chunk", "segments", "segmented", "every", "split_keys",
];

function checked(data) {
  const whole = (name) => Number.isInteger(data.facts[name]) && data.facts[name] > 0;
  const valid = data?.facts && FACTS.every(whole) && data.rules?.length === RULES.length
    && data.facts.tiles.length === 2 && data.facts.at_once.length === 2 && data.facts.start_tiles >= 0 && data.facts.combine_tiles >= 0;
  if (!valid) throw new Error("does not hold the facts of the rules");
  return data;
}

export const start = fromData({
  checked, build,
  fails: "The explorer cannot start",
  instead: "For one shape the numbers are in the table below.",
});
