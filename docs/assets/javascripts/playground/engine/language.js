/* triton.language: every function of it that runs here, with its parameters and what it refuses. */
import { KernelError } from "./errors.js";
import { tiles } from "./tiles.js";
import { BY_NAME, bf16, fp16, fp32, fp64, int1, int64, pointerTo } from "./types.js";
import { Const, FALSE, NONE, TRUE, Tensor, Tuple, bool, count, float, int, isNone, isNumber, pythonType, shown, toTensor } from "./values.js";

const fail = (message) => {
  throw new KernelError(message);
};

/* A function of the language. `signature`: its parameters, "x axis=None": what stands after = is a
   default that the function sees as undefined. */
export class Builtin {
  constructor(name, signature, call) {
    this.name = name;
    this.params = signature.split(" ").filter(Boolean).map((text) => {
      const [param, fallback] = text.split("=");
      return { name: param.replace("*", ""), optional: fallback !== undefined, rest: param.startsWith("*") };
    });
    this.run = call;
  }
  call(args, keywords, machine) {
    const bound = {};
    const given = [...args];
    for (const param of this.params) {
      if (param.rest) bound[param.name] = given.splice(0);
      else if (given.length) bound[param.name] = given.shift();
    }
    if (given.length) {
      fail(`${this.name}() takes ${this.params.length} positional arguments but ${args.length} were given`);
    }
    for (const [name, value] of keywords) {
      if (!this.params.some((param) => param.name === name)) {
        fail(`${this.name}() got an unexpected keyword argument '${name}'`);
      }
      if (name in bound) fail(`${this.name}() got multiple values for argument '${name}'`);
      bound[name] = value;
    }
    for (const { name, optional, rest } of this.params) {
      if (!optional && !rest && !(name in bound)) fail(`${this.name}() missing a required argument: '${name}'`);
      if (isNone(bound[name] ?? NONE)) delete bound[name]; // None is what is left out
    }
    return this.run(bound, machine);
  }
}

// What arguments must be.

function constantInt(value, what) {
  if (value instanceof Const && (value.kind === "int" || value.kind === "bool")) return Number(value.value);
  return fail(what);
}

function axisOf(value) {
  if (value === undefined) return null;
  return constantInt(value, "the axis must be a number known when compiling");
}

function flag(value, fallback = false) {
  return value === undefined ? fallback : Boolean(value.value);
}

function shapeOf(value) {
  const items = value instanceof Tuple ? value.items : Array.isArray(value) ? value : [value];
  return items.map((item, i) =>
    constantInt(item, `Shape element ${i} must have type \`constexpr[int]\`, got \`${described(item)}\``),
  );
}

const described = (value) => (value instanceof Tensor ? `${value.type}` : `constexpr[${pythonType(value)}]`);

function dtypeOf(value) {
  if (value instanceof Const && value.kind === "dtype") return value.value;
  return fail(`${shown(value)} is no type of elements; tl.float32 is one`);
}

function tile(value) {
  return value instanceof Tensor ? value : toTensor(value);
}

// Memory.

function pointerTile(value, name) {
  if (!(value instanceof Tensor) || !value.dtype.isPointer) {
    fail(`Unsupported ptr type ${value instanceof Tensor ? value.type : described(value)} in \`tl.${name}\``);
  }
  return value;
}

function load({ pointer, mask, other, boundary_check: boundary, padding_option: padding }, machine) {
  let ptr = pointerTile(pointer, "load");
  if (mask === undefined && other !== undefined) fail("`other` cannot be provided without `mask`");
  if (padding || (boundary && boundary.items?.length)) {
    fail("`padding_option` or `boundary_check` argument is not supported for loading a tensor of pointers");
  }
  let masked = mask === undefined ? null : tile(mask);
  let rest = other === undefined ? null : tile(other);
  if (!ptr.isBlock) {
    if (masked?.isBlock) fail("Mask argument cannot be block type if pointer argument is not a block");
    if (rest?.isBlock) fail("Other argument cannot be block type if pointer argument is not a block");
  }
  const shape = [masked, rest].reduce((now, x) => (x ? tiles.sharedShape(now, x.shape) : now), ptr.shape);
  ptr = tiles.stretch(ptr, shape);
  if (masked && masked.dtype !== int1) fail(`Mask must have boolean scalar type, got ${masked.dtype}`);
  masked &&= tiles.stretch(masked, shape);
  rest &&= tiles.stretch(tiles.cast(rest, ptr.dtype.element), shape);
  if (!ptr.data) return new Tensor(ptr.dtype.element, shape, null);
  return machine.memory.load(ptr, masked, rest);
}

