/* A launch: a kernel's arguments, its programs one after the other, and what they did. */
import { KernelError } from "./errors.js";
import { Descriptor } from "./language.js";
import { Memory, dtypeNamed } from "./memory.js";
import { meter } from "./meter.js";
import { int32, int64, pointerTo } from "./types.js";
import { Const, NONE, Tensor, count, float, int, scalar } from "./values.js";

const MOST_PROGRAMS = 1_000_000;
const MOST_STEPS = 4_000; // of one program that is stepped through
const MOST_NUMBERS = 4_096; // of a variable that is shown
const LARGEST_INT = 2 ** 31 - 1;

function constant(value) {
  const plain = value && typeof value === "object" && "value" in value ? value : { value };
  if (plain.value === null || plain.value === undefined) return NONE;
  if (typeof plain.value === "boolean") return new Const("bool", plain.value);
  if (typeof plain.value === "string") return new Const("str", plain.value);
  if (plain.type?.startsWith("float")) return float(plain.value);
  return Number.isInteger(plain.value) ? int(plain.value) : float(plain.value);
}

function argument(value, param, memory) {
  if (param.constexpr) return constant(value);
  if (value === null || value === undefined) return NONE;
  if (value.data) return memory.place(value);
  if (value.descriptor) {
    const tensor = value.descriptor;
    const sizes = (list) => list.map((n) => scalar(int64, n));
    return new Descriptor(memory.place(tensor), sizes(tensor.shape), sizes(tensor.strides), value.block);
  }
  if (typeof value === "boolean") return scalar(dtypeNamed("bool"), value ? 1 : 0);
  if (typeof value === "number") {
    if (!Number.isInteger(value)) return scalar(dtypeNamed("float32"), value);
    return scalar(Math.abs(value) > LARGEST_INT ? int64 : int32, value);
  }
  if (value.pointer) return scalar(pointerTo(dtypeNamed(value.pointer)), 0); // to nothing: for a check alone
  if ("value" in value && value.type) return scalar(dtypeNamed(value.type), value.value);
  throw new KernelError(`the argument ${param.name} is of no kind that is known here`, "runtime");
}

const unknown = (value) => (value instanceof Tensor ? new Tensor(value.dtype, value.shape, null) : value);

function unknownArgument(value) {
  if (!(value instanceof Descriptor)) return unknown(value);
  return new Descriptor(unknown(value.pointer), value.shape.map(unknown), value.strides.map(unknown), value.block);
}

/* What compiled functions run on. */
class Machine {
  constructor(file, memory, grid, { leastK } = {}) {
    this.file = file;
    this.memory = memory;
    this.grid = grid;
    this.leastK = leastK; // of a product; a picture's tiles are smaller than a GPU's
    this.line = 0;
    this.depth = 0;
    this.checking = false;
    this.program = [0, 0, 0];
    this.where = null; // of the program that runs, as errors name it
    this.watching = null;
    this.turning = null;
    this.ran = null;
    this.steps = [];
  }
  programId(axis) {
    return this.checking ? new Tensor(int32, [], null) : scalar(int32, this.program[axis]);
  }
  numPrograms(axis) {
    return this.checking ? new Tensor(int32, [], null) : scalar(int32, this.grid[axis]);
  }
}

function bound(kernel, args, machine) {
  const known = new Set(kernel.params.map((param) => param.name));
  const extra = Object.keys(args).find((name) => !known.has(name));
  if (extra) throw new KernelError(`${kernel.name} has no parameter ${extra}, which the launch passes`, "compile", kernel.tree.line);
  return kernel.params.map((param, i) => {
    if (param.name in args) return argument(args[param.name], param, machine.memory);
    if (param.fallback) return constantDefault(kernel, i, machine);
    throw new KernelError(`the launch passes nothing for the parameter ${param.name}`, "compile", kernel.tree.line);
  });
}

/* Keep every value that one program gives a variable; with `lines` also each line that it comes to, and how many
   accesses there were before. */
