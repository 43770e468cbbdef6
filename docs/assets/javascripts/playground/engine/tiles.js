/* The arithmetic of tiles: element by element with broadcasting, along an axis, and as a matrix product.

   Each operation first finds the type and the shape of its result as Triton's front end does, with its
   refusals, and then the numbers, if there are any (see Tensor). Numbers are computed as doubles and
   rounded once to the type: sums and products of matrices are the exact ones, rounded, whatever the
   order in which a GPU adds. */
import { KernelError, fail, lacking } from "./errors.js";
import { meter } from "./meter.js";
import {
  bf16, checkWide, commonType, fp16, fp32, fp64, int1, int32, int64, int8, promoteIntegers, rangeOf, settle, uint32, uint8,
} from "./types.js";
import { MAX_ELEMENTS, Tensor, count, isNumber, scalar, toTensor, typeOfNumber } from "./values.js";

function checkShape(shape) {
  shape.forEach((n, i) => {
    if (!Number.isInteger(n) || n < 1 || (n & (n - 1)) !== 0) fail(`Shape element ${i} must be a power of 2`);
  });
  const elements = count(shape);
  if (elements > MAX_ELEMENTS) {
    fail(`numel (${elements}) exceeds triton maximum tensor numel (${MAX_ELEMENTS})`);
  }
  return shape;
}

function tensor(dtype, shape, known, make) {
  const elements = count(shape);
  if (elements > MAX_ELEMENTS) checkShape(shape);
  meter.spend(known ? elements : 0);
  if (!known) return new Tensor(dtype, shape, null);
  meter.largest = Math.max(meter.largest, elements);
  const data = new dtype.array(elements);
  make(data, elements);
  if (dtype.bits === 16 && dtype.isFloat) settle(dtype, data);
  else if (dtype.bits === 64 && dtype.isInt) checkWide(dtype, data);
  return new Tensor(dtype, shape, data);
}

// Types.

function cast(x, dtype) {
  if (x.dtype === dtype) return x;
  const from = x.dtype;
  if (from.isPointer && dtype.isInt && dtype.bits !== 64 && dtype.bits !== 1) {
    fail(`cannot cast ${x.type} to ${dtype}`);
  }
  if ((from.isPointer && dtype.isFloat) || (from.isFloat && dtype.isPointer)) fail(`cannot cast ${x.type} to ${dtype}`);
  if (from.isPointer && dtype.isPointer) return new Tensor(dtype, x.shape, x.data);
  return tensor(dtype, x.shape, x.data, (out, n) => {
    const { data } = x;
    if (dtype === int1) for (let i = 0; i < n; i += 1) out[i] = data[i] !== 0 ? 1 : 0;
    else if (dtype.isInt && from.isFloat) {
      const [low, high] = rangeOf(dtype.bits < 32 ? int32 : dtype); // as a GPU converts: what is too large becomes the largest
      for (let i = 0; i < n; i += 1) out[i] = Math.trunc(Math.min(Math.max(data[i], low), high)) || 0;
    }
    else for (let i = 0; i < n; i += 1) out[i] = data[i];
  });
}

// Shapes.

/* shape → shape → for each element of the second its place in the first; a shape of ones in front. */
const places = new Map();
function placesOf(from, to) {
  const key = `${from}>${to}`;
  let found = places.get(key);
  if (found) return found;
  const ones = to.length - from.length;
  let step = 1;
  const steps = to.map(() => 0);
  for (let i = from.length - 1; i >= 0; i -= 1) {
    if (from[i] !== 1) steps[i + ones] = step;
    step *= from[i];
  }
  found = permuted(to, steps);
  if (places.size > 500) places.clear();
  places.set(key, found);
  return found;
}

