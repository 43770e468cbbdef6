/* What a kernel computes with: tiles and scalars with their numbers, and what is known when compiling. */
import { KernelError } from "./errors.js";
import { fp32, fp64, int1, int32, int64, uint32, uint64 } from "./types.js";

export const MAX_ELEMENTS = 1_048_576; // of a tile: Triton's limit

/* A tile, or with shape [] a scalar. Without data it stands for all values of its type: what the check
   before a run computes with. Nothing changes the numbers of a tile that exists, so tiles share them. */
export class Tensor {
  constructor(dtype, shape, data) {
    this.dtype = dtype;
    this.shape = shape;
    this.data = data;
  }
  get isBlock() {
    return this.shape.length > 0;
  }
  get type() {
    return typeName(this.dtype, this.shape);
  }
}

export function typeName(dtype, shape) {
  return shape.length ? `<[${shape.join(", ")}], ${dtype.name}>` : dtype.name;
}

/* A value known when compiling. kind: int, float, bool, str, none, dtype, function, module or option. */
export class Const {
  constructor(kind, value) {
    this.kind = kind;
    this.value = value;
  }
}

export class Tuple {
  constructor(items, fields = []) {
    this.items = items;
    this.fields = fields; // their names, of a named tuple
  }
  map(one) {
    return new Tuple(this.items.map(one), this.fields);
  }
}

export const NONE = new Const("none", null);
export const TRUE = new Const("bool", true);
export const FALSE = new Const("bool", false);
export const bool = (value) => (value ? TRUE : FALSE);
export const int = (value) => new Const("int", value);
export const float = (value) => new Const("float", value);

export const isNumber = (value) =>
  value instanceof Const && (value.kind === "int" || value.kind === "float" || value.kind === "bool");
export const isNone = (value) => value instanceof Const && value.kind === "none";

export const count = (shape) => shape.reduce((product, n) => product * n, 1);

const PYTHON = { int: "int", float: "float", bool: "bool", str: "str", none: "NoneType", dtype: "dtype" };
export const pythonType = (value) =>
  value instanceof Tensor ? "tensor" : value instanceof Tuple ? "tuple" : (PYTHON[value.kind] ?? value.kind);

/* As Python prints it. */
export function shown(value) {
  if (value instanceof Tensor) return value.type;
  if (value instanceof Tuple) return `(${value.items.map(shown).join(", ")})`;
  if (value.kind === "bool") return value.value ? "True" : "False";
  if (value.kind === "none") return "None";
  if (value.kind === "float") return floatShown(value.value);
  return String(value.value?.name ?? value.value);
}

function floatShown(x) {
  if (x !== x) return "nan";
  if (!Number.isFinite(x)) return x < 0 ? "-inf" : "inf";
  return Number.isInteger(x) && Math.abs(x) < 1e16 ? x.toFixed(1) : String(x);
}

const SMALLEST = 2 ** -126;
const LARGEST = (2 - 2 ** -23) * 2 ** 127;

/* The type that a number known when compiling takes among tensors. */
export function typeOfNumber({ kind, value }) {
  if (kind === "bool") return int1;
  if (kind === "int") {
    if (value >= -(2 ** 31) && value < 2 ** 31) return int32;
    if (value >= 2 ** 31 && value < 2 ** 32) return uint32;
    if (value >= -(2 ** 63) && value < 2 ** 63) return int64;
    if (value >= 2 ** 63 && value < 2 ** 64) return uint64;
    throw new KernelError(`Nonrepresentable integer ${value}.`);
  }
  const size = Math.abs(value);
  return size === 0 || !Number.isFinite(value) || (size >= SMALLEST && size <= LARGEST) ? fp32 : fp64;
}

export function scalar(dtype, value) {
  const data = new dtype.array(1);
  data[0] = value;
  return new Tensor(dtype, [], data);
}

export function toTensor(value) {
  if (value instanceof Tensor) return value;
  if (isNumber(value)) return scalar(typeOfNumber(value), Number(value.value));
  throw new KernelError(`cannot convert ${shown(value)} of type <class '${pythonType(value)}'> to tensor`);
}
