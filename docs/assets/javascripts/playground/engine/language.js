/* triton.language: every function of it that runs here, with its parameters and what it refuses. */
import { KernelError, fail, lacking } from "./errors.js";
import { meter } from "./meter.js";
import { tiles } from "./tiles.js";
import { BY_NAME, bf16, fp32, int1, int32, int64, pointerTo, uint32 } from "./types.js";
import { Const, FALSE, MAX_ELEMENTS, NONE, TRUE, Tensor, Tuple, bool, count, float, int, isNone, isNumber, pythonType, shown, toTensor } from "./values.js";

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
      if (optional && isNone(bound[name] ?? NONE)) delete bound[name]; // None is what is left out
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
  if (value === undefined || isNone(value)) return null;
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

function oneOf(option, known, what) {
  if (option?.value && !known.split(" ").includes(option.value)) fail(`${what} ${option.value} not supported`);
}

function load({ pointer, mask, other, boundary_check: boundary, padding_option: padding, cache_modifier: cache, eviction_policy: eviction }, machine) {
  oneOf(cache, ".ca .cg .cv", "Cache modifier");
  oneOf(eviction, "evict_last evict_first", "Eviction policy");
  if (pointer instanceof BlockPointer) {
    if (mask !== undefined || other !== undefined) fail("`mask` and `other` arguments cannot be specified for loading block pointers");
    return pointer.read(boundary, padding, machine);
  }
  let ptr = pointerTile(pointer, "load");
  if (mask === undefined && other !== undefined) fail("`other` cannot be provided without `mask`");
  if (padding?.value || (boundary && boundary.items?.length !== 0)) {
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

function store({ pointer, value, mask, boundary_check: boundary, cache_modifier: cache, eviction_policy: eviction }, machine) {
  oneOf(cache, ".wb .cg .cs .wt", "Cache modifier");
  oneOf(eviction, "evict_last evict_first", "Eviction policy");
  if (pointer instanceof BlockPointer) {
    if (mask !== undefined) fail("`mask` and `other` arguments cannot be specified for loading block pointers");
    return pointer.write(tile(value), boundary, machine);
  }
  const ptr = pointerTile(pointer, "store");
  let what = tile(value);
  let masked = mask === undefined ? null : tile(mask);
  if (boundary && boundary.items?.length !== 0) fail("`boundary_check` argument is not supported for storing a tensor of pointers");
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

function atomic(name, combine) {
  return ({ pointer, val, cmp, mask, sem, scope }, machine) => {
    oneOf(sem, "acquire release acq_rel relaxed", "Memory semantic");
    oneOf(scope, "gpu cta sys", "Memory semantic");
    const ptr = pointerTile(pointer, `atomic_${name}`);
    const of = ptr.dtype.element;
    const small = of.bits < 16 || (of.bits === 16 && (of.isInt || name !== "add"));
    if (name === "cas" ? of.bits < 16 : small) fail(`atomic_${name} does not support ${of}`);
    if (of.isFloat && ["and", "or", "xor"].includes(name)) lacking(`tl.atomic_${name} of ${of}`);
    const values = [cmp, val].map((value) => {
      if (value === undefined) return null;
      const given = tile(value);
      if (given.isBlock && !ptr.isBlock) fail(`atomic_${name} of one address takes a scalar, not ${given.type}`);
      if (name !== "cas") return tiles.broadcastTo(tiles.cast(given, of), ptr.shape);
      if (given.dtype !== of || given.shape.join() !== ptr.shape.join()) fail(`atomic_cas of ${ptr.type} takes its type and shape, not ${given.type}`);
      return given;
    });
    const masked = mask === undefined ? null : tiles.broadcastTo(tile(mask), ptr.shape);
    if (!ptr.data) return new Tensor(of, ptr.shape, null);
    const expected = values[0]?.data;
    return machine.memory.update(ptr, values[1], masked, (old, given, i) => (expected && old !== expected[i] ? old : combine(old, given)));
  };
}

const ATOMICS = {
  add: (a, b) => a + b, max: Math.max, min: Math.min, xchg: (a, b) => b, cas: (a, b) => b,
  and: (a, b) => a & b, or: (a, b) => a | b, xor: (a, b) => a ^ b,
};

function scalarInt(value, wide) {
  const of = isNumber(value) && value.kind !== "float" ? toTensor(value) : value;
  if (!(of instanceof Tensor) || !of.dtype.isInt) fail("Expected an integer scalar type in shape/strides/offsets");
  if (count(of.shape) !== 1) fail("Expected a scalar in shape/strides/offsets");
  if (!wide && of.dtype.bits === 64) {
    fail("Block pointers only support 32 bit `offsets/block_shape`, add a `.to(tl.int32)` or use regular indexing for 64 bit support");
  }
  return tiles.reshape(tiles.cast(of, int64), []);
}

const listOf = (value) => (value instanceof Tuple ? value.items : [value]);
const several = (value) => (value instanceof Const ? fail(`'${pythonType(value)}' object is not iterable`) : listOf(value));
const scalarInts = (value, wide) => several(value).map((item) => scalarInt(item, wide));
const PADDINGS = { undefined: 0, "": 0, zero: 0, nan: NaN };

function paddingOf(option, of, what) {
  if (!(option?.value in PADDINGS)) fail(`Padding option ${shown(option)} not supported`);
  if (option?.value === "nan" && of.isInt) fail(`Padding option \`nan\` is not supported for integer ${what}`);
  return PADDINGS[option?.value];
}

/* A tensor with the tile that is cut from it: padding beyond its end. */
export class Descriptor {
  constructor(pointer, shape, strides, block, padding = 0) {
    this.dtype = pointer.dtype.element;
    this.pointer = pointer;
    this.shape = shape; // tensors, as strides
    this.strides = strides;
    this.block = block;
    this.padding = padding;
  }
  get type() {
    return `tensor_descriptor<${this.dtype}[${this.block.join(", ")}]>`;
  }
  /* Pointers to the tile at these offsets, and which of them are within the tensor along the checked axes. */
  cut(offsets, checked) {
    let pointers = this.pointer;
    let mask = null;
    this.block.forEach((n, axis) => {
      let at = tiles.add(offsets[axis], tiles.arange(0, n));
      at = tiles.reshape(at, this.block.map((_, other) => (other === axis ? n : 1)));
      const within = tiles.bitwise("&", tiles.compare(">=", at, int(0)), tiles.compare("<", at, this.shape[axis]));
      if (!checked || checked.includes(axis)) mask = mask ? tiles.bitwise("&", mask, within) : within;
      pointers = tiles.add(pointers, tiles.mul(at, this.strides[axis]));
    });
    return { pointer: pointers, mask: mask ?? undefined };
  }
  #at(offsets) {
    const list = scalarInts(offsets, false);
    if (list.length !== this.block.length) fail(`expected ${this.block.length} offsets, but got ${list.length}`);
    const last = list.at(-1);
    aligned((last.data?.[0] ?? 0) * this.dtype.size, "block offset start must be 16-byte aligned");
    return this.cut(list);
  }
  #value(value) {
    if (value instanceof Tensor && value.shape.join() === this.block.join()) return tiles.cast(value, this.dtype);
    return fail(`a tile of [${this.block.join(", ")}] is stored through this descriptor, not ${shown(value)}`);
  }
  load(offsets, machine) {
    return load({ ...this.#at(offsets), other: float(this.padding) }, machine);
  }
  store(offsets, value, machine) {
    return store({ ...this.#at(offsets), value: this.#value(value) }, machine);
  }
  atomic(name, offsets, value, machine) {
    const known = { add: "uint32 int32 uint64 fp32 fp16 bf16", max: "uint32 int32 uint64 int64 fp16 bf16" };
    known.min = known.max;
    if (!(known[name] ?? "uint32 int32 uint64 int64").split(" ").includes(this.dtype.name)) fail("Unsupported dtype");
    atomic(name, ATOMICS[name])({ ...this.#at(offsets), val: this.#value(value) }, machine);
    return NONE;
  }
}

function aligned(bytes, what) {
  if (bytes % 16) throw new KernelError(what, "runtime");
}

function makeDescriptor({ base, shape, strides, block_shape: block, padding_option: padding }) {
  const ptr = pointerTile(base, "make_tensor_descriptor");
  if (ptr.isBlock) fail("the base of a tensor descriptor is one pointer, not a tile of them");
  const of = ptr.dtype.element;
  const [sizes, steps, tileShape] = [shape, strides, block].map(several);
  const rank = sizes.length;
  if (rank < 1 || rank > 5) fail(`Expected 1 <= ndim <= 5 but got ${rank} dimensions`);
  if (steps.length !== rank) fail(`Expected ${rank} strides but got ${steps.length}`);
  if (tileShape.length !== rank) fail(`Expected block_shape to have ${rank} dimensions but got ${tileShape.length}`);
  const known = tiles.checkShape(shapeOf(block));
  const row = known.at(-1) * (of.bits >> 3);
  if (row < 16) fail(`Descriptor block shape must have at least 16 bytes in the last dimension, but got ${row} bytes`);
  if (!isNumber(steps.at(-1)) || Number(steps.at(-1).value) !== 1) {
    fail(`Tensor descriptor last dim must be 1 but got ${shown(steps.at(-1))}; it must be known when compiling`);
  }
  const [lengths, by] = [sizes, steps].map((list) => list.map((one) => scalarInt(one instanceof Tensor && one.dtype.isFloat ? tiles.cast(one, int32) : one, true)));
  aligned(ptr.data?.[0] ?? 0, "base must be 16-byte aligned");
  for (const step of by.slice(0, -1)) aligned((step.data?.[0] ?? 0) * of.size, "stride must be 16-byte aligned");
  return new Descriptor(ptr, lengths, by, known, paddingOf(padding, of, "blocks"));
}

/* A descriptor that moves: what tl.make_block_ptr makes. */
class BlockPointer extends Descriptor {
  constructor(of, offsets) {
    super(of.pointer, of.shape, of.strides, of.block);
    this.offsets = offsets;
  }
  get type() {
    return `pointer<<[${this.block.join(", ")}], ${this.dtype}>>`;
  }
  advance(offsets) {
    const by = scalarInts(offsets, false);
    if (by.length !== this.block.length) throw new KernelError(`tl.advance takes ${this.block.length} offsets, not ${by.length}`, "runtime");
    return new BlockPointer(this, this.offsets.map((at, axis) => tiles.add(at, by[axis])));
  }
  #checked(boundary) {
    const list = boundary === undefined || boundary.value === 0 ? [] : listOf(boundary).map((axis) => constantInt(axis, "boundary_check takes axes known when compiling"));
    if (list.some((axis) => axis < 0 || axis >= this.block.length)) fail(`boundary_check takes axes from 0 to ${this.block.length - 1}, not ${list}`);
    if (new Set(list).size < list.length) fail("Duplicate dimension in `boundary_check`");
    return this.cut(this.offsets, list);
  }
  /* Without a padding option zeros, too: so it compiles, and public kernels count on it. */
  read(boundary, option, machine) {
    const { pointer, mask } = this.#checked(boundary);
    const padding = paddingOf(option, this.dtype, "block pointers");
    return load({ pointer, mask, other: mask && float(padding) }, machine);
  }
  write(value, boundary, machine) {
    if (value.dtype !== this.dtype) fail(`Block element type(${this.dtype}) and value element type(${value.dtype}) mismatch`);
    if (value.isBlock && value.shape.join() !== this.block.join()) {
      fail(`Block shape([${this.block.join(", ")}]) and value shape([${value.shape.join(", ")}]) mismatch`);
    }
    return store({ ...this.#checked(boundary), value: tiles.broadcastTo(value, this.block) }, machine);
  }
}

function makeBlockPointer({ base, shape, strides, offsets, block_shape: block, order }) {
  if (!(base instanceof Tensor) || !base.dtype.isPointer || base.isBlock) {
    fail("Expected `base` to be a pointer type (but not a block pointer type or others)");
  }
  const sizes = [scalarInts(shape, true), scalarInts(strides, true), scalarInts(offsets, false)];
  const known = tiles.checkShape(several(block) && shapeOf(block));
  const axes = several(order).map((axis) => constantInt(axis, "order takes numbers known when compiling"));
  if ([...axes].sort().some((axis, i) => axis !== i)) fail("Expected a permutation of (0, 1, ..., len(order)-1) in order");
  if ([...sizes, axes].some((list) => list.length !== known.length)) {
    fail("Expected shape/strides/offsets/block_shape to have the same length");
  }
  return new BlockPointer(new Descriptor(base, sizes[0], sizes[1], known), sizes[2]);
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

/* Of two numbers the larger or smaller one: bfloat16 becomes float32. */
const wider = (x) => (tile(x).dtype === bf16 ? tiles.cast(x, fp32) : tile(x));
function extreme(which, x, y, nan) {
  const [a, b] = [wider(x), wider(y)];
  const found = tiles.extreme(which, a, b);
  if (nan !== undefined && nan.kind !== "option") fail(`Unexpected propagate_nan ${shown(nan)}`);
  if (nan?.value !== "ALL") return found;
  const sum = tiles.add(a, b); // NaN where one is; infinities of two signs make one, too, and are put back
  const same = tiles.bitwise("|", tiles.compare("==", a, a), tiles.compare("!=", b, b));
  const both = tiles.bitwise("&", same, tiles.compare("==", b, b));
  return tiles.where(both, found, tiles.cast(sum, found.dtype));
}

const MATH = [
  ...["exp", "log", "log2", "sqrt", "sin", "cos", "floor", "ceil"].map((name) => mapped(name, Math[name])),
  mapped("exp2", (x) => 2 ** x),
  mapped("sqrt_rn", Math.sqrt),
  mapped("rsqrt", (x) => 1 / Math.sqrt(x)),
  mapped("erf", erf),
  ["abs", "x", ({ x }) => {
    const of = tile(x);
    if (of.dtype.isFloat) return tiles.map("abs", Math.abs, of);
    return of.dtype.unsigned ? of : tiles.extreme("max", of, tiles.negative(of));
  }],
  ["fma", "x y z", ({ x, y, z }) => {
    const typeOf = (one, ...list) => one(...list.map((of) => new Tensor(of, [], null))).dtype;
    const [a, b, c] = [x, y, z].map(tile);
    const product = typeOf(tiles.mul, a.dtype, b.dtype);
    const into = typeOf(tiles.add, product, c.dtype); // in which it multiplies, too
    if (!into.isFloat) fail(`tl.fma of ${into}: its operands are floating point numbers`);
    const [left, right] = [a, b].map((one) => tiles.cast(tiles.cast(one, product), into));
    return tiles.add(tiles.mul(left, right), c);
  }],
  ["fdiv", "x y ieee_rounding=", ({ x, y }) => {
    if (![x, y].every((of) => tile(of).dtype.isFloat)) fail("both operands of fdiv must have floating scalar type");
    return tiles.trueDivide(tile(x), tile(y));
  }],
  ["div_rn", "x y", ({ x, y }) => {
    const wrong = [x, y].find((of) => of instanceof Tensor && of.dtype !== fp32);
    return wrong ? fail(`Expected dtype ['fp32'] but got ${wrong.dtype}`) : tiles.trueDivide(tile(x), tile(y));
  }],
  ["umulhi", "x y", ({ x, y }) => {
    const wrong = [x, y].find((of) => tile(of).dtype.bits < 32 || !tile(of).dtype.isInt);
    return wrong ? fail(`Expected dtype ['int32', 'int64', 'uint32', 'uint64'] but got ${tile(wrong).dtype}`) : tiles.umulhi(tile(x), tile(y));
  }],
];
/* Not in tl.math. */
const BEYOND_MATH = [
  mapped("sigmoid", (x) => 1 / (1 + Math.exp(-x))),
  ["maximum", "x y propagate_nan=", ({ x, y, propagate_nan: nan }) => extreme("max", x, y, nan)],
  ["minimum", "x y propagate_nan=", ({ x, y, propagate_nan: nan }) => extreme("min", x, y, nan)],
  ["clamp", "x min max propagate_nan=", ({ x, min, max, propagate_nan: nan }) => {
    const found = extreme("min", extreme("max", x, min, nan), max, nan);
    return found.dtype.isFloat ? found : fail(`Unexpected dtype ${found.dtype}. Only floating point clamp is supported`);
  }],
  ["add", "x y sanitize_overflow=", ({ x, y }) => tiles.add(x, y)],
  ["sub", "x y sanitize_overflow=", ({ x, y }) => tiles.sub(x, y)],
  ["mul", "x y sanitize_overflow=", ({ x, y }) => tiles.mul(x, y)],
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
  return listOf(axis).reduce((now, one) => {
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
    const found = tiles.most(which, of, along, flag(keep), flag(indices));
    return flag(indices) ? new Tuple([found, tiles.placeOfMost(which, of, along, flag(keep))]) : found;
  };
}

function softmax({ x, dim, keep_dims: keep }) {
  const of = tile(x);
  const along = dim === undefined ? 0 : constantInt(dim, "dim must be known when compiling");
  const e = tiles.map("exp", Math.exp, tiles.sub(of, tiles.most("max", of, along, flag(keep))));
  return tiles.trueDivide(e, tiles.sum(e, along, flag(keep)));
}

// Reductions and scans with a function of two elements.

const branches = ({ value: kernel }) => (kernel.branches ??= /"type":"(If|IfExp|While)"/.test(JSON.stringify(kernel.tree)));

/* `combine` of two lists of elements, one for each input, as a function that the kernel brings. */
function combiner(fn, machine) {
  const kernel = fn instanceof Const && fn.kind === "function" && fn.value.tree ? fn.value : fail("combine_fn must be marked with @triton.jit");
  return (a, b) => {
    const { watching, ran, turning } = machine;
    Object.assign(machine, { watching: null, ran: null, turning: null }); // elements are no variables of the kernel
    const found = listOf(kernel.call([...a, ...b], [], machine));
    Object.assign(machine, { watching, ran, turning });
    found.forEach((one, i) => {
      if (!(one instanceof Tensor)) fail("'constexpr' object has no attribute 'handle'");
      if (one.dtype !== a[i]?.dtype) fail(`the combine function gives ${one.type} where the input has ${a[i]?.type ?? "nothing"}`);
    });
    return found.length === a.length ? found : fail(`the combine function gives ${found.length} values, not ${a.length}`);
  };
}

function inputsOf(input) {
  const list = listOf(input).map(tile);
  if (!list.length) fail("tuple index out of range: there is no input");
  if (list.some((one) => one.shape.join() !== list[0].shape.join())) fail("all reduction inputs must have the same shape");
  return list;
}

/* Slice after slice along an axis: what `combine` has made of those before, with each one. */
function scanned(list, axis, combine, { reverse = false, oneByOne = false } = {}) {
  if (!list.every((one) => one.data)) {
    const [a, b] = [0, 1].map(() => list.map((one) => new Tensor(one.dtype, [], null)));
    combine(a, b);
    return tiles.slices(list[0], axis).map(() => list.map((one) => new Tensor(one.dtype, one.shape.toSpliced(axis, 1), null)));
  }
  const each = list.map((one) => tiles.slices(one, axis));
  const order = [...each[0].keys()];
  if (reverse) order.reverse();
  const found = [];
  let before = null;
  for (const i of order) {
    const now = each.map((one) => one[i]);
    if (!before) before = now;
    else if (oneByOne) before = elementwise(combine, before, now);
    else before = combine(before, now);
    found[i] = before;
  }
  return found;
}

/* A function with branches sees one element at a time. */
function elementwise(combine, a, b) {
  const [{ shape }] = a;
  const at = (list, i) => list.map((one) => new Tensor(one.dtype, [], one.data.slice(i, i + 1)));
  const found = Array.from({ length: count(shape) }, (_, i) => combine(at(a, i), at(b, i)));
  return a.map((_, k) => tiles.reshape(tiles.stacked(found.map((one) => one[k]), 0), shape));
}

const whole = (list) => list.map((one) => tiles.needsBlock(one) && tiles.reshape(one, [count(one.shape)]));

function reduce({ input, axis, combine_fn: fn, keep_dims: keep }, machine) {
  return reduced(inputsOf(input), axisOf(axis), flag(keep), combiner(fn, machine), branches(fn), input instanceof Tuple);
}

function reduced(list, axis, keep, combine, oneByOne = false, inTuple = false) {
  const along = axis === null ? 0 : tiles.inside(list[0], axis);
  const found = scanned(axis === null ? whole(list) : list, along, combine, { oneByOne }).at(-1);
  const shape = axis === null ? list[0].shape.map(() => 1) : list[0].shape.with(along, 1);
  const kept = keep ? found.map((one) => new Tensor(one.dtype, shape, one.data)) : found;
  return inTuple ? new Tuple(kept) : kept[0];
}

function scan(list, axis, combine, options) {
  const along = tiles.inside(list[0], axis);
  const found = scanned(list, along, combine, options);
  return list.map((_, k) => tiles.stacked(found.map((one) => one[k]), along));
}

function associativeScan({ input, axis, combine_fn: fn, reverse }, machine) {
  const found = scan(inputsOf(input), axisOf(axis), combiner(fn, machine), { reverse: flag(reverse), oneByOne: branches(fn) });
  return input instanceof Tuple ? new Tuple(found) : found[0];
}

/* What a sum is made in: small integers become 32 bits wide. */
function forSum(x, dtype) {
  const of = wider(x);
  if (dtype) return tiles.cast(tile(x), dtypeOf(dtype));
  return of.dtype.isInt && of.dtype.bits < 32 ? tiles.cast(of, of.dtype.unsigned ? uint32 : int32) : of;
}

const bits = (sign) => ({ input, axis, keep_dims: keep }) => {
  if (!tile(input).dtype.isInt) fail("only supported for integers");
  return reduced([tile(input)], axisOf(axis), flag(keep), ([a], [b]) => [tiles.bitwise(sign, a, b)]);
};

// Random numbers: Philox, whose bits are Triton's.

function philox({ seed, c0, c1, c2, c3, n_rounds: rounds }) {
  const key = tile(seed);
  if (!key.dtype.isInt) fail("static assertion failed: the seed is an integer");
  const counters = [c0, c1, c2, c3].map(tile);
  if (counters[0].dtype.bits !== 32) return lacking("Philox of 64-bit counters");
  const shape = [key, ...counters].map((one) => one.shape).reduce(tiles.sharedShape);
  const known = [key, ...counters].every((one) => one.data);
  const words = counters.map((one) => tiles.stretch(tiles.bitcast(one, uint32), shape)).map((one) => new Tensor(uint32, shape, one.data?.slice() ?? null));
  if (known) {
    const long = tiles.stretch(tiles.cast(key, int64), shape);
    const low = tiles.cast(long, uint32).data;
    const high = tiles.cast(tiles.bitwise(">>", long, int(32)), uint32).data;
    tiles.philox(words.map((one) => one.data), low, high, rounds === undefined ? 10 : constantInt(rounds, "n_rounds must be known when compiling"));
  }
  return new Tuple(words);
}

function randint4x({ seed, offset, n_rounds: rounds }) {
  const at = offset instanceof Tensor ? offset : fail(`'${pythonType(offset)}' object has no attribute 'to'`);
  const low = tiles.cast(at, uint32);
  const zero = tiles.mul(low, int(0));
  const high = at.dtype.bits > 32 ? tiles.cast(tiles.bitwise(">>", at, int(32)), uint32) : zero;
  return philox({ seed, c0: low, c1: high, c2: zero, c3: zero, n_rounds: rounds });
}

/* In [0, 1). */
function uniform(x) {
  if (tile(x).dtype.bits !== 32) return lacking("uniform numbers of 64 bits");
  const of = tiles.bitcast(tile(x), int32);
  const positive = tiles.where(tiles.compare("<", of, int(0)), tiles.sub(tiles.negative(of), int(1)), of);
  return tiles.mul(positive, float(4.6566127342e-10));
}

/* Box and Muller's: two normal numbers of two uniform ones. */
function normal(u1, u2) {
  const angle = tiles.mul(u2, float(6.283185307179586));
  const log = tiles.map("log", Math.log, tiles.extreme("max", tile(float(1e-7)), u1));
  const r = tiles.map("sqrt", Math.sqrt, tiles.mul(log, float(-2)));
  return [Math.cos, Math.sin].map((one) => tiles.mul(r, tiles.map("cos", one, angle)));
}

const four = (bound) => randint4x(bound).items;
const uniforms = (bound) => four(bound).map(uniform);
const OF_SEED = "seed offset n_rounds=";
const RANDOM = [
  ["philox", "seed c0 c1 c2 c3 n_rounds=", philox],
  ["randint4x", OF_SEED, randint4x],
  ["randint", OF_SEED, (bound) => four(bound)[0]],
  ["rand", OF_SEED, (bound) => uniform(four(bound)[0])],
  ["rand4x", "seed offsets n_rounds=", ({ offsets, ...rest }) => new Tuple(uniforms({ ...rest, offset: offsets }))],
  ["randn", OF_SEED, (bound) => normal(...uniforms(bound))[0]],
  ["randn4x", OF_SEED, (bound) => {
    const [a, b, c, d] = uniforms(bound);
    return new Tuple([...normal(a, b), ...normal(c, d)]);
  }],
  ["uint_to_uniform_float", "x", ({ x }) => uniform(x)],
  ["pair_uniform_to_normal", "u1 u2", ({ u1, u2 }) => new Tuple(normal(u1, u2))],
];

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
  ["flip", "x dim", ({ x, dim }) => {
    const along = tiles.inside(tile(x), axisOf(dim) ?? fail("tl.flip needs dim"));
    return tiles.stacked(tiles.slices(tile(x), along).toReversed(), along);
  }],
  ["join", "a b", ({ a, b }) => join(a, b)],
  ["split", "a", ({ a }) => {
    if (tile(a).shape.at(-1) !== 2) fail(`tl.split takes a tensor whose last dimension is 2, not ${shown(a)}`);
    return new Tuple(tiles.slices(a, a.shape.length - 1));
  }],
  ["interleave", "a b", ({ a, b }) => {
    const both = join(a, b);
    return tiles.reshape(both, both.shape.length > 1 ? [...both.shape.slice(0, -2), 2 * both.shape.at(-2)] : both.shape);
  }],
  ["cat", "input other can_reorder= dim=", ({ input, other, can_reorder: reorder, dim }) => {
    const [a, b] = sameType(input, other);
    if (a.shape.length !== b.shape.length) fail(`tensors must have the same rank, got ${a.shape.length} and ${b.shape.length}`);
    const along = tiles.inside(a, dim === undefined ? 0 : axisOf(dim));
    if (flag(reorder) && a.shape.length !== 1) fail("tl.cat with can_reorder takes one dimension");
    if (a.shape.some((n, axis) => n !== b.shape[axis] && (axis !== along || !flag(reorder)))) {
      fail(`tensor dims must match except in the concat dimension ${along}, got [${a.shape.join(", ")}] and [${b.shape.join(", ")}]`);
    }
    const found = tiles.stacked([a, b].flatMap((one) => tiles.slices(one, along)), along);
    return tiles.reshape(found, found.shape);
  }],
  ["squeeze", "x dim", ({ x, dim }) => {
    const along = axisOf(dim);
    if (tile(x).shape.at(along) !== 1) fail("static assertion failed: a squeezed dimension is 1");
    return tiles.reshape(x, x.shape.toSpliced(along, 1));
  }],
  ["unsqueeze", "x dim", ({ x, dim }) => tiles.reshape(tile(x), x.shape.toSpliced(axisOf(dim), 0, 1))],
  ["gather", "src index axis", ({ src, index, axis }) => {
    if (!(src instanceof Tensor && index instanceof Tensor && index.dtype.isInt)) fail("index must be an integer tensor");
    if (index.shape.length !== src.shape.length) fail("source and index tensors must have the same rank");
    const along = tiles.inside(src, axisOf(axis));
    src.shape.forEach((n, d) => {
      if (d !== along && n !== index.shape[d]) fail(`index dim ${along} must match the corresponding source dim`);
    });
    return tiles.gather(src, index, along);
  }],
  ["sort", "x dim= descending=", ({ x, dim, descending }) => tiles.sorted(lastOf(x, dim), flag(descending))],
  ["topk", "x k dim=", ({ x, k, dim }) => {
    const most = tiles.checkShape([constantInt(k, "k must be known when compiling")])[0];
    return tiles.sorted(lastOf(x, dim), true, Math.min(most, tile(x).shape.at(-1)));
  }],
  ["histogram", "input num_bins mask=", ({ input, num_bins: bins, mask }) => {
    const [of, n] = [tile(input), constantInt(bins, "num_bins must be known when compiling")];
    if (of.shape.length !== 1) fail("histogram only supports 1D input");
    if (!of.dtype.isInt) fail("histogram only supports integer input");
    const masked = mask && tiles.broadcastTo(tile(mask), of.shape);
    if (masked && masked.dtype !== int1) fail("Mask must have boolean scalar type");
    tiles.checkShape([n]);
    const data = of.data && new Int32Array(n);
    of.data?.forEach((bin, i) => {
      if (bin >= 0 && bin < n && (!masked || masked.data[i])) data[bin] += 1;
    });
    return new Tensor(int32, [n], data);
  }],
];

function sameType(a, b) {
  const [one, other] = [tile(a), tile(b)];
  return one.dtype === other.dtype ? [one, other] : fail(`both must be of one type, not ${one.type} and ${other.type}`);
}

function join(a, b) {
  const both = sameType(a, b);
  const shape = tiles.sharedShape(both[0].shape, both[1].shape);
  return tiles.stacked(both.map((one) => tiles.stretch(one, shape)), shape.length);
}

function lastOf(x, dim) {
  const of = tile(x);
  if (!of.isBlock || (dim !== undefined && axisOf(dim) !== of.shape.length - 1)) fail("only minor dimension is currently supported");
  return of;
}

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
    scan([forSum(input, dtype)], axisOf(axis) ?? 0, ([a], [b]) => [tiles.add(a, b)], { reverse: flag(reverse) })[0]],
  ["cumprod", "input axis= reverse=", ({ input, axis, reverse }) =>
    scan([wider(input)], axisOf(axis) ?? 0, ([a], [b]) => [tiles.mul(a, b)], { reverse: flag(reverse) })[0]],
  ["xor_sum", "input axis= keep_dims=", bits("^")],
  ["reduce_or", "input axis= keep_dims=", bits("|")],
  ["reduce", "input axis combine_fn keep_dims=", reduce],
  ["associative_scan", "input axis combine_fn reverse=", associativeScan],
  ["softmax", "x dim= keep_dims= ieee_rounding=", softmax],
];

const PRECISIONS = ["ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"];

function dot({ input, other, acc, input_precision: precision, out_dtype: into }, machine) {
  if (precision && !PRECISIONS.includes(precision.value.toLowerCase())) {
    fail(`input_precision must be one of ${PRECISIONS.join(", ")}. Got ${shown(precision)}`);
  }
  return tiles.dot(input, other, acc, into ? dtypeOf(into) : fp32, machine.leastK);
}

function axisNumber(axis, name) {
  const at = constantInt(axis, `${name} axis must be a number known when compiling`);
  if (at < 0 || at > 2) fail(`${name} axis must be 0, 1, or 2 but got ${at}`);
  return at;
}

function castTo({ input, dtype, bitcast, fp_downcast_rounding: rounding }) {
  const to = dtypeOf(dtype);
  if (rounding) {
    const of = tile(input).dtype;
    if (!["rtne", "rtz"].includes(rounding.value)) fail(`Invalid rounding mode: ${shown(rounding)}. Supported rounding modes are 'rtne' and 'rtz'.`);
    if (!(of.isFloat && to.isFloat && to.bits < of.bits)) fail("fp_downcast_rounding should be set only for truncating fp conversions.");
    if (rounding.value === "rtz") lacking("fp_downcast_rounding='rtz'");
  }
  if (isNumber(input)) return tiles.cast(toTensor(input), to);
  if (flag(bitcast)) return tiles.bitcast(tile(input), to);
  return tiles.cast(tile(input), to);
}

function staticAssert({ cond, msg }) {
  if (!(cond instanceof Const)) fail("Assertion condition could not be determined at compile-time. Make sure that it depends only on `constexpr` values");
  if (!cond.value) fail(msg ? shown(msg) : "static assertion failed");
  return NONE;
}

const descriptor = (value) =>
  value instanceof Descriptor && !(value instanceof BlockPointer) ? value : fail(`a tensor descriptor is needed, not ${shown(value)}`);

const nothing = () => NONE;
const hint = (least) => ({ input, values }) => {
  const list = listOf(values).map((value) => constantInt(value, "values element must have type `constexpr[int]`"));
  if (list.length !== Math.max(least, tile(input).shape.length)) fail("Shape of input does not match the length of values");
  return input;
};

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
  ...Object.entries(ATOMICS).map(([name, combine]) => [
    `atomic_${name}`,
    name === "cas" ? "pointer cmp val sem= scope=" : "pointer val mask= sem= scope=",
    atomic(name, combine),
  ]),
  ["to_tensor", "x", ({ x }) => tile(x)],
  ["where", "condition x y", ({ condition, x, y }) => {
    const made = tiles.where(tile(condition), x, y);
    if (made.data) meter.chosen += made.data.length;
    return made;
  }],
  ["dot", "input other acc= input_precision= allow_tf32= max_num_imprecise_acc= out_dtype=", dot],
  ["cast", "input dtype fp_downcast_rounding= bitcast=", castTo],
  ["cdiv", "x div", cdiv],
  ["broadcast", "input other", ({ input, other }) => {
    const shape = tiles.sharedShape(input.shape, other.shape);
    return new Tuple([tiles.stretch(input, shape), tiles.stretch(other, shape)]);
  }],
  ["make_tensor_descriptor", "base shape strides block_shape padding_option=", makeDescriptor],
  ["load_tensor_descriptor", "desc offsets", ({ desc, offsets }, machine) => descriptor(desc).load(offsets, machine)],
  ["store_tensor_descriptor", "desc offsets value", ({ desc, offsets, value }, machine) => descriptor(desc).store(offsets, value, machine)],
  ["make_block_ptr", "base shape strides offsets block_shape order", makeBlockPointer],
  ["advance", "base offsets", ({ base, offsets }) =>
    base instanceof BlockPointer ? base.advance(offsets) : fail(`tl.advance moves what tl.make_block_ptr makes, not ${shown(base)}`)],
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
  ["multiple_of", "input values", hint(1)],
  ["max_contiguous", "input values", hint(0)],
  ["max_constancy", "input values", hint(0)],
];

const LACKS = `
  bitonic_merge block_type condition const constexpr_type core dot_scaled dtype float8e4b15 float8e4b8 float8e4nv
  float8e5 float8e5b16 inline_asm_elementwise map_elementwise philox_impl pi32_t random slice standard str_to_ty
  swizzle2d target_info tensor tensor_descriptor tensor_descriptor_type tuple tuple_type void`;
const LIBDEVICE = `
  abs acos acosh asin asinh atan atan2 atanh brev byte_perm cbrt clz copysign cospi cyl_bessel_i0 cyl_bessel_i1
  double2hiint double2loint double_as_longlong erfc erfcinv erfcx erfinv exp10 fast_cosf fast_dividef fast_exp10f
  fast_expf fast_log10f fast_log2f fast_logf fast_powf fast_sinf fast_tanf fast_tanhf fdim ffs finitef float_as_int
  float_as_uint fma fmod hadd hiloint2double hypot ilogb int2double_rn int_as_float isfinited isinf isnan j0 j1 jn
  ldexp lgamma llrint llround log10 logb longlong_as_double mul24 mulhi nearbyint nextafter norm3d norm4d normcdf
  normcdfinv popc pow rcbrt rcp64h remainder rhadd rhypot rint rnorm3d rnorm4d round rsqrt_rn sad saturatef scalbn
  signbit sinpi tgamma trunc uint2double_rn uint_as_float y0 y1 yn`;
const IN_FOUR_WAYS = `
  add div double2float double2int double2ll double2uint double2ull float2int float2ll float2uint float2ull fma
  int2float ll2double ll2float mul rcp sqrt sub uint2float ull2double ull2float`.trim().split(/\s+/); // of rounding
const OF_TENSORS = `
  item abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or
  atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum erf exp exp2 expand_dims flip floor gather
  histogram log log2 max min permute ravel reduce reduce_or reshape rsqrt sigmoid sin softmax split sqrt
  sqrt_rn store sum trans view xor_sum`.trim().split(/\s+/);

const fn = (builtin) => new Const("function", builtin);
const make = (list) => list.map(([name, signature, call]) => [name, fn(new Builtin(name, signature, call))]);
/* `lacks`: names that Triton has there and this engine does not; a test holds them to Triton's. */
const moduleOf = (name, entries, lacks = "") =>
  new Const("module", { name, entries: new Map(entries), lacks: lacks.split(/\s+/).filter(Boolean) });

/* What a loop runs over; only `for` knows what to do with them. */
export const RANGES = {
  range: new Builtin("range", "", () => fail("range is what a `for` runs over")),
  static: new Builtin("static_range", "", () => fail("tl.static_range is what a `for` runs over")),
};
export const CONSTEXPR = new Builtin("constexpr", "value", ({ value }) =>
  value instanceof Const || value === undefined ? (value ?? NONE) : fail(`${shown(value)} is not known when compiling`),
);

const functions = make([...GENERAL, ...MATH, ...BEYOND_MATH, ...SHAPES, ...ALONG, ...RANDOM]);
const dtypes = Object.entries(BY_NAME).map(([name, dtype]) => [name, new Const("dtype", dtype)]);
const math = moduleOf("triton.language.math", make(MATH));

/* A launch begins when the last one has ended, so what waits for that has nothing to do. */
const CUDA = [["gdc_launch_dependents", "", nothing], ["gdc_wait", "", nothing]];
const libdevice = moduleOf(
  "triton.language.extra.libdevice",
  make([
    ...MATH.filter(([name]) => "exp exp2 log log2 sqrt rsqrt sin cos floor ceil erf".split(" ").includes(name)),
    ...["tan", "tanh", "sinh", "cosh", "log1p", "expm1"].map((name) => mapped(name, Math[name])),
  ]),
  LIBDEVICE + IN_FOUR_WAYS.map((name) => ` ${name}_rd ${name}_rn ${name}_ru ${name}_rz`).join(""),
);
const cuda = moduleOf("triton.language.extra.cuda", make(CUDA), "gdc utils convert_custom_float8_sm70 convert_custom_float8_sm80 globaltimer num_threads num_warps smid");
cuda.value.entries.set("libdevice", libdevice);
const extra = moduleOf("triton.language.extra", [["cuda", cuda], ["libdevice", libdevice]], "hip");
const NAN = moduleOf("triton.language.PropagateNan", ["NONE", "ALL"].map((name) => [name, new Const("option", name)]));

const language = moduleOf("triton.language", [
  ...functions,
  ...dtypes,
  ["range", fn(RANGES.range)],
  ["static_range", fn(RANGES.static)],
  ["constexpr", fn(CONSTEXPR)],
  ["math", math],
  ["extra", extra],
  ["PropagateNan", NAN],
  ["TRITON_MAX_TENSOR_NUMEL", int(MAX_ELEMENTS)],
  ...make([["pointer_type", "element_ty", ({ element_ty: of }) => new Const("dtype", pointerTo(dtypeOf(of)))]]),
], LACKS);

/* Python's math, for constants of a module. */
const pythonMath = moduleOf("math", [
  ...make(["log2", "log", "sqrt", "exp", "floor", "ceil"].map((name) => [name, "x", ({ x }) => {
    if (!isNumber(x)) fail(`must be real number, not ${pythonType(x)}`);
    const found = Math[name](x.value);
    if (!Number.isFinite(found) && Number.isFinite(x.value)) fail("math range error");
    return (/floor|ceil/.test(name) ? int : float)(found);
  }])),
  ["e", float(Math.E)],
  ["pi", float(Math.PI)],
  ["inf", float(Infinity)],
]);

const ofConstants = (one) => (bound) => {
  const list = Object.values(bound);
  return list.every(isNumber) ? int(one(...list.map((x) => x.value))) : fail("this function of triton takes what is known when compiling");
};

/* Names that every kernel's file has imported. Kernels run here as in Triton's interpreter. */
const runtime = moduleOf("triton.knobs.runtime", [["interpret", TRUE], ["debug", FALSE]]);
export const MODULES = {
  tl: language,
  triton: moduleOf("triton", [
    ["language", language],
    ["knobs", moduleOf("triton.knobs", [["runtime", runtime]])],
    ...make([
      ["cdiv", "x y", ofConstants((x, y) => Math.floor((x + y - 1) / y))],
      ["next_power_of_2", "n", ofConstants((n) => 2 ** Math.ceil(Math.log2(n)))],
    ]),
  ]),
  math: pythonMath,
};

function plainNumber(name, { x }) {
  if (x === undefined) return name === "float" ? float(0) : int(0);
  if (x.kind !== "str" && !isNumber(x)) fail(`${name}() argument must be a string or a real number, not '${pythonType(x)}'`);
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
  make([
    ["float", "x=", (bound) => plainNumber("float", bound)],
    ["int", "x=", (bound) => plainNumber("int", bound)],
    ...["isinstance", "getattr", "hasattr", "list"].map((name) => [name, "*values", () => lacking(name)]),
    ["len", "x", ({ x }) => (x instanceof Tuple ? int(x.items.length) : fail(`object of type '${pythonType(x)}' has no len()`))],
    ["min", "*values", (bound) => amongNumbers("min", bound)],
    ["max", "*values", (bound) => amongNumbers("max", bound)],
    ["print", "*values", nothing],
  ]),
).set("range", fn(RANGES.range));

// Attributes of values.

const MEMBERS = new Map(functions.filter(([name]) => OF_TENSORS.includes(name)));
const DTYPE_TESTS = {
  is_floating: (dtype) => dtype.isFloat,
  is_ptr: (dtype) => dtype.isPointer,
  is_int: (dtype) => dtype.isInt,
  is_bool: (dtype) => dtype === int1,
  is_fp8: () => false,
  is_standard_floating: (dtype) => dtype.isFloat,
  is_int_signed: (dtype) => dtype.isInt && !dtype.unsigned,
  is_int_unsigned: (dtype) => dtype.isInt && dtype.unsigned,
  ...Object.fromEntries(Object.values(BY_NAME).map((one) => [`is_${one.name}`, (dtype) => dtype === one])), // is_fp16, is_int32, …
};

function ofDtype({ value: dtype, block }, name) {
  if (name === "is_block") return fn(new Builtin(name, "", () => bool(block)));
  if (block && name === "shape") return new Tuple(block.map(int));
  if (block && name === "element_ty") return new Const("dtype", dtype);
  if (name in DTYPE_TESTS) return fn(new Builtin(name, "", () => bool(DTYPE_TESTS[name](dtype))));
  if (name === "int_bitwidth" && dtype.isInt) return int(dtype.bits);
  if (name === "fp_mantissa_width" && dtype.isFloat) return int(dtype.mantissa);
  if (name === "primitive_bitwidth") return int(dtype.bits);
  if (name === "itemsize") return int(dtype.size);
  if (name === "scalar") return new Const("dtype", dtype);
  if (name === "name") return new Const("str", dtype.name);
  if (name === "element_ty" && dtype.isPointer) return new Const("dtype", dtype.element);
  return null;
}

const bind = (self, { value: builtin }) => fn({ name: builtin.name, call: (args, keywords, machine) => builtin.call([self, ...args], keywords, machine) });

const TO = fn(new Builtin("to", "input dtype fp_downcast_rounding= bitcast=", castTo));

function ofTensor(value, name) {
  if (name === "dtype") return new Const("dtype", value.dtype);
  if (name === "type") return Object.assign(new Const("dtype", value.dtype), value.isBlock && { block: value.shape });
  if (name === "shape") return new Tuple(value.shape.map(int));
  if (name === "numel") return int(count(value.shape));
  if (name === "T") return tiles.permute(value, [1, 0]);
  if (name === "to") return bind(value, TO);
  if (name === "logical_and" || name === "logical_or") {
    const both = ({ other }) => tiles.bitwise(name.endsWith("and") ? "&" : "|", tiles.truth(value), tiles.truth(tile(other)));
    return fn(new Builtin(name, "other", both));
  }
  if (name === "item" && count(value.shape) === 1) return fn(new Builtin("item", "", () => new Tensor(value.dtype, [], value.data)));
  return MEMBERS.has(name) ? bind(value, MEMBERS.get(name)) : null;
}

function ofDescriptor(value, name) {
  if (value instanceof BlockPointer) {
    if (name === "dtype" || name === "type") return new Const("dtype", pointerTo(value.dtype));
    return ["advance", "store"].includes(name) ? bind(value, MEMBERS.get(name)) : null;
  }
  if (name.startsWith("atomic_") && name.slice(7) in ATOMICS && name !== "atomic_xchg" && name !== "atomic_cas") {
    return fn(new Builtin(name, "offsets value", (bound, machine) => value.atomic(name.slice(7), bound.offsets, bound.value, machine)));
  }
  if (name === "gather" || name === "scatter") lacking(`tensor_descriptor.${name}`);
  if (name === "shape") return new Tuple(value.shape.map((n) => tiles.cast(n, int32)));
  if (name === "strides") return new Tuple(value.strides);
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
    if (!found && value.value.lacks.includes(name)) lacking(`${value.value.name.replace("triton.language", "tl")}.${name}`);
    if (!found) fail(`module '${value.value.name}' has no attribute '${name}'`);
  } else if (value instanceof Const && value.kind === "dtype") found = ofDtype(value, name);
  else if (value instanceof Tuple) found = value.items[value.fields.indexOf(name)];
  else if (value instanceof Const && name === "value") found = value;
  if (!found) fail(`'${value instanceof Descriptor ? "tensor_descriptor" : pythonType(value)}' object has no attribute '${name}'`);
  return found;
}

/* Of each module the names that this engine has, and those that it lacks. A test compares them with Triton's. */
export const MODULE_NAMES = Object.fromEntries(
  [language, cuda, libdevice, math].map(({ value: { name, entries, lacks } }) => [name, { has: [...entries.keys()], lacks }]),
);
MODULE_NAMES["triton.language.tensor"] = { has: OF_TENSORS, lacks: [] };
