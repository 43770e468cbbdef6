/* A reader's kernel in the scene "the kernel at work": what the interpreter saw of one program, in the form of a
   recording (widgets/scene.js). The launch is the one that the page's own scene was recorded with, and a kernel can
   be followed as long as its variables are called as on the page. */
import { tokens } from "./engine/lexer.js";

const SOFTMAX = { start: "start", scores: "scores", m: "m_i", alpha: "alpha", p: "p", l: "l_i", acc: "acc" };
const PARTS = ["m_new", "v_tile"]; // what begins the second and the third part of an iteration
const BYTES = { float64: 8, float32: 4, float16: 2, bfloat16: 2 };
const ASSIGNS = /^(?:[-+*/%&|^@]|\/\/|\*\*|<<|>>)?=$/;

/* The lines of code of a kernel's body, without comments, and its statements, as a listing shows them. */
export function listingOf(source, kernel) {
  const statements = [];
  const ends = new Map(); // line → where its last token ends
  let now;
  for (const { kind, text, line, column } of tokens(source)) {
    if (kind === "newline") now = undefined;
    if (["newline", "indent", "dedent", "end"].includes(kind)) continue;
    if (!now) statements.push(now = { first: line, indent: column, tokens: [] });
    now.last = line + text.split("\n").length - 1;
    now.tokens.push({ kind, text });
    for (let at = line; at < now.last; at += 1) ends.set(at, Infinity);
    ends.set(now.last, (now.last === line ? column : 0) + text.split("\n").at(-1).length);
  }
  const head = statements.findIndex(({ tokens: [def, name] }) => def.text === "def" && name?.text === kernel);
  if (head < 0) throw new Error(`There is no kernel ${kernel}.`);
  const body = statements.slice(head + 1);
  const after = body.findIndex(({ indent }) => indent <= statements[head].indent);
  if (after >= 0) body.length = after;
  if (body[0]?.tokens[0].kind === "string" && body[0].tokens.length === 1) body.shift(); // its docstring
  const text = source.split("\n");
  const shown = new Map(); // line of the source → place in the listing
  const lines = [];
  for (const { first, last } of body) {
    for (let line = first; line <= last; line += 1) {
      const code = text[line - 1].slice(body[0].indent, ends.get(line)).trimEnd();
      if (!ends.has(line) || !code) continue;
      shown.set(line, lines.length);
      lines.push(code);
    }
  }
  for (const one of body) one.lines = [shown.get(one.first), shown.get(one.last)];
  return { lines, statements: body, at: (line) => body.find(({ first, last }) => first <= line && line <= last) };
}

const isLoop = ({ tokens: [first] }) => first.text === "for";

function assigned({ tokens: all }) {
  const end = all.findIndex(({ kind, text }) => kind === "op" && ASSIGNS.test(text));
  return all.slice(0, Math.max(end, 0)).filter(({ kind }) => kind === "name").map(({ text }) => text);
}

/* The variables each time the head of a loop is reached: before its first trip, between trips, after the last; with
   the statements and the accesses since the time before. The last one is the end of the program. */
function turnsOf({ steps, accesses }, listing, args) {
  const held = new Map(Object.entries(args).map(([name, value]) => [name, value?.value ?? value]));
  const within = []; // loops that the program is in, the innermost last
  const turns = [];
  let ran = [];
  let entering = false;
  let from = steps.find((step) => step.ran)?.accesses ?? 0;
  const mine = accesses[from]?.program; // others come after it
  const reach = (loop, to) => {
    const touched = accesses.slice(from, to).filter(({ program }) => program === mine);
    turns.push({ loop, values: new Map(held), ran, accesses: touched });
    [ran, from] = [loop ? [loop] : [], to];
  };
  const isIn = (statement, loop) => statement.indent > loop.indent && statement.first > loop.first;
  for (const step of steps) {
    const statement = listing.at(step.line);
    if (step.ran && statement) {
      while (within.length && !isIn(statement, within.at(-1))) reach(within.pop(), step.accesses);
      if (isLoop(statement)) {
        reach(statement, step.accesses);
        within.push(statement);
        entering = true;
      } else ran.push(statement);
    } else if (step.loop) {
      if (!entering) reach(within.at(-1), step.accesses);
      entering = false;
      held.set(step.loop.variable, step.loop.value);
    } else if (step.variable) held.set(step.variable, step.value);
  }
  while (within.length) reach(within.pop(), accesses.length);
  reach(undefined, accesses.length);
  return turns;
}

