/* The interpreter of the kernel language: what a kernel says about itself, and what it does.

   It states what it is not: it knows no time, no race between programs, and no rounding of tensor cores. */
import { File, isConstexpr } from "./compile.js";
import { KernelError } from "./errors.js";
import { parseFile } from "./parser.js";
import { launch } from "./launch.js";

const LONGEST = 300_000; // characters of a source

const LIMITS = { maxSteps: 1e8, maxMilliseconds: 3000 };

function read(source) {
  if (source.length > LONGEST) {
    throw new KernelError(`the text has ${source.length} characters; at most ${LONGEST} are read`, "limit", 1);
  }
  return parseFile(source);
}

/* An exception as what the page shows; one that is no KernelError is a mistake of the engine. */
function told(error, machine) {
  if (error instanceof RangeError && /call stack/i.test(error.message)) {
    return { message: "too many brackets or calls within each other", line: machine?.line ?? 1, column: 0, program: null, kind: "limit" };
  }
  if (!(error instanceof KernelError)) throw error;
  const line = error.line || machine?.line || 1;
  return { message: error.message, line, column: error.column, program: machine?.where ?? null, kind: error.kind };
}

const names = (node, found = new Set()) => {
  if (Array.isArray(node)) for (const item of node) names(item, found);
  else if (node && typeof node === "object") {
    if (node.type === "Call" && node.callee.type === "Name") found.add(node.callee.id);
    for (const value of Object.values(node)) if (value && typeof value === "object") names(value, found);
  }
  return found;
};

export function parse(source) {
  try {
    const { functions } = read(source);
    const called = names(functions.map((one) => one.body));
    const kernels = functions.map(({ name, params, line, end, start, body }) => ({
      name,
      params: params.map((param) => ({ name: param.name, constexpr: Boolean(param.annotation && isConstexpr(param.annotation)) })),
      line: start ?? line,
      endLine: Math.max(end, lastLine(body)),
      helper: called.has(name),
    }));
    if (!kernels.length) {
      return { kernels, error: { message: "there is no function with @triton.jit", line: 1, column: 0, kind: "syntax" } };
    }
    return { kernels, error: null };
  } catch (error) {
    return { kernels: [], error: told(error) };
  }
}

const lastLine = (body) => body.reduce((most, node) => Math.max(most, node.line, lastLine([...(node.body ?? []), ...(node.orelse ?? [])])), 0);

/* Several runs of one text share its compiled functions: of the last two, the reader's and the page's. */
let lately = [];
function compiled(source) {
  const known = lately.find((one) => one.source === source) ?? { source, file: new File(read(source)) };
  lately = [known, ...lately.filter((one) => one !== known)].slice(0, 2);
  return known.file;
}

export function run(source, kernelName, { grid = [1], args = {}, options = {} } = {}) {
  const empty = { outputs: {}, counts: null, accesses: [], faults: [], steps: [], milliseconds: 0 };
  let file;
  try {
    file = compiled(source);
    if (!file.kernels.has(kernelName)) throw new KernelError(`there is no kernel called ${kernelName}`, "compile", 1);
  } catch (error) {
    return { error: told(error), ...empty };
  }
  const result = launch(file, file.kernels.get(kernelName), { grid, args, options: { ...LIMITS, ...options } }, told);
  return { ...empty, ...result };
}
