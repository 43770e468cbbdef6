/* The script of a kernel with one program for each query: all scores, then the softmax, then all values.
   The row of scores stays on the chip from the first key to the last. */
import { list, number } from "./numbers.js";

const isRow = (row, width) => Array.isArray(row) && row.length === width;

export function isOneRow(e) {
  return Number.isInteger(e.query) && e.keys?.length > 0 && isRow(e.q, e.result?.length)
    && e.weights?.length >= e.keys.length && e.k?.length === e.keys.length && e.v?.length === e.keys.length
    && e.keys.every((key) => Number.isFinite(key.score) && Number.isFinite(key.weight)
      && isRow(key.acc, e.result.length) && key.lines?.length === 2);
}

function wordsOf(e, phase, index, m, l) {
  const key = e.keys[index];
  const n = e.keys.length;
  const slots = e.weights.length;
  if (phase === "start") {
    const spare = slots > n ? `: ${slots - n} of them stay empty` : "";
    return `One program has one query, number ${e.query}. It loads its row, and keeps ${slots} slots for scores, a power `
      + `of two${spare}.`;
  }
  if (phase === "score") {
    return `Key ${index} of ${n}: its row is loaded, multiplied with the query's and summed. The score ${number(key.score)} `
      + `goes into slot ${index}.`;
  }
  if (phase === "softmax") {
    return `All ${n} scores are there. The largest, m = ${number(m)}, is subtracted, each becomes its exponential, and all are `
      + `divided by their sum, l = ${number(l)}. Nothing has to be corrected, for nothing was added before.`;
  }
  if (phase === "value") {
    return `Value ${index} of ${n}: its row is loaded, and ${number(key.weight)} times it is added. `
      + `The sums are now ${list(key.acc)}.`;
  }
  return `The row is stored: ${list(e.result)}. Every key and value was read once, by this program alone; `
    + `the other ${e.all_queries - 1} programs read them all again.`;
}

const FORMULAS = {
  start: "q = load row of the query",
  score: "score[n] = Σ q · k · scale",
  softmax: "weights = exp(score − m) ÷ l",
  value: "acc ← acc + weight · v",
  end: "out = acc",
};

function tablesOf(e, phase, index, state) {
  const key = e.keys[index];
  const cell = (x, css = {}) => ({ text: x === undefined ? "" : number(x), ...css });
  const largest = Math.max(...e.keys.flatMap((one) => one.acc.map(Math.abs))) || 1;
  return [
    {
      caption: "This key", heads: ["query", "key", "score", "weight"],
      body: [{ head: e.query, cells: [
        { text: key ? String(index) : "" }, cell(key?.score, { kind: "score", changed: phase === "score" }),
        cell(phase === "value" ? key.weight : undefined, { kind: "score", level: key?.weight, changed: phase === "value" }),
      ] }],
    },
    {
      caption: phase === "end" ? "Output" : "Accumulator", heads: ["query", ...e.result.map((_, d) => `d${d}`)],
      body: [{ head: e.query, cells: state.acc[0].map((x) => ({
        text: number(x), kind: "acc", minus: x < 0, level: Math.abs(x) / largest, changed: phase === "value",
      })) }],
    },
  ];
}

/* Steps of the scene; see scene.js for what a step is. */
export function rowScript(e) {
  const n = e.keys.length;
  const scores = e.keys.map((key) => key.score);
  const largest = Math.max(...scores);
  const sum = scores.reduce((all, s) => all + Math.exp(s - largest), 0);
  const zeros = e.result.map(() => 0);
  let read = 0;
  const step = (phase, index) => {
    const upTo = phase === "score" ? index + 1 : phase === "start" ? 0 : n;
    const done = ["softmax", "value", "end"].includes(phase);
    const acc = phase === "value" ? e.keys[index].acc : phase === "end" ? e.result : zeros;
    const state = { m: [done ? largest : undefined], l: [done ? sum : undefined], acc: [acc] };
    const moves = {
      start: [{ what: "q", bytes: e.bytes.q }],
      score: [{ what: "k", bytes: e.keys[index]?.bytes.k }],
      value: [{ what: "v", bytes: e.keys[index]?.bytes.v }],
      end: [{ what: "out", bytes: e.bytes.out, out: true }],
    }[phase] ?? [];
    for (const move of moves) if (!move.out) read += move.bytes;
    const one = phase === "score" || phase === "value";
    return {
      phase, moves, read, state, written: phase === "end" ? e.bytes.out : 0,
      name: { start: "query", softmax: "softmax", end: "store" }[phase] ?? `key ${index}, ${phase}`,
      lines: { start: e.begin, softmax: e.softmax, end: e.end }[phase] ?? e.keys[index].lines[phase === "score" ? 0 : 1],
      keys: one ? [index, index + 1] : null,
      scores: [scores.map((s, i) => (i < upTo ? s : undefined))],
      hidden: [scores.map(() => false)],
      weights: [e.keys.map((key) => (done ? key.weight : 0))],
      formula: FORMULAS[phase],
      words: () => wordsOf(e, phase, index, largest, sum),
      tables: () => tablesOf(e, phase, index, state),
    };
  };
  return {
    kind: "row", name: e.name, through: e.through,
    steps: [
      step("start"), ...e.keys.map((_, i) => step("score", i)), step("softmax"),
      ...e.keys.map((_, i) => step("value", i)), step("end"),
    ],
    M: e.all_queries, N: n, D: e.result.length, first: e.query, block: 1, width: 1,
    q: [e.q], k: e.k, v: e.v, collected: ["m", "l"], kept: "acc",
    about: `one query of ${e.all_queries}, ${n} keys one by one`,
  };
}