function store({ pointer, value, mask, boundary_check: boundary }, machine) {
  const ptr = pointerTile(pointer, "store");
  let what = tile(value);
  let masked = mask === undefined ? null : tile(mask);
  if (boundary && boundary.items?.length) fail("`boundary_check` argument is not supported for storing a tensor of pointers");
  if (!ptr.isBlock) {
    if (what.isBlock) fail("Value argument cannot be block type if pointer argument is not a block");
    if (masked?.isBlock) fail("Mask argument cannot be block type if pointer argument is not a block");
  }
  const shape = [what, masked].reduce((now, x) => (x ? tiles.sharedShape(now, x.shape) : now), ptr.shape);
  if (ptr.isBlock && shape.join() !== ptr.shape.join()) {
    fail(`Expected pointer argument to have shape [${shape.join(", ")}] but got [${ptr.shape.join(", ")}]`);
  }
  if (masked && masked.dtype !== int1) fail("Mask must have boolean scalar type");
  what = tiles.stretch(tiles.cast(what, ptr.dtype.element), shape);
  masked &&= tiles.stretch(masked, shape);
  if (ptr.data) machine.memory.store(ptr, what, masked);
  return NONE;
}

function atomic(combine) {
  return ({ pointer, val, mask }, machine) => {
    const ptr = pointerTile(pointer, "atomic");
    const shape = ptr.shape;
    const value = tiles.stretch(tiles.cast(tile(val), ptr.dtype.element), shape);
    const masked = mask === undefined ? null : tiles.stretch(tile(mask), shape);
    if (!ptr.data) return new Tensor(ptr.dtype.element, shape, null);
    return machine.memory.update(ptr, value, masked, combine);
  };
}

