/* Race your edit: the least time that a reader's text of a kernel can take on a GPU that was measured, among the times
   of the published kernels. One program is run with the launch of the measured case, and what it does is counted as
   often as there are programs. It is a bound and no time: each tensor crosses from memory once, and arithmetic runs
   at the rate of the fastest unit that could do it: a point on the measured roofline. */
import { make, shape } from "../site/dom.js";

const [WIDTH, HEIGHT] = [360, 220];
const [LEFT, RIGHT, TOP, BOTTOM] = [1, 20_000, 2e15, 1e11]; // FLOPs a byte, FLOP/s

const digits = (value) => Number(value.toPrecision(3)).toLocaleString("en-US");
function scaled(value, unit) {
  const [size, prefix] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]].find(([least]) => value >= least) ?? [1, ""];
  return `${digits(value / size)}\u00a0${prefix}${unit}`;
}
const time = (ms) => (ms < 1 ? `${digits(ms * 1e3)}\u00a0µs` : `${digits(ms)}\u00a0ms`);

const calls = (source, name) => source.replaceAll(/#.*/g, "").includes(`tl.${name}(`);

/* The launch's arguments, with memory of their own: what it holds does not matter, but nothing may be NaN. */
const given = (args) => Object.fromEntries(Object.entries(args).map(([name, value]) => {
  const held = (place) => ({
    ...place, name, dtype: "float16", data: new Float32Array(place.shape.reduce((a, b) => a * b)).fill(1),
  });
  if (value?.descriptor) return [name, { ...value, descriptor: held(value.descriptor) }];
  return [name, value?.strides ? held(value) : value];
}));

/* {loaded, flops, floors: [{by, ms, words}]}, the floor that binds first. */
export function boundOf({ counts, programs, product }, { bytes }, { read, ...rates }) {
  const [loaded, flops] = [counts.bytesLoaded, counts.flops].map((count) => count * programs);
  const rate = product ? rates.matmul_float16 : rates.fma_float32;
  const floors = [
    { by: "memory", ms: (bytes / read) * 1e3, words: `${scaled(bytes, "B")} at ${scaled(read, "B/s")}` },
    { by: "arithmetic", ms: (flops / rate) * 1e3, words: `${scaled(flops, "FLOP")} at ${scaled(rate, "FLOP/s")}` },
  ];
  return { loaded, flops, floors: floors.sort((a, b) => b.ms - a.ms) };
}

/* What a card can do at most, the reader's kernel on that roof, and below it those that were measured. */
function roofline({ flops, floors: [{ ms }] }, { bytes, heads, N, D }, { name, times, ceilings: { read, matmul_float16: dot, fma_float32: fma } }) {
  const x = (intensity) => 8 + ((WIDTH - 16) * Math.log(intensity / LEFT)) / Math.log(RIGHT / LEFT);
  const y = (rate) => HEIGHT - 22 - ((HEIGHT - 30) * Math.log(rate / BOTTOM)) / Math.log(TOP / BOTTOM);
  const at = (intensity, rate) => ({ cx: x(intensity), cy: y(rate), r: 5 });
  const roof = (rate) => `${x(LEFT)},${y(read * LEFT)} ${x(rate / read)},${y(rate)} ${x(RIGHT)},${y(rate)}`;
  const useful = 4 * heads * N * N * D;
  const svg = shape("svg", { class: "am-roof", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", `Roofline of the ${name}: yours is at ${digits(flops / bytes)} FLOPs a byte and at most ${scaled((flops / ms) * 1e3, "FLOP/s")}`);
  svg.append(
    ...[dot, fma].map((rate) => shape("polyline", { points: roof(rate) })),
    ...[["tl.dot", dot], ["float32", fma]].map(([what, rate]) => shape("text", { x: x(RIGHT), y: y(rate) - 6, "text-anchor": "end" }, `${what}: ${scaled(rate, "FLOP/s")}`)),
    shape("text", { x: x(2), y: y(read * 2) + 16 }, `memory: ${scaled(read, "B/s")}`),
    shape("text", { x: x(LEFT), y: 14 }, "FLOP/s ↑"),
    shape("text", { x: x(RIGHT), y: HEIGHT - 4, "text-anchor": "end" }, "FLOPs for each byte of memory →"),
    ...times.map(([kernel, taken]) => {
      const ghost = shape("circle", at(useful / bytes, (useful / taken) * 1e3));
      ghost.append(shape("title", {}, `${kernel}, measured: ${scaled((useful / taken) * 1e3, "FLOP/s")}`));
      return ghost;
    }),
    shape("circle", { class: "am-roof-own", ...at(flops / bytes, (flops / ms) * 1e3) }),
  );
  return svg;
}

/* source: of the reader; page: of the page's kernel. launch(source, kernel, task): a promise of a result. */
export async function race({ source, page, kernel, races, launch }) {
  const { case: problem, cards, launches } = races;
  const { grid, args } = launches[kernel];
  const programs = grid.reduce((a, b) => a * b);
  async function counted(text) {
    if (calls(text, "num_programs")) throw new Error("Programs that share their work by their number cannot be counted one by one.");
    const { error, counts } = await launch(text, kernel, { grid: [1, 1, 1], args: given(args) });
    if (error) throw new Error(`Line ${error.line}: ${error.message}`);
    return { counts: counts.perProgram, programs, product: calls(text, "dot") };
  }
  const mine = await counted(source);
  const theirs = source === page ? undefined : await counted(page);
  const choice = make("select", {}, ...cards.map(({ name }) => new Option(name)));
  const place = make("div");

  function show() {
    const card = cards[choice.selectedIndex];
    const bound = boundOf(mine, problem, card.ceilings);
    const { floors: [first, second], loaded, flops } = bound;
    const rows = [
      ["yours, at best", first.ms, "am-race-own"],
      ...(theirs ? [["the page’s, at best", boundOf(theirs, problem, card.ceilings).floors[0].ms, "am-race-bound"]] : []),
      ...card.times.map(([name, ms]) => [name, ms, ""]),
    ].sort((a, b) => a[1] - b[1]);
    const list = make("ol", { className: "am-race" }, ...rows.map(([name, ms, className]) => (
      make("li", { className }, make("span", { textContent: name }), make("div", { textContent: `${className ? "≥ " : ""}${time(ms)}` })))));
    const { heads, N, D, dtype } = problem;
    place.replaceChildren(
      make("p", {}, make("strong", { textContent: `At best ${first.by}: ${first.words} = ${time(first.ms)}` }),
        `; ${second.by} alone would allow ${time(second.ms)}. Your programs load ${scaled(loaded, "B")}, `
        + `${digits(loaded / problem.bytes)} times what has to cross: caches serve the rest, or it takes longer.`),
      make("div", { className: "am-roof-list" }, roofline(bound, problem, card), list),
      make("p", { className: "am-play-help", textContent: `A lower bound and not a time: nothing here was timed but the other `
        + `kernels, on the ${card.name}, as were its ceilings. ${heads} heads of ${N.toLocaleString("en-US")} queries and keys, D ${D}, `
        + `${dtype}: the first of ${programs.toLocaleString("en-US")} programs was run and counted, for all of them, `
        + `${scaled(flops, "FLOP")} in one launch. Filled: yours, on its roof. Rings: those that were measured, by the work that attention needs.` }),
    );
  }
  choice.addEventListener("change", show);
  show();
  return make("div", {}, make("label", {}, "GPU ", choice), place);
}
