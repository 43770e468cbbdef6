/* The script of a running softmax: a block of queries meets keys and values tile by tile.
   A tile takes three steps: its scores, the correction of what was collected, the addition. */
import { bracketed, list, many, number } from "./numbers.js";

const PHASES = ["scores", "rescale", "add"];
const CHANGED = { start: [], scores: ["scores", "m"], rescale: ["alpha", "l", "acc"], add: ["p", "l", "acc"], end: ["acc"] };

const isGrid = (rows, height, width) => Array.isArray(rows) && rows.length === height
  && rows.every((row) => Array.isArray(row) && row.length === width);
const NAMES = ["m", "m_before", "alpha", "l", "l_before"];

export function isRunning(e) {
  return e.queries > 0 && e.tile > 0 && e.tiles?.length > 0
    && isGrid(e.result, e.queries, e.columns) && isGrid(e.q, e.queries, e.columns)
    && isGrid(e.k, e.keys, e.columns) && isGrid(e.v, e.keys, e.columns)
    && e.tiles.every((t) => isGrid(t.scores, e.queries, e.tile) && isGrid(t.p, e.queries, e.tile)
      && isGrid(t.acc, e.queries, e.columns) && isGrid(t.acc_before, e.queries, e.columns)
      && isGrid(t.share, e.queries, e.keys) && Number.isInteger(t.start)
      && NAMES.every((name) => t[name]?.length === e.queries) && t.lines?.length === PHASES.length);
}

/* m, l and acc of every query after a step; α where it is known. */
function stateOf(e, phase, tile) {
  const of = (what) => Array.from({ length: e.queries }, (_, n) => what(n));
  const scaled = (n) => tile.acc_before[n].map((x) => x * tile.alpha[n]);
  const before = { m: tile.m_before, l: tile.l_before, acc: tile.acc_before };
  const after = { m: tile.m, l: tile.l, acc: tile.acc, alpha: tile.alpha };
  return {
    start: before,
    scores: { ...before, m: tile.m },
    rescale: { m: tile.m, alpha: tile.alpha, l: of((n) => tile.l_before[n] * tile.alpha[n]), acc: of(scaled) },
    add: after,
    end: { m: tile.m, l: tile.l, acc: e.result },
  }[phase];
}

/* What each key weighs for a query after a step, relative to its m: Σ is l. */
function weightsOf(e, phase, index) {
  const tile = e.tiles[Math.max(0, Math.min(index, e.tiles.length - 1))];
  const before = e.tiles[index - 1];
  const worth = (of, factor) => of.share.map((row, n) => row.map((x) => x * factor(n)));
  if (phase === "end" || phase === "add") return worth(tile, (n) => tile.l[n]);
  if (!before) return tile.share.map((row) => row.map(() => 0));
  if (phase === "rescale") return worth(before, (n) => before.l[n] * tile.alpha[n]);
  return worth(before, (n) => before.l[n]);
}

function formulaOf(phase, exp) {
  return {
    start: "m = −∞, l = 0, acc = 0",
    scores: "m′ = max(m, largest score of the tile)",
    rescale: `α = ${exp}(m − m′), l ← α · l, acc ← α · acc`,
    add: `p = ${exp}(score − m′), l ← l + Σ p, acc ← acc + Σ p · v`,
    end: "out = acc ÷ l",
  }[phase];
}

function wordsOf(e, { phase, tile, index }, query) {
  const exp = e.base === "2" ? "exp2" : "exp";
  const [before, after, alpha] = [tile.m_before[query], tile.m[query], tile.alpha[query]];
  const end = Math.min(tile.start + e.tile, e.keys);
  const keys = end - tile.start > 1 ? `keys ${tile.start} to ${end - 1}` : `key ${tile.start}`;
  const here = `Tile ${index + 1} of ${e.tiles.length}, ${keys}, query ${query}. `;
  const loop = { true: "It needs a mask. ", false: "It needs no mask. " }[tile.masked] ?? "";
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
    return `${here}New maximum: everything so far is multiplied by α = ${exp}(${number(before)} − ${bracketed(after)}) = `
      + `${number(alpha)}. l shrinks from ${number(tile.l_before[query])} to ${number(tile.l_before[query] * alpha)}, `
      + "acc by the same factor.";
  }
  if (phase === "add") {
    const sum = tile.p[query].reduce((a, b) => a + b, 0);
    const weights = tile.p[query].slice(0, scores.length);
    return `${here}Relative to m the keys weigh ${list(weights)}. Their sum ${number(sum)} goes into l, which is now `
      + `${number(tile.l[query])}; their values, weighted like that, go into acc.`;
  }
  if (!tile.l[query]) return `No key is visible to query ${query}: l is 0, and the result is 0 by agreement.`;
  const skipped = Math.ceil(e.keys / e.tile) - e.tiles.length;
  const tiles = skipped === 1 ? "a tile is" : `${skipped} tiles are`;
  const rest = skipped > 0 ? `No query here sees what follows, so ${tiles} skipped. ` : "";
  return `${rest}acc is divided by l = ${number(tile.l[query])}, once: ${list(e.result[query])}. `
    + "These are the numbers that the kernel stored.";
}