/* Places of the elements of a tile whose axes have these steps. */
function permuted(shape, steps) {
  const found = new Int32Array(count(shape));
  const index = shape.map(() => 0);
  let at = 0;
  for (let i = 0; i < found.length; i += 1) {
    found[i] = at;
    for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
      at += steps[axis];
      index[axis] += 1;
      if (index[axis] < shape[axis]) break;
      at -= steps[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return found;
}

const same = (a, b) => a.length === b.length && a.every((n, i) => n === b[i]);

const withOnes = (shape, rank) => [...Array.from({ length: rank - shape.length }, () => 1), ...shape];

function sharedShape(a, b) {
  if (!a.length || same(a, b)) return b;
  if (!b.length) return a;
  const rank = Math.max(a.length, b.length);
  const left = withOnes(a, rank);
  const right = withOnes(b, rank);
  return left.map((n, i) => {
    if (n === 1) return right[i];
    if (right[i] !== 1 && right[i] !== n) {
      fail(`Cannot make_shape_compatible: incompatible dimensions at index ${i}: ${n} and ${right[i]}`);
    }
    return n;
  });
}

/* The tile stretched to a shape that it is compatible with; a scalar fills it. */
function stretch(x, shape) {
  if (same(x.shape, shape)) return x;
  const size = count(shape);
  if (x.data && x.data.length === size) return new Tensor(x.dtype, shape, x.data); // ones in front
  return tensor(x.dtype, shape, x.data, (out, n) => {
    if (x.data.length === 1) return void out.fill(x.data[0]);
    const from = placesOf(x.shape, shape);
    const { data } = x;
    for (let i = 0; i < n; i += 1) out[i] = data[from[i]];
  });
}

function broadcastTo(x, shape) {
  checkShape(shape);
  if (!x.isBlock) return stretch(x, shape);
  if (x.shape.length !== shape.length) fail(`Cannot broadcast, rank mismatch: [${x.shape.join(", ")}], [${shape.join(", ")}]`);
  x.shape.forEach((n, i) => {
    if (n !== 1 && n !== shape[i]) {
      fail(
        `Cannot broadcast, the expanded size of the tensor (${shape[i]}) must match the existing size (${n}) ` +
          `at non-singleton dimension ${i}: [${x.shape.join(", ")}], [${shape.join(", ")}]`,
      );
    }
  });
  return stretch(x, shape);
}

function expandDims(x, axis) {
  return new Tensor(x.dtype, x.shape.toSpliced(axis, 0, 1), x.data);
}

function reshape(x, shape) {
  if (count(shape) !== count(x.shape)) fail("reshape() cannot change total number of elements in tensor");
  checkShape(shape);
  return new Tensor(x.dtype, shape, x.data);
}

function permute(x, dims) {
  if (dims.length !== x.shape.length) {
    fail(`permute dims must have the same length as input shape, got ${x.shape.length} and ${dims.length}`);
  }
  if (![...dims].sort((a, b) => a - b).every((n, i) => n === i)) {
    fail(`permute dims must be a permutation of 0, 1, ..., n-1, but were (${dims.join(", ")})`);
  }
  const steps = x.shape.map((_, i) => count(x.shape.slice(i + 1)));
  const shape = dims.map((d) => x.shape[d]);
  return tensor(x.dtype, shape, x.data, (out, n) => {
    const from = permuted(shape, dims.map((d) => steps[d]));
    for (let i = 0; i < n; i += 1) out[i] = x.data[from[i]];
  });
}

function full(shape, value, dtype) {
  checkShape(shape);
  const one = value instanceof Tensor ? cast(value, dtype) : numberAs(value, dtype);
  if (one.isBlock) fail("Cannot splat a block tensor");
  return shape.length ? stretch(one, shape) : one;
}

function arange(start, end) {
  if (end <= start) fail("arange's end argument must be greater than the start argument");
  const n = end - start;
  if ((n & (n - 1)) !== 0) fail("arange's range must be a power of 2");
  checkShape([n]);
  return tensor(int32, [n], true, (out) => {
    for (let i = 0; i < n; i += 1) out[i] = start + i;
  });
}

// Element by element.

/* A number known when compiling as a scalar of a type. */
function numberAs(value, dtype) {
  const number = Number(value.value);
  const one = new Float64Array([dtype.isInt && !Number.isInteger(number) ? Math.trunc(number) : number]);
  return cast(new Tensor(fp64, [], one), dtype);
}

function wrongTypes(a, b) {
  fail(`invalid operands of type ${a} and ${b}`);
}

/* Both operands in one type; what is allowed depends on the operation. */
function unified(left, right, { pointerLeft = false, pointerRight = false, division = false } = {}) {
  const [leftNumber, rightNumber] = [isNumber(left), isNumber(right)];
  const a = leftNumber ? typeOfNumber(left) : operand(left).dtype;
  const b = rightNumber ? typeOfNumber(right) : operand(right).dtype;
  for (const [one, other, allowed] of [[a, b, pointerLeft], [b, a, pointerRight]]) {
    if (one.isPointer && (!allowed || (other.isPointer && other !== one) || other.isFloat)) wrongTypes(one, other);
  }
  if (a.isPointer || b.isPointer) return [toTensor(left), toTensor(right)];
  const dtype = commonType(a, leftNumber, b, rightNumber, division);
  for (const value of [left, right]) {
    if (!isNumber(value) || !dtype.isInt) continue;
    const number = Number(value.value);
    const [low, high] = rangeOf(dtype);
    if (dtype.unsigned && number < 0) {
      fail(
        "Cannot perform a binary operation between an unsigned tensor and a negative scalar. " +
          "Perform a explicit cast on one of them.",
      );
    }
    if (number < low || number > high) fail(`Scalar ${number} is out of range for type ${dtype}`);
  }
  return [
    leftNumber ? numberAs(left, dtype) : cast(left, dtype),
    rightNumber ? numberAs(right, dtype) : cast(right, dtype),
  ];
}

function operand(value) {
  if (value instanceof Tensor) return value;
  return toTensor(value); // says what it is
}

// The loops. A scalar has step 0. Each has a loop of its own, so that each is compiled for itself.
const LOOPS = {
  add(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] + y[i * sy];
  },
  sub(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] - y[i * sy];
  },
  mul(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] * y[i * sy];
  },
  imul(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = Math.imul(x[i * sx], y[i * sy]);
  },
  div(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] / y[i * sy];
  },
  idiv(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = Math.trunc(x[i * sx] / whole(y[i * sy]));
  },
  rem(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] % y[i * sy];
  },
  irem(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] % whole(y[i * sy]);
  },
  lt(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] < y[i * sy] ? 1 : 0;
  },
  le(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] <= y[i * sy] ? 1 : 0;
  },
  eq(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] === y[i * sy] ? 1 : 0;
  },
  ne(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) out[i] = x[i * sx] !== y[i * sy] ? 1 : 0;
  },
  max(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) {
      const [a, b] = [x[i * sx], y[i * sy]];
      out[i] = a > b || b !== b ? a : b; // a NaN gives way
    }
  },
  min(x, sx, y, sy, out, n) {
    for (let i = 0; i < n; i += 1) {
      const [a, b] = [x[i * sx], y[i * sy]];
      out[i] = a < b || b !== b ? a : b;
    }
  },
};

