/* The fixed problems of a page: what its launcher launches, as it was recorded, and what must come out.

   A problem is a row of docs/data/interpreter/<post>/problems.json: storages with the inputs in them,
   launches with their grid and arguments, and the outputs with the right result. */
import { run } from "./index.js";
import { bytes, halves } from "./packed.js";

const INT8_NAN = -128;
const ARRAYS = { float64: Float64Array, int64: Float64Array, int32: Int32Array, bool: Uint8Array };

const arrayOf = (dtype) => ARRAYS[dtype] ?? Float32Array;

/* The numbers of an input, in the order of its elements. */
function numbers({ int8, step, int32, float32 }) {
  if (int8 !== undefined) return Array.from(new Int8Array(bytes(int8)), (x) => (x === INT8_NAN ? NaN : x * step));
  return int32 === undefined ? new Float32Array(bytes(float32)) : new Int32Array(bytes(int32));
}

/* Places of a tensor's elements in its storage. */
function placesOf({ shape, strides, offset }) {
  let places = [offset];
  shape.forEach((n, axis) => {
    places = places.flatMap((place) => Array.from({ length: n }, (_, i) => place + i * strides[axis]));
  });
  return places;
}

function filled(storage) {
  const Numbers = arrayOf(storage.dtype);
  const data = new Numbers(storage.size);
  if (data instanceof Float32Array || storage.dtype === "float64") data.fill(NaN);
  if (!storage.shape) return data; // nobody has written it yet
  const values = numbers(storage);
  placesOf(storage).forEach((place, i) => {
    data[place] = values[i];
  });
  return data;
}

/* One argument of a launch; tensors get their storage. */
function argument(value, name, problem, data) {
  const own = (place) => {
    const storage = problem.storages[place.storage];
    const output = problem.outputs.some((one) => one.storage === place.storage);
    const given = Boolean(storage.shape); // an input is called as the launcher calls it
    return {
      ...place,
      dtype: storage.dtype,
      data: data[place.storage],
      name: given ? storage.name : name.replace(/_ptr$/, ""),
      output: output && !given,
    };
  };
  if (value?.storage !== undefined) return own(value);
  return value?.descriptor ? { ...value, descriptor: own(value.descriptor) } : value;
}

function added(total, counts) {
  const sum = {};
  for (const key of Object.keys(counts)) sum[key] = (total[key] ?? 0) + counts[key];
  const heavier = !total.perProgram || counts.perProgram?.flops > total.perProgram.flops;
  return { ...sum, perProgram: heavier ? counts.perProgram : total.perProgram };
}

/* Run a text's kernels as the problem's launcher launches them, and compare. */
export function runProblem(source, problem, options = {}) {
  const data = problem.storages.map(filled);
  const result = {
    name: problem.name,
    title: problem.title,
    group: problem.group,
    file: problem.file,
    error: null,
    faults: [],
    accesses: [],
    steps: [],
    counts: { perProgram: null },
    milliseconds: 0,
  };
  for (const [number, launch] of problem.launches.entries()) {
    const args = Object.fromEntries(
      Object.entries(launch.args).map(([name, value]) => [name, argument(value, name, problem, data)]),
    );
    const one = run(source, launch.kernel, { grid: launch.grid, args, options });
    result.milliseconds += one.milliseconds;
    result.faults.push(...one.faults);
    result.accesses.push(...one.accesses.map((access) => ({ ...access, launch: number })));
    result.steps.push(...one.steps);
    if (one.counts) result.counts = added(result.counts, one.counts);
    if (one.error) {
      result.error = { ...one.error, kernel: launch.kernel };
      break;
    }
  }
  result.outputs = problem.outputs.map((output, i) => compared(output, i, problem, data));
  result.right = !result.error && !result.faults.length && result.outputs.every((output) => output.right);
  return result;
}

function compared(output, i, problem, data) {
  const expected = output.float16 ? Float32Array.from(halves(output.float16)) : new Float32Array(bytes(output.float32));
  const storage = data[output.storage];
  const got = Float32Array.from(placesOf(output), (place) => storage[place]);
  const wrong = new Uint8Array(got.length);
  let largest = 0;
  got.forEach((x, at) => {
    const apart = x === expected[at] ? 0 : Math.abs(x - expected[at]); // an infinity equals itself
    if (!(apart <= output.allowed)) wrong[at] = 1;
    if (!(apart <= largest)) largest = apart;
  });
  return {
    name: problem.outputs.length > 1 ? `result ${i + 1}` : "result",
    dtype: problem.storages[output.storage].dtype,
    shape: output.shape,
    got,
    expected,
    wrong,
    allowed: output.allowed,
    largest,
    right: !wrong.includes(1),
  };
}