function remember(machine, { program = [], lines = false }) {
  const mine = () => !machine.checking && machine.program.every((n, axis) => n === (program[axis] ?? 0));
  const last = new Map();
  machine.watching = (variable, value) => {
    if (!mine() || machine.steps.length >= MOST_STEPS) return;
    const { data } = value;
    const size = Math.min(data.length, MOST_NUMBERS);
    const shown = value.shape.length ? { dtype: value.dtype.name, shape: value.shape, data: data.slice(0, size) } : data[0];
    const before = last.get(variable);
    const changed = !before || before.length !== data.length || data.some((x, i) => !Object.is(x, before[i]));
    last.set(variable, data);
    machine.steps.push({ line: machine.line, variable, value: shown, changed });
  };
  machine.turning = (variable, value, line) => {
    if (!mine() || machine.steps.length >= MOST_STEPS) return;
    machine.steps.push({ line, loop: { variable, value }, ...(lines && { accesses: machine.memory.accesses.length }) });
  };
  if (!lines) return;
  machine.ran = (line) => {
    if (!mine() || machine.steps.length >= MOST_STEPS) return;
    machine.steps.push({ line, ran: true, accesses: machine.memory.accesses.length });
  };
}

function namesIn(node, found = []) {
  if (node?.type === "Name") found.push(node.id);
  if (node?.type === "Attribute" && node.value.id) found.push(`${node.value.id}.${node.name}`);
  for (const value of Object.values(node ?? {})) {
    if (Array.isArray(value)) for (const item of value) if (item && typeof item === "object") namesIn(item, found);
    if (value && typeof value === "object" && !Array.isArray(value)) namesIn(value, found);
  }
  return found;
}

const shortened = (x) => (Number.isFinite(x) ? Number(x.toPrecision(4)).toString() : x === x ? (x < 0 ? "-inf" : "inf") : "NaN");

/* Note the first variable that holds a NaN, and what it was made of. */
function lookForNaN(machine, faults) {
  machine.watching = (variable, value, source, frame) => {
    if (!value.dtype.isFloat || faults.length) return;
    const at = value.data.findIndex((x) => x !== x);
    if (at < 0) return;
    const parts = [];
    for (const name of new Set(namesIn(source))) {
      const [own, field] = name.split(".");
      const held = frame.slots[frame.kernel.names.get(own)];
      const part = field ? held?.items?.[held.fields.indexOf(field)] : held;
      if (!(part instanceof Tensor) || part.dtype.isPointer || !part.data) continue;
      const place = count(part.shape) === 1 ? 0 : part.shape.join() === value.shape.join() ? at : -1;
      if (place >= 0) parts.push(`${name} is ${shortened(part.data[place])}`);
    }
    const index = indexOf(at, value.shape);
    const where = index.length ? bracketed(index) : "";
    const made = parts.length ? "; there " + parts.join(", ") : "";
    faults.push({
      kind: "first_nan", line: machine.line, tensor: variable, index, program: machine.memory.program, count: 1,
      message: `the first NaN is in ${variable}${where} of program ${machine.memory.program}, line ${machine.line}${made}`,
    });
    throw new Found();
  };
}

const bracketed = (list) => `[${list.join(", ")}]`;

class Found extends Error {}

function indexOf(at, shape) {
  const index = [];
  let rest = at;
  for (const n of shape.toReversed()) {
    index.unshift(rest % n);
    rest = Math.floor(rest / n);
  }
  return index;
}

const hasNaN = (data) => data.some((x) => x !== x);

function programs(kernel, machine, values, each) {
  const [X, Y, Z] = machine.grid;
  let number = 0;
  for (let z = 0; z < Z; z += 1) {
    for (let y = 0; y < Y; y += 1) {
      for (let x = 0; x < X; x += 1, number += 1) {
        machine.program = [x, y, z];
        machine.where = number;
        machine.depth = 0;
        machine.memory.begin(number);
        kernel.run(values, machine);
        each();
      }
    }
  }
}