function whole(divisor) {
  if (divisor === 0) throw new KernelError("integer division by zero", "runtime");
  return divisor;
}

const FLOPS = new Set(["add", "sub", "mul", "div", "max", "min"]);
const ONE_BIT = new Set(["add", "sub"]); // 1 + 1 wraps to 0

function combine(loop, a, b, dtype) {
  const shape = sharedShape(a.shape, b.shape);
  const known = a.data && b.data;
  if (known && a.dtype.isFloat && FLOPS.has(loop)) meter.flops += count(shape);
  const spread = (x) => (x.data.length === 1 ? [x.data, 0] : [stretch(x, shape).data, 1]);
  return tensor(dtype, shape, known, (out, n) => {
    const [x, sx] = spread(a);
    const [y, sy] = spread(b);
    LOOPS[dtype === int1 && ONE_BIT.has(loop) ? "ne" : loop](x, sx, y, sy, out, n);
  });
}

function add(left, right) {
  let [a, b] = unified(left, right, { pointerLeft: true, pointerRight: true });
  if (a.dtype.isPointer && b.dtype.isPointer) fail("cannot add pointers together");
  if (b.dtype.isPointer) [a, b] = [b, a];
  if (a.dtype.isPointer) return combine("add", a, inBytes(b, a.dtype.element.size), a.dtype);
  return combine("add", a, b, a.dtype);
}

