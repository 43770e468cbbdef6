/* The running softmax, step by step: its box holds a link to what was recorded from a kernel and a
   table of it. The table stays where the script or the recording cannot be had; otherwise it becomes a player.
   A tile of keys takes three steps: its scores, the correction of what was collected, the addition. */
import { asked, rememberLater } from "../site/address.js";
import { make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";

const PAUSE_MS = 1600; // between two steps while it plays
const PHASES = ["scores", "rescale", "add"];
const MANY_KEYS = 20; // from here on a key's cell is too narrow for its number
const FRAME = `
  <div class="am-steps-bar">
    <button type="button" data-part="play">Play</button>
    <button type="button" data-step="-1" aria-label="Step back">◀</button>
    <button type="button" data-step="1" aria-label="Step forward">▶</button>
    <input type="range" data-part="range" min="0" step="1" aria-label="Step">
    <span data-part="count" aria-hidden="true"></span>
  </div>
  <div class="am-steps-bar">
    <fieldset><legend>Query</legend><span data-part="queries"></span></fieldset>
    <fieldset data-part="choice"><legend>Mask</legend><span data-part="examples"></span></fieldset>
  </div>
  <div class="am-steps-board" data-part="board" tabindex="0" role="group"
    aria-label="Running softmax; arrow keys step, space plays">
    <div class="am-steps-strip"><b data-part="stripTitle"></b><ol data-part="strip"></ol></div>
    <div class="am-steps-tables" data-part="tables"></div>
  </div>
  <p class="am-steps-formula" data-part="formula"></p>
  <p class="am-steps-words" data-part="words" role="status"></p>
  <p class="am-steps-key" aria-hidden="true">
    <span><i class="am-steps-now"></i>tile of this step</span>
    <span><i class="am-steps-seen"></i>seen</span>
    <span><i class="am-steps-hidden"></i>hidden by the mask</span>
    <span><i class="am-steps-changed"></i>changed by this step</span>
  </p>`;

const number = (x) => (x === null ? "−∞" : x.toFixed(2).replace(/^-(?=0\.00$)/, "").replace("-", "−"));
const bracketed = (x) => (x !== null && x < 0 ? `(${number(x)})` : number(x));
const list = (numbers) => numbers.map(number).join(", ");

function checked(data) {
  const grid = (rows, width) => Array.isArray(rows)
    && rows.every((row) => Array.isArray(row) && row.length === width);
  const valid = data?.examples?.length && data.examples.every((e) => e.queries > 0 && e.tile > 0
    && grid(e.result, e.columns) && e.tiles?.length && e.tiles.every((t) => grid(t.scores, e.tile)
      && grid(t.p, e.tile) && grid(t.acc, e.columns) && grid(t.acc_before, e.columns)
      && grid(t.share, e.keys) && Number.isInteger(t.start)
      && ["m", "m_before", "alpha", "l", "l_before"].every((name) => t[name]?.length === e.queries)));
  if (!valid) throw new Error("is not a recording of a running softmax");
  return data;
}

// What there is to see at a step: 0 is before the first tile, the last the division by l.
function sceneOf(example, step) {
  const last = example.tiles.length * PHASES.length + 1;
  if (step === 0) return { phase: "start", tile: example.tiles[0], index: -1 };
  if (step === last) return { phase: "end", tile: example.tiles.at(-1), index: example.tiles.length };
  const index = Math.floor((step - 1) / PHASES.length);
  return { phase: PHASES[(step - 1) % PHASES.length], tile: example.tiles[index], index };
}

// m, l and acc of a query after a step; α where it is known.
function stateOf(example, { phase, tile }, query) {
  const alpha = tile.alpha[query];
  const before = { m: tile.m_before[query], l: tile.l_before[query], acc: tile.acc_before[query] };
  const after = { m: tile.m[query], l: tile.l[query], acc: tile.acc[query], alpha };
  return {
    start: before,
    scores: { ...before, m: after.m },
    rescale: { ...before, m: after.m, alpha, l: before.l * alpha, acc: before.acc.map((x) => x * alpha) },
    add: after,
    end: { ...after, alpha: undefined, acc: example.result[query] },
  }[phase];
}

const CHANGED = { start: [], scores: ["scores", "m"], rescale: ["alpha", "l", "acc"], add: ["p", "l", "acc"], end: ["acc"] };

function formulaOf({ phase }, exp) {
  return {
    start: "m = −∞, l = 0, acc = 0",
    scores: "m′ = max(m, largest score of the tile)",
    rescale: `α = ${exp}(m − m′), l ← α · l, acc ← α · acc`,
    add: `p = ${exp}(score − m′), l ← l + Σ p, acc ← acc + Σ p · v`,
    end: "out = acc ÷ l",
  }[phase];
}

function wordsOf(example, scene, query) {
  const { phase, tile, index } = scene;
  const exp = example.base === "2" ? "exp2" : "exp";
  const [before, after, alpha] = [tile.m_before[query], tile.m[query], tile.alpha[query]];
  const end = Math.min(tile.start + example.tile, example.keys);
  const keys = end - tile.start > 1 ? `keys ${tile.start} to ${end - 1}` : `key ${tile.start}`;
  const here = `Tile ${index + 1} of ${example.tiles.length}, ${keys}, query ${query}. `;
  const loop = { true: "The masked loop takes it. ", false: "The loop without a mask takes it. " }[tile.masked] ?? "";
  const scores = tile.scores[query].slice(0, end - tile.start);
  const visible = scores.filter((s) => s !== null);
  const hidden = scores.length - visible.length;
  if (phase === "start") {
    return `Before the first tile, query ${query}: no score has been seen. `
      + "m is −∞, the sum l is 0 and so is the accumulator.";
  }
  if (phase === "scores") {
    if (!visible.length) return `${here}${loop}The mask hides every one of these keys. m stays ${number(after)}.`;
    const largest = Math.max(...visible);
    const how = before === null || largest > before
      ? `is above m = ${number(before)}: m becomes ${number(after)}.`
      : `is not above m = ${number(before)}: m stays.`;
    const masked = hidden ? ` The mask hides ${hidden} of them.` : "";
    return `${here}${loop}The scores are ${list(visible)}.${masked} The largest, ${number(largest)}, ${how}`;
  }
  if (phase === "rescale") {
    if (after === null) return `${here}Still nothing has been seen, and nothing is to be corrected.`;
    if (before === null) return `${here}α = ${exp}(−∞) = 0. Nothing had been collected, so there is nothing to correct.`;
    if (before === after) return `${here}m did not move: α = ${exp}(0) = 1, and l and acc stay as they are.`;
    return `${here}m has moved: α = ${exp}(${number(before)} − ${bracketed(after)}) = ${number(alpha)}. l shrinks from `
      + `${number(tile.l_before[query])} to ${number(tile.l_before[query] * alpha)}, acc by the same factor.`;
  }
  if (phase === "add") {
    const sum = tile.p[query].reduce((a, b) => a + b, 0);
    const weights = tile.p[query].slice(0, scores.length);
    return `${here}Relative to m the keys weigh ${list(weights)}. Their sum ${number(sum)} goes into l, which is now `
      + `${number(tile.l[query])}; their values, weighted like that, go into acc.`;
  }
  if (!tile.l[query]) return `No key is visible to query ${query}: l is 0, and the result is 0 by agreement.`;
  const skipped = Math.ceil(example.keys / example.tile) - example.tiles.length;
  const tiles = skipped === 1 ? "a tile is" : `${skipped} tiles are`;
  const rest = skipped > 0 ? `No query here sees what follows, so ${tiles} skipped. ` : "";
  return `${rest}acc is divided by l = ${number(tile.l[query])}, once: ${list(example.result[query])}. `
    + "These are the numbers that the kernel stored.";
}

function table(caption, heads, rows) {
  const node = make("table", { className: "am-steps-table" }); // a class: none of Material's table style
  node.append(make("caption", { textContent: caption }));
  const head = node.createTHead().insertRow();
  for (const text of heads) head.append(make("th", { scope: "col", textContent: text }));
  const body = node.createTBody();
  for (const { query, chosen, cells } of rows) {
    const row = body.insertRow();
    row.classList.toggle("am-steps-chosen", chosen);
    row.append(make("th", { scope: "row", textContent: query }));
    for (const { text, css, level, label } of cells) {
      const cell = make("td", { textContent: text, className: css ?? "" });
      if (label) cell.ariaLabel = label;
      if (level !== undefined) cell.style.setProperty("--am-level", level);
      row.append(cell);
    }
  }
  return node;
}

function paint(view) {
  const { parts, example, query, step } = view;
  const scene = sceneOf(example, step);
  const { phase, tile, index } = scene;
  const changed = CHANGED[phase];
  const mark = (name) => (changed.includes(name) ? "am-steps-changed" : "");
  const inTile = index >= 0 && phase !== "end";
  const states = Array.from({ length: example.queries }, (_, n) => stateOf(example, scene, n));

  // The keys: how much each would weigh if the kernel stopped here, for the chosen query.
  const upTo = phase === "add" || phase === "end" ? tile : example.tiles[index - 1];
  parts.stripTitle.textContent = `Keys, and what they weigh for query ${query} so far`;
  parts.strip.classList.toggle("am-steps-many", example.keys > MANY_KEYS);
  if (parts.strip.childElementCount !== example.keys) {
    parts.strip.replaceChildren(...Array.from({ length: example.keys }, (_, key) => {
      const item = make("li");
      item.append(make("span", { textContent: key }));
      return item;
    }));
  }
  [...parts.strip.children].forEach((item, key) => { // the same items, so that a bar's height can move
    const of = Math.floor(key / example.tile);
    const seen = upTo && key < upTo.start + example.tile;
    const where = example.tiles[of];
    const hidden = !where || where.scores[query][key % example.tile] === null;
    const css = [
      inTile && of === index && "am-steps-now", seen && "am-steps-seen",
      hidden && (!where || of <= index) && "am-steps-hidden", key % example.tile === 0 && "am-steps-first",
    ];
    item.className = css.filter(Boolean).join(" ");
    item.style.setProperty("--am-level", seen ? upTo.share[query][key] : 0);
  });

  const rows = (cellsOf) => states.map((state, n) => ({ query: n, chosen: n === query, cells: cellsOf(state, n) }));
  const columns = Array.from({ length: example.tile }, (_, j) => tile.start + j);
  const shown = phase === "add" ? "p" : "scores";
  const tileCells = (_, n) => columns.map((key, j) => {
    if (!inTile || key >= example.keys) return { text: "", css: "am-steps-none" };
    if (tile.scores[n][j] === null) return { text: "–", css: "am-steps-hidden", label: "hidden" };
    return { text: number(tile[shown][n][j]), css: `am-steps-score ${mark(shown)}`, level: tile.p[n][j] };
  });
  const largest = Math.max(...example.tiles.flatMap((t) => t.acc.flat().map(Math.abs)), ...example.result.flat().map(Math.abs));
  parts.tables.replaceChildren(
    table(
      phase === "add" ? "Weights p" : "Scores of the tile",
      ["query", ...columns.map((key) => (inTile && key < example.keys ? `k${key}` : "·"))], rows(tileCells),
    ),
    table("So far", ["query", "m", "α", "l"], rows((state) => [
      { text: number(state.m), css: mark("m") },
      { text: state.alpha === undefined ? "" : number(state.alpha), css: mark("alpha") },
      { text: number(state.l), css: mark("l") },
    ])),
    table(
      phase === "end" ? "Output" : "Accumulator", ["query", ...example.result[0].map((_, d) => `d${d}`)],
      rows((state) => state.acc.map((x) => ({
        text: number(x), css: `am-steps-acc ${x < 0 ? "am-steps-minus" : ""} ${mark("acc")}`,
        level: Math.abs(x) / (largest || 1),
      }))),
    ),
  );
  parts.formula.textContent = formulaOf(scene, example.base === "2" ? "exp2" : "exp");
  parts.words.textContent = wordsOf(example, scene, query);
}

const lastOf = (example) => example.tiles.length * PHASES.length + 1;

function show(view, change, who = "reader") {
  Object.assign(view, change);
  const { parts, example } = view;
  const last = lastOf(example);
  view.query = Math.min(view.query, example.queries - 1);
  view.step = Math.max(0, Math.min(view.step, last));
  parts.range.max = last;
  parts.range.value = view.step;
  const { phase, index } = sceneOf(example, view.step);
  const name = { start: "start", end: "division" }[phase] ?? `tile ${index + 1}, ${phase}`;
  parts.range.setAttribute("aria-valuetext", `step ${view.step} of ${last}: ${name}`);
  parts.count.textContent = `${view.step} / ${last}`;
  for (const button of parts.steps) {
    const next = view.step + Number(button.dataset.step);
    button.disabled = next < 0 || next > last;
  }
  for (const button of parts.queries.children) button.setAttribute("aria-pressed", Number(button.textContent) === view.query);
  for (const button of parts.examples.children) button.setAttribute("aria-pressed", button.textContent === example.name);
  paint(view);
  if (who === "reader") keep(view);
}

function play(view, on) {
  clearInterval(view.timer);
  view.timer = undefined;
  view.parts.play.textContent = on ? "Pause" : "Play";
  if (!on) return;
  if (view.step === lastOf(view.example)) show(view, { step: 0 });
  view.timer = setInterval(() => {
    if (!view.box.isConnected) return play(view, false); // the reader has left the page
    show(view, { step: view.step + 1 });
    if (view.step === lastOf(view.example)) play(view, false);
  }, PAUSE_MS);
}

// A link leads to the same step.
function keep({ data, example, query, remember, step }) {
  remember({ step, query, ...(data.examples.length > 1 && { mask: example.name }) });
}

function viewOf(data) {
  const whole = (name) => (/^\d{1,4}$/.test(asked(name) ?? "") ? Number(asked(name)) : 0);
  const example = data.examples.find((e) => e.name === asked("mask")) ?? data.examples[0];
  return { example, step: whole("step"), query: whole("query") };
}

function pressed(view, event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const { target, key } = event;
  if (key === " " && target.tagName !== "BUTTON") play(view, view.timer === undefined);
  else if (target.tagName === "INPUT") return; // the slider knows the other keys itself
  else {
    const step = { ArrowLeft: view.step - 1, ArrowRight: view.step + 1, Home: 0, End: lastOf(view.example) }[key];
    if (step === undefined) return;
    play(view, false);
    show(view, { step });
  }
  event.preventDefault();
}

function build(box, data) {
  const frame = make("div", { className: "am-steps-frame", innerHTML: FRAME });
  const parts = partsOf(frame);
  parts.steps = frame.querySelectorAll("[data-step]");
  const view = { box, parts, data, remember: rememberLater(box), timer: undefined, ...viewOf(data) };
  const by = (change) => () => {
    play(view, false);
    show(view, change());
  };
  parts.play.addEventListener("click", () => play(view, view.timer === undefined));
  parts.range.addEventListener("input", by(() => ({ step: Number(parts.range.value) })));
  for (const button of parts.steps) {
    button.addEventListener("click", by(() => ({ step: view.step + Number(button.dataset.step) })));
  }
  for (let query = 0; query < data.examples[0].queries; query++) {
    const button = make("button", { type: "button", textContent: query, ariaLabel: `Query ${query}` });
    button.addEventListener("click", () => show(view, { query }));
    parts.queries.append(button);
  }
  for (const example of data.examples) {
    const button = make("button", { type: "button", textContent: example.name });
    button.addEventListener("click", by(() => ({ example })));
    parts.examples.append(button);
  }
  parts.choice.hidden = data.examples.length < 2;
  frame.addEventListener("keydown", (event) => pressed(view, event));
  box.replaceChildren(frame);
  show(view, {}, "page");
}

export const start = fromData({
  checked, build,
  fails: "The step-through cannot be played",
  instead: "Its numbers are in the table below.",
});