export function launch(file, kernel, { grid: asked, args, options }, told) {
  const grid = [...asked, 1, 1, 1].slice(0, 3);
  const began = performance.now();
  const memory = new Memory(options);
  const machine = new Machine(file, memory, grid, options);
  memory.line = () => machine.line;
  const before = Object.values(args).flatMap((value) => (value?.data ? [value] : value?.descriptor ? [value.descriptor] : []));
  const copies = new Map(before.map(({ data }) => [data, data.slice()]));
  const counts = { programs: 0, perProgram: null };
  let error = null;
  try {
    machine.line = kernel.tree.line;
    meter.begin(options.maxSteps, options.maxMilliseconds);
    if (!grid.every((n) => Number.isInteger(n) && n >= 0) || count(grid) > MOST_PROGRAMS) {
      throw new KernelError(`a grid of ${grid.join(" × ")} programs is not launched here`, "limit");
    }
    const values = bound(kernel, args, machine);
    if (options.check !== false) {
      machine.checking = true;
      kernel.run(values.map((value, i) => (kernel.params[i].constexpr ? value : unknownArgument(value))), machine);
      machine.checking = false;
    }
    if (options.variables) remember(machine, options.variables);
    let heaviest = -1;
    let soFar = { ...memory.counts, flops: 0, chosen: 0 };
    meter.begin(options.maxSteps, options.maxMilliseconds);
    programs(kernel, machine, values, () => {
      const now = { ...memory.counts, flops: meter.flops, chosen: meter.chosen };
      const own = Object.fromEntries(Object.keys(now).map((key) => [key, now[key] - soFar[key]]));
      soFar = now;
      counts.programs += 1;
      const work = own.flops + own.bytesLoaded + own.bytesStored;
      if (work > heaviest) {
        heaviest = work;
        counts.perProgram = { ...own, largest: meter.largest };
      }
    });
    Object.assign(counts, soFar);
    memory.finish();
  } catch (caught) {
    error = told(caught, machine);
  }
  const faults = [...memory.faults.values()];
  const outputs = {};
  for (const [name, value] of Object.entries(args)) {
    const tensor = value?.descriptor ?? value;
    if (tensor?.data && (tensor.output || !sameNumbers(tensor.data, copies.get(tensor.data)))) outputs[name] = tensor;
  }
  const result = { error, outputs, counts, accesses: memory.accesses, faults, steps: machine.steps };
  const broken = Object.values(outputs).some(({ data }) => data instanceof Float32Array && hasNaN(data));
  if (!error && broken && options.firstNaN !== false) {
    const restored = new Map([...copies].map(([data, copy]) => [data, copy.slice()]));
    faults.push(...firstNaN(file, kernel, { grid, args: withData(args, restored), options }));
  }
  return { ...result, milliseconds: performance.now() - began };
}

function constantDefault(kernel, i, machine) {
  const value = kernel.defaults(i, machine);
  return kernel.params[i].constexpr ? value : value instanceof Const && value.kind !== "none" ? argument(value.value, kernel.params[i], machine.memory) : value;
}

function sameNumbers(a, b) {
  return a.every((x, i) => Object.is(x, b[i]));
}

function withData(args, data) {
  const own = (tensor) => ({ ...tensor, data: data.get(tensor.data) });
  return Object.fromEntries(
    Object.entries(args).map(([name, value]) => {
      if (value?.data) return [name, own(value)];
      return [name, value?.descriptor ? { ...value, descriptor: own(value.descriptor) } : value];
    }),
  );
}

/* Run it again, and stop at the first NaN that a variable holds. */
function firstNaN(file, kernel, { grid, args, options }) {
  const memory = new Memory();
  const machine = new Machine(file, memory, grid, options);
  memory.line = () => machine.line;
  const found = [];
  try {
    meter.begin(options.maxSteps, options.maxMilliseconds);
    const values = bound(kernel, args, machine);
    lookForNaN(machine, found);
    programs(kernel, machine, values, () => {});
  } catch (caught) {
    if (!(caught instanceof Found) && !(caught instanceof KernelError)) throw caught;
  }
  return found;
}