/* Offsets in elements as offsets in bytes. */
function inBytes(x, size) {
  return tensor(int64, x.shape, x.data, (out, n) => {
    for (let i = 0; i < n; i += 1) out[i] = x.data[i] * size;
  });
}

function sub(left, right) {
  const [a, b] = unified(left, right, { pointerLeft: true });
  if (a.dtype.isPointer) return add(a, negative(b));
  return combine("sub", a, b, a.dtype);
}

function mul(left, right) {
  const [a, b] = unified(left, right);
  return combine(a.dtype.isInt && a.dtype.bits === 32 ? "imul" : "mul", a, b, a.dtype);
}

function trueDivide(left, right) {
  let [a, b] = unified(left, right, { division: true });
  if (a.dtype.isInt) [a, b] = [cast(a, fp32), cast(b, fp32)];
  return combine("div", a, b, a.dtype);
}

function floorDivide(left, right) {
  const [a, b] = unified(left, right, { division: true });
  if (!a.dtype.isInt) fail(`unexpected type ${a.dtype}`);
  return combine("idiv", a, b, promoteIntegers(a.dtype, b.dtype));
}

function remainder(left, right) {
  const [a, b] = unified(left, right, { division: true });
  return combine(a.dtype.isInt ? "irem" : "rem", a, b, a.dtype);
}

function extreme(which, left, right) {
  const [a, b] = unified(left, right);
  return combine(which, a, b, a.dtype);
}

const FLIPPED = { ">": "lt", ">=": "le" };
const STRAIGHT = { "<": "lt", "<=": "le", "==": "eq", "!=": "ne" };

function compare(operator, left, right) {
  const [a, b] = unified(toTensor(left), toTensor(right)); // a number has a type of its own here
  if (operator in FLIPPED) return combine(FLIPPED[operator], b, a, int1);
  return combine(STRAIGHT[operator], a, b, int1);
}

/* Of numbers as of big integers; `>>` keeps the sign, `>>>` does not. */
const BITS = {
  "&": (a, b) => a & b,
  "|": (a, b) => a | b,
  "^": (a, b) => a ^ b,
  "<<": (a, b) => a << b,
  ">>": (a, b) => a >> b,
};

function bitwise(sign, left, right) {
  const [a, b] = unified(left, right);
  if (!a.dtype.isInt || !b.dtype.isInt) wrongTypes(a.dtype, b.dtype);
  const { dtype } = a;
  const shape = sharedShape(a.shape, b.shape);
  const { bits } = dtype;
  const shift = sign === "<<" || sign === ">>";
  const keepsSign = !(left instanceof Tensor ? left : right).dtype.unsigned;
  const bit = BITS[sign];
  const wide = (x, y) => Number(BigInt.asIntN(64, bit(BigInt(x), BigInt(y))));
  const signed = (x) => (bits === 64 ? x : (x << (32 - bits)) >> (32 - bits));
  const one = bits === 64 ? wide : sign !== ">>" ? bit : keepsSign ? (x, y) => signed(x) >> y : (x, y) => x >>> y;
  return tensor(dtype, shape, a.data && b.data, (out, n) => {
    const [x, y] = [stretch(a, shape).data, stretch(b, shape).data];
    for (let i = 0; i < n; i += 1) {
      if (!shift || (y[i] >= 0 && y[i] < bits)) out[i] = one(x[i], y[i]);
      else out[i] = sign === ">>" && keepsSign && signed(x[i]) < 0 ? -1 : 0; // by all bits or more
    }
  });
}

function negative(x) {
  if (x.dtype.isPointer) fail(`wrong type argument to unary minus (${x.dtype})`);
  return combine("sub", scalar(x.dtype, 0), x, x.dtype);
}

function invert(x) {
  if (x.dtype.isPointer || x.dtype.isFloat) fail(`wrong type argument to unary invert (${x.dtype})`);
  return bitwise("^", x, scalar(x.dtype, x.dtype.unsigned ? rangeOf(x.dtype)[1] : -1));
}

