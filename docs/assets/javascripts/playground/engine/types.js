/* Triton's element types and the rules by which two of them become one. */
import { KernelError } from "./errors.js";

const KIND = { bool: 0, int: 1, float: 2 };

export class DType {
  constructor(name, kind, bits, array, mantissa = 0) {
    this.name = name; // Triton's: fp32, int1, …
    this.kind = KIND[kind];
    this.bits = bits;
    this.size = Math.max(1, bits >> 3); // bytes
    this.array = array; // what holds its numbers
    this.mantissa = mantissa;
    this.isFloat = kind === "float";
    this.isInt = !this.isFloat && kind !== "pointer";
    this.isPointer = false;
    this.unsigned = this.isInt && (kind === "bool" || name[0] === "u");
  }
  toString() {
    return this.name;
  }
}

class PointerType extends DType {
  constructor(element) {
    super(`pointer<${element.name}>`, "pointer", 64, Float64Array);
    this.element = element;
    this.isPointer = true;
  }
}

export const int1 = new DType("int1", "bool", 1, Uint8Array);
export const int8 = new DType("int8", "int", 8, Int8Array);
export const int16 = new DType("int16", "int", 16, Int16Array);
export const int32 = new DType("int32", "int", 32, Int32Array);
// Numbers of 64 bits are doubles: exact up to 2^53, and beyond it they are refused.
export const int64 = new DType("int64", "int", 64, Float64Array);
export const uint8 = new DType("uint8", "int", 8, Uint8Array);
export const uint16 = new DType("uint16", "int", 16, Uint16Array);
export const uint32 = new DType("uint32", "int", 32, Uint32Array);
export const uint64 = new DType("uint64", "int", 64, Float64Array);
export const fp16 = new DType("fp16", "float", 16, Float32Array, 10);
export const bf16 = new DType("bf16", "float", 16, Float32Array, 7);
export const fp32 = new DType("fp32", "float", 32, Float32Array, 23);
export const fp64 = new DType("fp64", "float", 64, Float64Array, 52);

/* As the language and PyTorch call them. */
export const BY_NAME = {
  int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
  float16: fp16, bfloat16: bf16, float32: fp32, float64: fp64,
};

const pointers = new Map();
export function pointerTo(element) {
  if (!pointers.has(element)) pointers.set(element, new PointerType(element));
  return pointers.get(element);
}

const word = new DataView(new ArrayBuffer(4));

/* The nearest number of float16, of two the even one. */
export function toHalf(x) {
  const size = Math.abs(x);
  if (!(size < 65520)) return size === size ? Math.sign(x) * Infinity : NaN;
  if (size === 0) return x;
  // One unit in the last place: 2^-24 below 2^-14, then 2^-10 of the power of two.
  const unit = 2 ** (Math.max(-14, exponentOf(size)) - 10);
  return roundEven(x / unit) * unit;
}

/* The nearest number of bfloat16: float32 whose last 16 bits are zero. */
export function toBfloat(x) {
  if (x !== x) return x;
  word.setFloat32(0, x);
  const bits = word.getUint32(0);
  word.setUint32(0, (bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000);
  return word.getFloat32(0);
}

function exponentOf(size) {
  word.setFloat32(0, size);
  return ((word.getUint32(0) >>> 23) & 255) - 127;
}

function roundEven(x) {
  const down = Math.floor(x);
  const rest = x - down;
  return rest > 0.5 || (rest === 0.5 && down % 2) ? down + 1 : down;
}

/* Round what was computed in more digits to the type, in place. */
export function settle(dtype, data) {
  const round = dtype === fp16 ? toHalf : dtype === bf16 ? toBfloat : null;
  if (round) for (let i = 0; i < data.length; i += 1) data[i] = round(data[i]);
  return data;
}

/* Integers of 64 bits that an operation gave. */
export function checkWide(dtype, data) {
  const low = dtype.unsigned ? 0 : Number.MIN_SAFE_INTEGER;
  for (const x of data) {
    if (x < low || x > Number.MAX_SAFE_INTEGER) {
      throw new KernelError(`${x} as ${dtype}: this page's engine knows integers up to 2^53 only`, "limit");
    }
  }
}

export function promoteIntegers(a, b) {
  if (a.unsigned === b.unsigned) return a.bits > b.bits ? a : b;
  if (a.unsigned) return a.bits >= b.bits ? a : b;
  return b.bits >= a.bits ? b : a;
}

/* The type in which two operands are combined; `aScalar`: it is a number known when compiling. */
export function commonType(a, aScalar, b, bScalar, division) {
  if (aScalar !== bScalar) {
    const [scalar, tensor] = aScalar ? [a, b] : [b, a];
    if (scalar.kind <= tensor.kind) {
      return division && (tensor === fp16 || tensor === bf16) ? fp32 : tensor;
    }
  }
  if (a === fp64 || b === fp64) return fp64;
  if (a === fp32 || b === fp32) return fp32;
  if (a === fp16 || b === fp16) return division ? fp32 : fp16;
  if (a === bf16 && b === bf16) return division ? fp32 : bf16;
  if (a === bf16 || b === bf16) return fp32;
  if (division && a.unsigned !== b.unsigned) {
    throw new KernelError(
      `Cannot use /, #, or % with ${a} and ${b} because they have different signedness;` +
        "this is unlikely to result in a useful answer. Cast them to the same signedness.",
    );
  }
  return promoteIntegers(a, b);
}

/* The range of an integer type. */
export function rangeOf(dtype) {
  if (dtype.unsigned) return [0, 2 ** dtype.bits - 1];
  return [-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1];
}