/* A tensor with the tile that is cut from it: zeros beyond its end. */
export class Descriptor {
  constructor(pointer, shape, strides, block) {
    this.dtype = pointer.dtype.element;
    this.pointer = pointer;
    this.shape = shape; // tensors, as strides
    this.strides = strides;
    this.block = block;
  }
  /* Pointers to the tile at these offsets, and which of them are within the tensor. */
  #cut(offsets) {
    if (!(offsets instanceof Tuple) || offsets.items.length !== this.block.length) {
      fail(`expected ${this.block.length} offsets, but got ${offsets.items?.length ?? 1}`);
    }
    let pointers = this.pointer;
    let mask = null;
    this.block.forEach((n, axis) => {
      let at = tiles.add(tiles.cast(tile(offsets.items[axis]), int64), tiles.arange(0, n));
      for (let other = 0; other < this.block.length; other += 1) {
        if (other !== axis) at = tiles.expandDims(at, Math.min(other, at.shape.length));
      }
      at = tiles.reshape(at, this.block.map((_, other) => (other === axis ? n : 1)));
      const within = tiles.bitwise("&", tiles.compare(">=", at, int(0)), tiles.compare("<", at, this.shape[axis]));
      mask = mask ? tiles.bitwise("&", mask, within) : within;
      pointers = tiles.add(pointers, tiles.mul(at, this.strides[axis]));
    });
    return { pointer: pointers, mask };
  }
  load(offsets, machine) {
    return load({ ...this.#cut(offsets), other: this.dtype.isFloat ? float(0) : int(0) }, machine);
  }
  store(offsets, value, machine) {
    if (!(value instanceof Tensor) || value.shape.join() !== this.block.join()) {
      fail(`a tile of [${this.block.join(", ")}] is stored through this descriptor, not ${shown(value)}`);
    }
    return store({ ...this.#cut(offsets), value }, machine);
  }
}

// Functions of numbers.

const isFloat = (x) => x.dtype.isFloat;
const mapped = (name, one) => [
  name,
  "x",
  ({ x }) => {
    const of = tile(x);
    if (!isFloat(of) || (of.dtype.bits < 32 && name !== "abs")) fail(`Expected dtype ['fp32', 'fp64'] but got ${of.dtype.name}`);
    return tiles.map(name, one, of);
  },
];

/* Abramowitz and Stegun 7.1.26 is too coarse: the series and the continued fraction of erf. */
function erf(x) {
  const size = Math.abs(x);
  if (!(size < 6)) return size === size ? Math.sign(x) : NaN;
  if (size < 2.5) {
    let [term, sum] = [size, size];
    for (let n = 1; Math.abs(term) > 1e-17 * sum; n += 1) {
      term *= (-size * size) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let rest = 0;
  for (let n = 60; n > 0; n -= 1) rest = n / 2 / (size + rest);
  return Math.sign(x) * (1 - Math.exp(-size * size) / Math.sqrt(Math.PI) / (size + rest));
}

const MATH = [
  mapped("exp", Math.exp),
  mapped("exp2", (x) => 2 ** x),
  mapped("log", Math.log),
  mapped("log2", Math.log2),
  mapped("sqrt", Math.sqrt),
  mapped("sqrt_rn", Math.sqrt),
  mapped("rsqrt", (x) => 1 / Math.sqrt(x)),
  mapped("sin", Math.sin),
  mapped("cos", Math.cos),
  mapped("floor", Math.floor),
  mapped("ceil", Math.ceil),
  mapped("erf", erf),
  mapped("sigmoid", (x) => 1 / (1 + Math.exp(-x))),
  ["abs", "x", ({ x }) => {
    const of = tile(x);
    return of.dtype.isFloat ? tiles.map("abs", Math.abs, of) : tiles.extreme("max", of, tiles.negative(of));
  }],
  ["fma", "x y z", ({ x, y, z }) => tiles.add(tiles.mul(x, y), z)],
  ["fdiv", "x y ieee_rounding=", ({ x, y }) => tiles.trueDivide(x, y)],
  ["div_rn", "x y", ({ x, y }) => tiles.trueDivide(x, y)],
  ["maximum", "x y propagate_nan=", ({ x, y }) => tiles.extreme("max", tile(x), tile(y))],
  ["minimum", "x y propagate_nan=", ({ x, y }) => tiles.extreme("min", tile(x), tile(y))],
  ["clamp", "x min max propagate_nan=", ({ x, min, max }) => {
    if (!tile(x).dtype.isFloat) fail(`Unexpected dtype ${tile(x).dtype}. Only floating point clamp is supported`);
    return tiles.extreme("min", tiles.extreme("max", tile(x), tile(min)), tile(max));
  }],
];

function trans({ x, dims }) {
  const of = tile(x);
  let list = dims ?? [];
  if (list.length === 1 && list[0] instanceof Tuple) list = list[0].items;
  if (list.length) return tiles.permute(of, list.map((d) => constantInt(d, "permute takes numbers known when compiling")));
  const rank = of.shape.length;
  if (rank < 2) fail("tl.trans invoked with a 0- or 1-dimensional tensor");
  return tiles.permute(of, [...of.shape.keys()].map((d) => (d < rank - 2 ? d : 2 * rank - 3 - d)));
}

const spreadShape = (list) => shapeOf(list.length === 1 && list[0] instanceof Tuple ? list[0] : list);

function expand({ x, axis }) {
  const of = tile(x);
  const list = axis instanceof Tuple ? axis.items : [axis];
  return list.reduce((now, one) => {
    const at = constantInt(one, "the axis must be a number known when compiling");
    const rank = now.shape.length + 1;
    if (at < -rank || at >= rank) fail(`invalid axis ${at}. Expected ${-rank} <= axis < ${rank}`);
    return tiles.expandDims(now, at < 0 ? at + rank : at);
  }, of);
}

function extremeAlong(which) {
  return ({ input, axis, return_indices: indices, keep_dims: keep }) => {
    const of = tile(input);
    const along = axisOf(axis);
    const found = tiles.most(which, of, along, flag(keep));
    return flag(indices) ? new Tuple([found, tiles.placeOfMost(which, of, along, flag(keep))]) : found;
  };
}

function softmax({ x, dim, keep_dims: keep }) {
  const of = tile(x);
  const along = dim === undefined ? 0 : constantInt(dim, "dim must be known when compiling");
  const e = tiles.map("exp", Math.exp, tiles.sub(of, tiles.most("max", of, along, flag(keep))));
  return tiles.trueDivide(e, tiles.sum(e, along, flag(keep)));
}

/* ⌈x / y⌉ of integers. */
function cdiv({ x, div }) {
  if (isNumber(x) && isNumber(div)) return int(Math.floor((x.value + div.value - 1) / div.value));
  const one = isNumber(div) ? int(div.value - 1) : tiles.sub(div, int(1));
  return tiles.floorDivide(tiles.add(x, one), div);
}

const SHAPES = [
  ["trans", "x *dims", trans],
  ["permute", "x *dims", trans],
  ["reshape", "x *shape can_reorder=", ({ x, shape }) => tiles.reshape(tile(x), spreadShape(shape))],
  ["view", "x *shape", ({ x, shape }) => tiles.reshape(tile(x), spreadShape(shape))],
  ["ravel", "x can_reorder=", ({ x }) => tiles.reshape(tile(x), [count(tile(x).shape)])],
  ["expand_dims", "x axis", expand],
  ["broadcast_to", "x *shape", ({ x, shape }) => tiles.broadcastTo(tile(x), spreadShape(shape))],
  ["flip", "x dim=", ({ x, dim }) => tiles.flip(tile(x), dim === undefined ? -1 : axisOf(dim))],
];

const ALONG = [
  ["sum", "input axis= keep_dims= dtype=", ({ input, axis, keep_dims: keep, dtype }) =>
    tiles.sum(tile(input), axisOf(axis), flag(keep), dtype && dtypeOf(dtype))],
  ["max", "input axis= return_indices= return_indices_tie_break_left= keep_dims=", extremeAlong("max")],
  ["min", "input axis= return_indices= return_indices_tie_break_left= keep_dims=", extremeAlong("min")],
  ["argmax", "input axis tie_break_left= keep_dims=", ({ input, axis, keep_dims: keep }) =>
    tiles.placeOfMost("max", tile(input), axisOf(axis), flag(keep))],
  ["argmin", "input axis tie_break_left= keep_dims=", ({ input, axis, keep_dims: keep }) =>
    tiles.placeOfMost("min", tile(input), axisOf(axis), flag(keep))],
  ["cumsum", "input axis= reverse= dtype=", ({ input, axis, reverse, dtype }) =>
    tiles.running(dtype ? tiles.cast(tile(input), dtypeOf(dtype)) : tile(input), axisOf(axis) ?? 0, false, flag(reverse))],
  ["cumprod", "input axis= reverse=", ({ input, axis, reverse }) =>
    tiles.running(tile(input), axisOf(axis) ?? 0, true, flag(reverse))],
  ["softmax", "x dim= keep_dims= ieee_rounding=", softmax],
];

const PRECISIONS = ["ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"];

function dot({ input, other, acc, input_precision: precision, out_dtype: into }, machine) {
  if (precision && !PRECISIONS.includes(precision.value)) {
    fail(`input_precision must be one of ${PRECISIONS.join(", ")}. Got ${shown(precision)}`);
  }
  return tiles.dot(input, other, acc, into ? dtypeOf(into) : fp32, machine.leastK);
}

function axisNumber(axis, name) {
  const at = constantInt(axis, `${name} axis must be a number known when compiling`);
  if (at < 0 || at > 2) fail(`${name} axis must be 0, 1, or 2 but got ${at}`);
  return at;
}

function castTo({ input, dtype, bitcast }) {
  const to = dtypeOf(dtype);
  if (isNumber(input)) return tiles.cast(toTensor(input), to);
  if (flag(bitcast)) fail("a bitcast is not known here");
  return tiles.cast(tile(input), to);
}

function staticAssert({ cond, msg }) {
  if (!(cond instanceof Const)) fail("Assertion condition could not be determined at compile-time. Make sure that it depends only on `constexpr` values");
  if (!cond.value) fail(msg ? shown(msg) : "static assertion failed");
  return NONE;
}

const nothing = () => NONE;
const itself = ({ input }) => input;

const GENERAL = [
  ["program_id", "axis", ({ axis }, machine) => machine.programId(axisNumber(axis, "program_id"))],
  ["num_programs", "axis", ({ axis }, machine) => machine.numPrograms(axisNumber(axis, "num_programs"))],
  ["arange", "start end", ({ start, end }) => {
    const what = "arange's arguments must be of type tl.constexpr";
    return tiles.arange(constantInt(start, what), constantInt(end, what));
  }],
  ["zeros", "shape dtype", ({ shape, dtype }) => tiles.full(shapeOf(shape), float(0), dtypeOf(dtype))],
  ["full", "shape value dtype", ({ shape, value, dtype }) => tiles.full(shapeOf(shape), value, dtypeOf(dtype))],
  ["zeros_like", "input", ({ input }) => tiles.full(tile(input).shape, float(0), tile(input).dtype)],
  ["load", "pointer mask= other= boundary_check= padding_option= cache_modifier= eviction_policy= volatile=", load],
  ["store", "pointer value mask= boundary_check= cache_modifier= eviction_policy=", store],
  ["atomic_add", "pointer val mask= sem= scope=", atomic((a, b) => a + b)],
  ["atomic_max", "pointer val mask= sem= scope=", atomic(Math.max)],
  ["atomic_min", "pointer val mask= sem= scope=", atomic(Math.min)],
  ["atomic_xchg", "pointer val mask= sem= scope=", atomic((a, b) => b)],
  ["where", "condition x y", ({ condition, x, y }) => tiles.where(tile(condition), x, y)],
  ["dot", "input other acc= input_precision= allow_tf32= max_num_imprecise_acc= out_dtype=", dot],
  ["cast", "input dtype fp_downcast_rounding= bitcast=", castTo],
  ["cdiv", "x div", cdiv],
  ["broadcast", "input other", ({ input, other }) => {
    const shape = tiles.sharedShape(input.shape, other.shape);
    return new Tuple([tiles.stretch(input, shape), tiles.stretch(other, shape)]);
  }],
  ["make_tensor_descriptor", "base shape strides block_shape padding_option=", ({ base, shape, strides, block_shape: block }) =>
    new Descriptor(pointerTile(base, "make_tensor_descriptor"), shape.items.map(tile), strides.items.map(tile), shapeOf(block))],
  ["static_assert", "cond msg=", staticAssert],
  ["static_print", "*values sep= end= file= flush=", nothing],
  ["device_print", "prefix *args hex=", nothing],
  ["device_assert", "cond msg= mask=", ({ cond, msg }) => {
    const held = tile(cond);
    if (held.data && held.data.some((x) => !x)) {
      throw new KernelError(msg ? "the assertion fails: " + shown(msg) : "the assertion fails", "runtime");
    }
    return NONE;
  }],
  ["debug_barrier", "", nothing],
  ["assume", "cond", nothing],
  ["multiple_of", "input values", itself],
  ["max_contiguous", "input values", itself],
  ["max_constancy", "input values", itself],
];

const make = (list) => list.map(([name, signature, call]) => [name, new Builtin(name, signature, call)]);
const fn = (builtin) => new Const("function", builtin);

/* What a loop runs over; only `for` knows what to do with them. */
export const RANGES = {
  range: new Builtin("range", "", () => fail("range is what a `for` runs over")),
  static: new Builtin("static_range", "", () => fail("tl.static_range is what a `for` runs over")),
};
const constexpr = new Builtin("constexpr", "value", ({ value }) =>
  value instanceof Const || value === undefined ? (value ?? NONE) : fail(`${shown(value)} is not known when compiling`),
);
export const CONSTEXPR = constexpr;

class Module {
  constructor(name, entries) {
    this.name = name;
    this.entries = new Map(entries);
  }
}

const functions = [...make([...GENERAL, ...MATH, ...SHAPES, ...ALONG])];
const dtypes = Object.entries(BY_NAME).map(([name, dtype]) => [name, new Const("dtype", dtype)]);
const moduleOf = (name, list) => new Const("module", new Module(name, make(list).map(([called, one]) => [called, fn(one)])));
const math = moduleOf("triton.language.math", MATH);

/* A launch begins when the last one has ended, so what waits for that has nothing to do. */
const CUDA = [["gdc_launch_dependents", "", nothing], ["gdc_wait", "", nothing]];
const extra = new Const("module", new Module("triton.language.extra", [["cuda", moduleOf("triton.language.extra.cuda", CUDA)]]));

const language = new Const(
  "module",
  new Module("triton.language", [
    ...functions.map(([name, one]) => [name, fn(one)]),
    ...dtypes,
    ["range", fn(RANGES.range)],
    ["static_range", fn(RANGES.static)],
    ["constexpr", fn(constexpr)],
    ["math", math],
    ["extra", extra],
    ["pointer_type", fn(new Builtin("pointer_type", "element_ty", ({ element_ty: of }) => new Const("dtype", pointerTo(dtypeOf(of)))))],
  ]),
);

/* Python's math, for constants of a module. */
const pythonMath = new Const(
  "module",
  new Module("math", [
    ...["log2", "log", "sqrt", "exp", "floor", "ceil"].map((name) => [
      name,
      fn(new Builtin(name, "x", ({ x }) => {
        if (!isNumber(x)) fail(`must be real number, not ${pythonType(x)}`);
        return (/floor|ceil/.test(name) ? int : float)(Math[name](x.value));
      })),
    ]),
    ["e", float(Math.E)],
    ["pi", float(Math.PI)],
    ["inf", float(Infinity)],
  ]),
);

/* Names that every kernel's file has imported. Kernels run here as in Triton's interpreter. */
const runtime = new Module("triton.knobs.runtime", [["interpret", TRUE], ["debug", FALSE]]);
const knobs = new Module("triton.knobs", [["runtime", new Const("module", runtime)]]);
export const MODULES = {
  tl: language,
  triton: new Const(
    "module",
    new Module("triton", [
      ["language", language],
      ["knobs", new Const("module", knobs)],
      ["cdiv", language.value.entries.get("cdiv")],
    ]),
  ),
  math: pythonMath,
};

function plainNumber(name, { x }) {
  if (x === undefined) return name === "float" ? float(0) : int(0);
  if (x instanceof Tensor) fail(`${name}() argument must be a string or a real number, not 'tensor'`);
  if (x.kind === "str") {
    const text = x.value.trim().toLowerCase().replace(/inf(inity)?$/, "Infinity");
    const value = text === "nan" ? NaN : Number(text.replace(/^\+/, ""));
    if (text !== "nan" && (value !== value || text === "")) fail(`could not convert string to float: '${x.value}'`);
    return name === "float" ? float(value) : int(Math.trunc(value));
  }
  return name === "float" ? float(Number(x.value)) : int(Math.trunc(Number(x.value)));
}

function amongNumbers(which, { values }) {
  const list = values.length === 1 && values[0] instanceof Tuple ? values[0].items : values;
  if (list.length < 2) fail(`${which} requires at least 2 values`);
  if (list.every(isNumber)) return list.reduce((a, b) => ((which === "max" ? b.value > a.value : b.value < a.value) ? b : a));
  return list.reduce((a, b) => tiles.extreme(which, tile(a), tile(b)));
}

/* Python's own functions that a kernel may call. */
export const PYTHON = new Map(
  [
    ["float", "x=", (bound) => plainNumber("float", bound)],
    ["int", "x=", (bound) => plainNumber("int", bound)],
    ["bool", "x=", ({ x }) => bool(x?.value)],
    ["len", "x", ({ x }) => (x instanceof Tuple ? int(x.items.length) : fail(`object of type '${pythonType(x)}' has no len()`))],
    ["min", "*values", (bound) => amongNumbers("min", bound)],
    ["max", "*values", (bound) => amongNumbers("max", bound)],
    ["print", "*values", nothing],
  ].map(([name, signature, call]) => [name, fn(new Builtin(name, signature, call))]),
).set("range", fn(RANGES.range));

// Attributes of values.

const MEMBERS = new Map(functions);
const DTYPE_TESTS = {
  is_floating: (dtype) => dtype.isFloat,
  is_ptr: (dtype) => dtype.isPointer,
  is_int: (dtype) => dtype.isInt,
  is_fp16: (dtype) => dtype === fp16,
  is_bf16: (dtype) => dtype === bf16,
  is_fp32: (dtype) => dtype === fp32,
  is_fp64: (dtype) => dtype === fp64,
  is_int1: (dtype) => dtype === int1,
};

function ofDtype(dtype, name) {
  if (name in DTYPE_TESTS) return fn(new Builtin(name, "", () => bool(DTYPE_TESTS[name](dtype))));
  if (name === "primitive_bitwidth") return int(dtype.bits);
  if (name === "itemsize") return int(dtype.size);
  if (name === "scalar") return new Const("dtype", dtype);
  if (name === "name") return new Const("str", dtype.name);
  if (name === "element_ty" && dtype.isPointer) return new Const("dtype", dtype.element);
  return null;
}

const bind = (self, builtin) => fn({ name: builtin.name, call: (args, keywords, machine) => builtin.call([self, ...args], keywords, machine) });

const TO = new Builtin("to", "input dtype fp_downcast_rounding= bitcast=", castTo);

function ofTensor(value, name) {
  if (name === "dtype") return new Const("dtype", value.dtype);
  if (name === "type") return new Const("dtype", value.dtype);
  if (name === "shape") return new Tuple(value.shape.map(int));
  if (name === "numel") return int(count(value.shape));
  if (name === "T") return tiles.permute(value, [1, 0]);
  if (name === "to") return bind(value, TO);
  if (name === "item" && count(value.shape) === 1) return fn(new Builtin("item", "", () => new Tensor(value.dtype, [], value.data)));
  return MEMBERS.has(name) ? bind(value, MEMBERS.get(name)) : null;
}

function ofDescriptor(value, name) {
  if (name === "load") return fn(new Builtin("load", "offsets", ({ offsets }, machine) => value.load(offsets, machine)));
  if (name === "store") return fn(new Builtin("store", "offsets value", (bound, machine) => value.store(bound.offsets, bound.value, machine)));
  if (name === "dtype") return new Const("dtype", value.dtype);
  if (name === "block_shape") return new Tuple(value.block.map(int));
  return null;
}

export function attribute(value, name) {
  let found = null;
  if (value instanceof Tensor) found = ofTensor(value, name);
  else if (value instanceof Descriptor) found = ofDescriptor(value, name);
  else if (value instanceof Const && value.kind === "module") {
    found = value.value.entries.get(name);
    if (!found) fail(`module '${value.value.name}' has no attribute '${name}'`);
  } else if (value instanceof Const && value.kind === "dtype") found = ofDtype(value.value, name);
  else if (value instanceof Const && name === "value") found = value;
  else if (value instanceof Const && isNumber(value) && name === "to") found = bind(value, TO);
  if (!found) fail(`'${value instanceof Descriptor ? "tensor_descriptor" : pythonType(value)}' object has no attribute '${name}'`);
  return found;
}

/* Names of the language that this engine has: a test compares them with what kernels use. */
export const NAMES = [...language.value.entries.keys()];