/* `not x`, and the operands of `and` and `or`: only of int1, as a bitcast to it takes nothing else. */
function truth(x) {
  if (x.dtype.isPointer) return cast(x, int1);
  if (x.dtype !== int1) fail(`Cannot bitcast data-type of size ${x.dtype.bits} to data-type of size 1`);
  return x;
}

/* A function of floats, element by element. */
function map(name, one, x, allowed = (dtype) => dtype.isFloat) {
  if (!allowed(x.dtype)) fail(`Expected dtype ['fp32', 'fp64'] but got ${x.dtype}`);
  if (x.data && x.dtype.isFloat) meter.flops += x.data.length;
  return tensor(x.dtype, x.shape, x.data, (out, n) => {
    const { data } = x;
    for (let i = 0; i < n; i += 1) out[i] = one(data[i]);
  });
}

function where(condition, left, right) {
  const choice = cast(condition, int1);
  const [a, b] = unified(left, right, { pointerLeft: true, pointerRight: true });
  const shape = sharedShape(choice.shape, sharedShape(a.shape, b.shape));
  return tensor(a.dtype, shape, choice.data && a.data && b.data, (out, n) => {
    const spread = (x) => (x.data.length === 1 ? [x.data, 0] : [stretch(x, shape).data, 1]);
    const [c, sc] = spread(choice);
    const [x, sx] = spread(a);
    const [y, sy] = spread(b);
    for (let i = 0; i < n; i += 1) out[i] = c[i * sc] ? x[i * sx] : y[i * sy];
  });
}

// Along an axis.

const needsBlock = (x) => x.isBlock || fail(`'dtype' object has no attribute 'numel': a scalar of ${x.type} has no axis`);

const inside = (x, axis) => {
  needsBlock(x);
  const rank = x.shape.length;
  if (axis >= rank || axis < -rank) fail(`reduction axis must be < inputs rank (${rank})`);
  return axis < 0 ? axis + rank : axis;
};

function reduced(x, axis, keep, dtype, one) {
  needsBlock(x);
  if (axis === null) {
    const flat = new Tensor(x.dtype, [count(x.shape)], x.data);
    const all = reduced(flat, 0, false, dtype, one);
    return keep ? new Tensor(dtype, x.shape.map(() => 1), all.data) : all;
  }
  const along = inside(x, axis);
  const length = x.shape[along];
  const inner = count(x.shape.slice(along + 1));
  const shape = keep ? x.shape.with(along, 1) : x.shape.toSpliced(along, 1);
  meter.spend(x.data ? x.data.length : 0);
  return tensor(dtype, shape, x.data, (out, n) => {
    for (let i = 0; i < n; i += 1) {
      const start = Math.floor(i / inner) * length * inner + (i % inner);
      out[i] = one(x.data, start, inner, length);
    }
  });
}

function total(data, start, step, length) {
  let result = 0;
  for (let i = 0, at = start; i < length; i += 1, at += step) result += data[at];
  return result;
}

function sum(x, axis, keep, dtype) {
  const into = dtype ?? (x.dtype.isInt && x.dtype.bits < 32 ? (x.dtype.unsigned ? uint32 : int32) : x.dtype);
  if (x.dtype.isPointer) fail(`unexpected type ${x.dtype}`);
  if (x.data && into.isFloat) meter.flops += x.data.length;
  return reduced(cast(x, into), axis, keep, into, total);
}

/* Of the largest (sign 1) or smallest (-1) element its place; of equal ones the first. */
function place(sign) {
  return (data, start, step, length) => {
    let best = -1;
    for (let i = 0, at = start; i < length; i += 1, at += step) {
      const value = data[at];
      if (value === value && (best < 0 || sign * (value - data[start + best * step]) > 0)) best = i;
    }
    return Math.max(best, 0);
  };
}
const PLACES = { max: place(1), min: place(-1) };