const once = (statements) => [...new Set(statements)].map(({ lines }) => lines);

/* Statements, cut before the first that assigns each of PARTS. */
function partsOf(statements) {
  const found = [[]];
  for (const one of new Set(statements)) {
    if (found.length <= PARTS.length && assigned(one).includes(PARTS[found.length - 1])) found.push([]);
    found.at(-1).push(one.lines);
  }
  while (found.length <= PARTS.length) found.push([]);
  return found;
}

const finite = (x) => (x === -Infinity ? null : x);

/* A variable's numbers, in rows where it has two axes. Says what is missing, or has another shape. */
function read({ values }, name, shape, what = (x) => x) {
  const value = values.get(name);
  if (value === undefined) throw new Error(`The scene follows the variable ${name}, which this kernel never sets.`);
  if (!shape.length) return finite(what(Number(value.data ? value.data[0] : value)));
  const here = value.shape ?? [];
  if (here.join() !== shape.join()) {
    throw new Error(`The scene expects ${name} as a tile of ${shape.join(" × ")}; here it has ${here.join(" × ") || "no"} numbers.`);
  }
  const all = Array.from(value.data, (x) => finite(what(x)));
  if (shape.length === 1) return all;
  return Array.from({ length: shape[0] }, (_, row) => all.slice(row * shape[1], (row + 1) * shape[1]));
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

function bytesOf(accesses, kind, tensor, problem) {
  const { dtype } = problem.storages.find(({ name }) => name === tensor);
  const mine = accesses.filter((access) => access.kind === kind && access.tensor === tensor);
  return BYTES[dtype] * sum(mine.map(({ offsets }) => offsets.filter((at) => at >= 0).length));
}

/* What each key would weigh if a tile were the last. */
function shares(tiles, e) {
  let weights = Array.from({ length: e.queries }, () => Array.from({ length: e.keys }, () => 0));
  for (const tile of tiles) {
    weights = weights.map((row, n) => row.map((x, key) => {
      const j = key - tile.start;
      return j >= 0 && j < e.tile ? tile.p[n][j] : x * tile.alpha[n];
    }));
    tile.share = weights.map((row, n) => row.map((x) => x / (tile.l[n] || 1)));
  }
}

/* A running softmax: see widgets/scene.js for the fields. e: the page's own example. */
function running(turns, e, { names, problem }) {
  const name = { ...SOFTMAX, ...names };
  const first = turns[0];
  const scale = name.scale ? read(first, name.scale, []) : 1;
  const [rows, wide] = [[e.queries], e.result[0].length];
  const columns = first.values.get(name.acc)?.shape?.[1] ?? wide;
  const acc = (turn) => read(turn, name.acc, [e.queries, columns]).map((row) => row.slice(0, e.columns));
  const tiles = [];
  for (let at = 1; at < turns.length; at += 1) {
    const [before, after] = [turns[at - 1], turns[at]];
    const start = after.values.get(name.start);
    if (!before.loop || start === undefined || start === before.values.get(name.start)) continue;
    tiles.push({
      start,
      scores: read(after, name.scores, [e.queries, e.tile], (x) => Math.fround(x * scale)),
      p: read(after, name.p, [e.queries, e.tile]),
      alpha: read(after, name.alpha, rows),
      m_before: read(before, name.m, rows), m: read(after, name.m, rows),
      l_before: read(before, name.l, rows), l: read(after, name.l, rows),
      acc_before: acc(before), acc: acc(after),
      lines: partsOf(after.ran),
      bytes: { k: bytesOf(after.accesses, "load", "k", problem), v: bytesOf(after.accesses, "load", "v", problem) },
      ...(name.masked_from && { masked: start >= read(first, name.masked_from, []) }),
    });
  }
  if (!tiles.length) throw new Error("The scene follows a loop over tiles of keys, and here it makes no trip.");
  shares(tiles, e);
  return { tiles };
}

/* One query and a row of scores: a loop over the keys, the softmax, a loop over the values. */
function oneRow(turns, e, { problem }) {
  const [scoring, adding] = [...new Set(turns.map(({ loop }) => loop))].filter(Boolean);
  if (!adding) throw new Error("The scene follows two loops over the keys, one for scores and one for values.");
  const [, ...scored] = turns.filter(({ loop }) => loop === scoring);
  const [softmax, ...added] = turns.filter(({ loop }) => loop === adding);
  if (scored.length !== e.keys.length || added.length !== e.keys.length) {
    throw new Error(`The scene expects ${e.keys.length} trips of both loops; here they make ${scored.length} and ${added.length}.`);
  }
  const columns = softmax.values.get("acc")?.shape?.[0] ?? e.result.length;
  const keys = scored.map((one, n) => ({
    score: read(one, "score", []), weight: read(added[n], "weight", []),
    acc: read(added[n], "acc", [columns]).slice(0, e.result.length),
    lines: [once(one.ran), once(added[n].ran)],
    bytes: { k: bytesOf(one.accesses, "load", "k", problem), v: bytesOf(added[n].accesses, "load", "v", problem) },
  }));
  const weights = read(softmax, "weights", [e.weights.length]);
  if (![...weights, ...keys.flatMap(({ score, weight, acc }) => [score, weight, ...acc])].every(Number.isFinite)) {
    throw new Error("The scene draws numbers, and some here are NaN or infinite.");
  }
  return { keys, weights, softmax: once(softmax.ran) };
}

/* One example of the page's scene, with what another text of its kernel does there.
   result: of a run of that text on launch.problem, with trace, and the variables and lines of launch.program. */
export function exampleOf(result, listing, e, launch) {
  if (result.error) throw new Error(`Line ${result.error.line}: ${result.error.message}`);
  const turns = turnsOf(result, listing, launch.problem.launches[0].args);
  if (turns.length < 2) throw new Error("The scene follows a loop over the keys, and this kernel has none.");
  const isRow = "query" in e;
  const mine = isRow ? oneRow(turns, e, launch) : running(turns, e, launch);
  const [out] = result.outputs;
  const wide = out.shape.at(-1);
  const row = (n) => Array.from(out.got.slice(n * wide, n * wide + (isRow ? e.result.length : e.columns)));
  const last = turns.at(-1);
  const moved = turns.flatMap(({ accesses }) => accesses);
  return {
    ...e, ...mine,
    begin: once(turns[0].ran), end: once(last.ran),
    bytes: { q: bytesOf(moved, "load", "q", launch.problem), out: bytesOf(moved, "store", "out", launch.problem) },
    result: isRow ? row(e.query) : Array.from({ length: e.queries }, (_, n) => row(n)),
  };
}

/* The page's recording with another text in its place. run(problem, options): a promise of a result. */
export async function recordingOf({ source, kernel, page, launches, run }) {
  const listing = listingOf(source, kernel);
  const examples = [];
  for (const e of page.examples) {
    const launch = launches[e.name];
    const { program, problem } = launch;
    const options = { trace: true, variables: { program, lines: true }, leastK: 1 };
    const result = await run({ ...problem, name: e.name, title: e.name }, options);
    examples.push(exampleOf(result, listing, e, launch));
  }
  return { source: page.source, listing: listing.lines, examples };
}
