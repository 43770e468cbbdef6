/* The script of a kernel whose parts work side by side: one that loads, two that compute, and the units that they
   share. A step is a moment at which something begins or ends. */
import { bytes, many } from "./numbers.js";

const SAID = { scores: "q·kᵀ", values: "p·v", softmax: "softmax" };
const QUERIES = 16; // that a row of the picture stands for
const KEYS = 32; // that a column stands for
const PLAIN = 0.08; // how large a square is that is no number

export function isOfRoles(e) {
  return e.spans?.length > 0 && e.stays?.length > 0 && e.fetches?.length > 0 && Array.isArray(e.sends)
    && e.consumers > 0 && e.keys % e.tile === 0 && e.spans.every((s) => s.end > s.start);
}

/* What lies in each buffer of shared memory, and when: {name, kind, tile, from, full, freed}. */
function buffersOf(e) {
  const seen = {};
  return e.fetches.flatMap(({ fetched, start, bytes: size }) => {
    const [kind, index] = [fetched[0], Number(fetched.match(/\d+/)[0])];
    seen[kind] = (seen[kind] ?? -1) + 1;
    const nth = seen[kind]; // of its kind: as the copies of it are numbered
    const copy = e.spans.find((s) => s.part === "copies" && s.kind === kind && s.tile === nth);
    if (!copy) return []; // trouble came before it began
    const readers = kind === "q" ? 1 : e.consumers;
    const turn = kind === "q" ? 0 : Math.floor(nth / e.stages);
    const freed = e.sends.filter((s) => s.sent_to === `${kind}.empty[${index}]`)
      .slice(turn * readers, (turn + 1) * readers).map((s) => s.time);
    return [{
      name: fetched, kind, index, tile: nth, start, size, from: copy.start, full: copy.end,
      freed: freed.length === readers ? Math.max(...freed) : Infinity,
    }];
  });
}

const listed = (all) => all.join(", ").replace(/, (?=[^,]*$)/, " and ");

function wordsOf(e, time, last) {
  const told = (spans) => spans.filter((s) => s.part !== "producer" && s.kind !== "out").map((s) => (
    s.part === "copies" ? `the copy of ${s.kind} ${s.tile}` : `${SAID[s.kind]} of tile ${s.tile} for ${s.part}`
  ));
  const begins = e.spans.filter((s) => s.start === time);
  const done = told(e.spans.filter((s) => s.end === time));
  const begun = told(begins);
  const waits = [...new Set(e.stays.filter((s) => s.since <= time && time < s.works_from).map((s) => s.stays))];
  const said = [`Cycle ${time}.`];
  if (done.length) said.push(`Done: ${listed(done)}.`);
  if (begun.length) said.push(`Begun: ${listed(begun)}.`);
  if (begins.some((s) => s.kind === "out")) said.push("A consumer divides by l, and TMA stores its rows.");
  if (waits.length) said.push(`Waiting: ${listed(waits)}.`);
  if (time === last) said.push(e.ends || "All rows are stored.");
  return said.join(" ");
}

function tablesOf(e, time) {
  const parts = ["copies", "producer", ...Array.from({ length: e.consumers }, (_, i) => `consumer ${i}`)];
  const now = (test) => e.spans.filter((s) => s.start <= time && time < s.end && test(s));
  const say = (spans) => spans.map((s) => `${SAID[s.kind] ?? s.kind} ${s.tile}`).join(", ") || "–";
  const products = ["scores", "values"];
  return [{
    caption: `From cycle ${time} on`,
    heads: ["who", "tensor cores", "own work"],
    body: parts.map((part) => ({ head: part === "copies" ? "TMA" : part, cells: [
      { text: say(now((s) => s.part === part && products.includes(s.kind))) },
      { text: say(now((s) => s.part === part && !products.includes(s.kind))) },
    ] })),
  }];
}

/* Steps of the scene; see scene.js for what a step is. `at` is the moment that it ends at. */
export function rolesScript(e) {
  const times = [...new Set(e.spans.flatMap((s) => [s.start, s.end]))].sort((a, b) => a - b);
  const last = times.at(-1);
  const buffers = buffersOf(e);
  const [M, N, D] = [e.queries / QUERIES, e.keys / KEYS, e.D / KEYS];
  const plain = (rows, columns) => Array.from({ length: rows }, () => Array(columns).fill(PLAIN));
  const steps = times.map((time) => {
    const stays = e.stays.filter((s) => s.since <= time && time < s.until);
    return {
      phase: "time", name: `cycle ${time}`, at: time, moves: [], keys: null,
      lines: stays.map((s) => s.lines),
      who: stays.map((s) => ({ lines: s.lines, part: s.stays, waits: time < s.works_from })),
      formula: stays.map((s) => `${s.stays} ${time < s.works_from ? "waits" : "works"}`).join(" · ") || "\u00a0",
      words: () => wordsOf(e, time, last),
      tables: () => tablesOf(e, time),
    };
  });
  return {
    kind: "roles", name: e.name, steps, M, N, D, first: 0, block: 1, width: e.tile / KEYS,
    q: plain(M, D), k: plain(N, D), v: plain(N, D), collected: ["m", "l"], kept: "acc", strip: 10.4,
    example: e, buffers, dense: true, pace: e.pace,
    perConsumer: M / e.consumers, columnOf: (start) => start / KEYS,
    read: (time) => bytes(buffers.filter((b) => b.full <= time).reduce((sum, b) => sum + b.size, 0)),
    about: `${many(e.consumers, "consumer")} of ${e.queries / e.consumers} queries and a producer; `
      + `a square stands for ${QUERIES} × ${KEYS} scores`,
  };
}