/* The largest or smallest along an axis. A NaN gives way to a number. */
function most(which, x, axis, keep, narrow = false) {
  if (x.dtype.isPointer) fail(`unexpected type ${x.dtype}`);
  const small = x.dtype.bits < 32 && (!narrow || x.dtype === bf16); // beside its place a small number stays one
  const into = small ? (x.dtype.isFloat ? fp32 : int32) : x.dtype;
  if (x.data && into.isFloat) meter.flops += x.data.length;
  const find = PLACES[which];
  return reduced(cast(x, into), axis, keep, into, (data, start, step, length) => data[start + find(data, start, step, length) * step]);
}

function placeOfMost(which, x, axis, keep) {
  return reduced(x, axis, keep, int32, PLACES[which]);
}

/* The slices of a tile along an axis, and a tile of such slices. */
function slices(x, axis) {
  const inner = count(x.shape.slice(axis + 1));
  const shape = x.shape.toSpliced(axis, 1);
  return Array.from({ length: x.shape[axis] }, (_, i) =>
    tensor(x.dtype, shape, x.data, (out, n) => {
      for (let k = 0; k < n; k += 1) out[k] = x.data[(Math.floor(k / inner) * x.shape[axis] + i) * inner + (k % inner)];
    }),
  );
}

function stacked(list, axis) {
  const [{ dtype, shape }] = list;
  const inner = count(shape.slice(axis));
  return tensor(dtype, shape.toSpliced(axis, 0, list.length), list.every((one) => one.data), (out) => {
    list.forEach(({ data }, i) => {
      for (let k = 0; k < data.length; k += 1) out[(Math.floor(k / inner) * list.length + i) * inner + (k % inner)] = data[k];
    });
  });
}

/* What `index` says of each line along an axis. */
function gather(x, index, axis) {
  const [from, to] = [x.shape[axis], index.shape[axis]];
  const inner = count(x.shape.slice(axis + 1));
  return tensor(x.dtype, index.shape, x.data && index.data, (out, n) => {
    for (let i = 0; i < n; i += 1) {
      const at = index.data[i];
      if (at < 0 || at >= from) throw new KernelError(`tl.gather takes index ${at} of ${from} elements`, "runtime");
      out[i] = x.data[(Math.floor(i / inner / to) * from + at) * inner + (i % inner)];
    }
  });
}

/* Each row in order; with `k` its first k. */
function sorted(x, descending, k = x.shape.at(-1)) {
  const length = x.shape.at(-1);
  return tensor(x.dtype, [...x.shape.slice(0, -1), k], x.data, (out, n) => {
    for (let row = 0; row < n / k; row += 1) {
      const line = x.data.slice(row * length, (row + 1) * length).sort();
      out.set((descending ? line.toReversed() : line).subarray(0, k), row * k);
    }
  });
}

/* The same bits as another type. */
function bitcast(x, to) {
  const from = x.dtype;
  if (from === to || from.isPointer || to.isPointer) return cast(x, to);
  if (from.bits !== to.bits) fail(`Cannot bitcast data-type of size ${from.bits} to data-type of size ${to.bits}`);
  if (from.isInt && to.isInt) return cast(x, to);
  if (from.bits !== 32) lacking(`a bitcast of ${from}`);
  return new Tensor(to, x.shape, x.data && new to.array(x.data.slice().buffer));
}

const high16 = (x) => Math.floor(x / 65536);
const highProduct = (a, b) => high16(high16(b) * a + high16((b & 0xffff) * a)); // the upper 32 bits of 64

/* Rounds of Philox: four counters, each a list of 32-bit words, mixed in place under a key of two words. */
function philox([c0, c1, c2, c3], low, high, rounds) {
  for (let i = 0; i < c0.length; i += 1) {
    let [a, b, c, d, k, l] = [c0[i], c1[i], c2[i], c3[i], low[i], high[i]];
    for (let round = 0; round < rounds; round += 1) {
      const [p, q] = [a, c];
      a = (highProduct(q, 0xcd9e8d57) ^ b ^ k) >>> 0;
      b = Math.imul(q, 0xcd9e8d57) >>> 0;
      c = (highProduct(p, 0xd2511f53) ^ d ^ l) >>> 0;
      d = Math.imul(p, 0xd2511f53) >>> 0;
      k = (k + 0x9e3779b9) >>> 0;
      l = (l + 0xbb67ae85) >>> 0;
    }
    [c0[i], c1[i], c2[i], c3[i]] = [a, b, c, d];
  }
}