function tablesOf(e, { phase, tile, index, state }) {
  const inTile = index >= 0 && phase !== "end";
  const changed = (name) => CHANGED[phase].includes(name);
  const columns = Array.from({ length: e.tile }, (_, j) => tile.start + j);
  const shown = phase === "add" ? "p" : "scores";
  const rows = (cellsOf) => state.m.map((_, n) => ({ head: n, cells: cellsOf(n) }));
  const tileCells = (n) => columns.map((key, j) => {
    if (!inTile || key >= e.keys) return { text: "", kind: "none" };
    if (tile.scores[n][j] === null) return { text: "–", kind: "hidden", label: "hidden" };
    return { text: number(tile[shown][n][j]), kind: "score", level: tile.p[n][j], changed: changed(shown) };
  });
  const every = [...e.tiles.flatMap((t) => t.acc.flat()), ...e.result.flat()];
  const largest = Math.max(...every.map(Math.abs)) || 1;
  return [
    {
      caption: phase === "add" ? "Weights p" : "Scores of the tile",
      heads: ["query", ...columns.map((key) => (inTile && key < e.keys ? `k${key}` : "·"))],
      body: rows(tileCells),
    },
    {
      caption: "So far",
      heads: ["query", "m", "α", "l"],
      body: rows((n) => [
        { text: number(state.m[n]), changed: changed("m") },
        { text: state.alpha ? number(state.alpha[n]) : "", changed: changed("alpha") },
        { text: number(state.l[n]), changed: changed("l") },
      ]),
    },
    {
      caption: phase === "end" ? "Output" : "Accumulator",
      heads: ["query", ...e.result[0].map((_, d) => `d${d}`)],
      body: rows((n) => state.acc[n].map((x) => ({
        text: number(x), kind: "acc", minus: x < 0, level: Math.abs(x) / largest, changed: changed("acc"),
      }))),
    },
  ];
}

/* Steps of the scene; see scene.js for what a step is. */
export function runningScript(e) {
  const last = e.tiles.length - 1;
  const exp = e.base === "2" ? "exp2" : "exp";
  let read = 0;
  const step = (phase, index) => {
    const tile = e.tiles[Math.max(0, Math.min(index, last))];
    const scene = { phase, tile, index, state: stateOf(e, phase, tile) };
    const moves = {
      start: [{ what: "q", bytes: e.bytes.q }],
      scores: [{ what: "k", bytes: tile.bytes?.k }],
      add: [{ what: "v", bytes: tile.bytes?.v }],
      end: [{ what: "out", bytes: e.bytes.out, out: true }],
    }[phase] ?? [];
    for (const move of moves) if (!move.out) read += move.bytes;
    const lines = { start: e.begin, end: e.end }[phase] ?? tile.lines[PHASES.indexOf(phase)];
    const name = { start: "start", end: "division" }[phase] ?? `tile ${index + 1}, ${phase}`;
    const hidden = tile.scores.map((row) => row.map((s) => s === null));
    return {
      phase, name, moves, lines, read, written: phase === "end" ? e.bytes.out : 0,
      keys: index < 0 || phase === "end" ? null : [tile.start, Math.min(tile.start + e.tile, e.keys)],
      scores: tile.scores, p: tile.p, hidden, state: scene.state, weights: weightsOf(e, phase, index),
      formula: formulaOf(phase, exp),
      words: (query) => wordsOf(e, scene, query),
      tables: () => tablesOf(e, scene),
    };
  };
  const steps = [step("start", -1)];
  e.tiles.forEach((_, index) => steps.push(...PHASES.map((phase) => step(phase, index))));
  steps.push(step("end", last + 1));
  return {
    kind: "running", steps, name: e.name, through: e.through,
    M: e.all_queries, N: e.keys, D: e.columns, first: 0, block: e.queries, width: e.tile,
    q: e.q, k: e.k, v: e.v, collected: ["m", "l"], kept: "acc",
    about: `${many(e.queries, "query", "queries")} of ${e.all_queries}, ${e.keys} keys in tiles of ${e.tile}`,
  };
}