/* The upper half of a product. */
function umulhi(left, right) {
  const [a, b] = unified(left, right);
  if (a.dtype.bits > 32) lacking("umulhi of 64 bits");
  const shape = sharedShape(a.shape, b.shape);
  return tensor(a.dtype, shape, a.data && b.data, (out, n) => {
    const [x, y] = [stretch(a, shape).data, stretch(b, shape).data];
    for (let i = 0; i < n; i += 1) out[i] = highProduct(x[i] >>> 0, y[i] >>> 0);
  });
}

// Matrix products.

const PRODUCTS = new Set([int8, uint8, fp16, bf16, fp32, fp64]);

function dot(a, b, acc, into, leastK) {
  if (!(a instanceof Tensor && b instanceof Tensor && a.isBlock && b.isBlock)) fail("tl.dot takes two tiles");
  if (!PRODUCTS.has(a.dtype)) fail(`Unsupported lhs dtype ${a.dtype}`);
  if (!PRODUCTS.has(b.dtype)) fail(`Unsupported rhs dtype ${b.dtype}`);
  if (a.dtype !== b.dtype) fail(`Both operands must be same dtype. Got ${a.dtype} and ${b.dtype}`);
  const rank = a.shape.length;
  if (rank !== b.shape.length || (rank !== 2 && rank !== 3)) {
    fail(`Both inputs must be either 2D or 3D; (lhs: [${a.shape.join(", ")}] vs rhs: [${b.shape.join(", ")}])`);
  }
  const [M, K] = a.shape.slice(-2);
  const [K2, N] = b.shape.slice(-2);
  if (K !== K2) {
    fail(
      `First input shape ([${a.shape.join(", ")}]) and second input shape [${b.shape.join(", ")}] are not compatible ` +
        `for matmul (second index of first shape (${K}) must be equal to first index of second shape (${K2})`,
    );
  }
  const least = leastK ?? (a.dtype.bits === 8 ? 32 : 16); // on NVIDIA GPUs
  if (K < least) fail(`Input shapes should have M >= 1, N >= 1 and K >= ${least}`);
  if (a.dtype === uint8) fail("only int8 supported!");
  if (into === bf16) {
    fail("out_dtype=bfloat16 is unsupported. Please use out_dtype=float32/float16 and cast with `.to(tl.bfloat16)`");
  }
  const dtype = a.dtype.isInt ? int32 : a.dtype === fp32 || a.dtype === bf16 ? fp32 : a.dtype === fp64 ? fp64 : into;
  const B = rank === 3 ? a.shape[0] : 1;
  const shape = rank === 3 ? [B, M, N] : [M, N];
  if (acc && (!same(acc.shape, shape) || acc.dtype !== (a.dtype.isInt ? dtype : into))) {
    fail(`the accumulator of tl.dot is ${acc.type}; it must be <[${shape.join(", ")}], ${dtype}>`);
  }
  const known = a.data && b.data && (!acc || acc.data);
  if (known) {
    meter.spend(B * M * N * K);
    meter.flops += 2 * B * M * N * K;
  }
  return tensor(dtype, shape, known, (out) => {
    const row = new Float64Array(N);
    for (let m = 0; m < B * M; m += 1) {
      if (acc) for (let n = 0; n < N; n += 1) row[n] = acc.data[m * N + n];
      else row.fill(0);
      const under = Math.floor(m / M) * K * N;
      for (let k = 0; k < K; k += 1) {
        const factor = a.data[m * K + k];
        const from = under + k * N;
        for (let n = 0; n < N; n += 1) row[n] += factor * b.data[from + n];
      }
      out.set(row, m * N);
    }
  });
}

export const tiles = {
  add, arange, bitcast, bitwise, broadcastTo, cast, checkShape, compare, dot, expandDims, extreme, floorDivide, full, gather, inside, invert, map, most, mul, needsBlock, negative, permute, philox, placeOfMost, remainder, reshape, sharedShape, slices, sorted, stacked, stretch, sub, sum, trueDivide, truth, umulhi, where,
};
