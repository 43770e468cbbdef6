/* The same numbers added in four orders, with the bits of each sum: a field for the numbers and a list of sums
   come into its box, below the sentence there. A number is rounded to float32 after each addition. */
import { make, partsOf } from "../site/dom.js";

const FRAME = `
  <textarea data-part="numbers" aria-label="Numbers to add" rows="2" spellcheck="false"></textarea>
  <dl class="am-sums-list" data-part="list"></dl>
  <p data-part="said" role="status"></p>`;
export const NUMBERS = [1.9, -2.0, 0.9, -1.4, 1.9, -1.9, 1.5, 0.7, 1.4, 2.0, -1.0, -0.6, 0.8, -0.9, -0.9, -1.1];
const THREADS = 4;

const inTurn = (numbers) => numbers.reduce((sum, next) => Math.fround(sum + next));

function inPairs(numbers) {
  if (numbers.length === 1) return numbers[0];
  const half = 2 ** Math.floor(Math.log2(numbers.length - 1)); // what is left over joins late
  return Math.fround(inPairs(numbers.slice(0, half)) + inPairs(numbers.slice(half)));
}

const byThreads = (numbers) => inPairs(
  Array.from({ length: Math.min(THREADS, numbers.length) }, (_, i) => inTurn(numbers.filter((__, n) => n % THREADS === i))),
);

const ORDERS = {
  "first to last": inTurn,
  "last to first": (numbers) => inTurn(numbers.toReversed()),
  "in pairs": inPairs,
  "four threads, then their sums": byThreads,
};

export const bitsOf = (sum) => new Uint32Array(Float32Array.of(sum).buffer)[0].toString(16).padStart(8, "0");

export function sumsOf(numbers) {
  const rounded = numbers.map(Math.fround);
  return Object.entries(ORDERS).map(([name, add]) => ({ name, sum: add(rounded) }));
}

function show(parts) {
  const numbers = parts.numbers.value.split(/[\s,;]+/).filter(Boolean).map(Number);
  const bad = !numbers.length || numbers.some((number) => !Number.isFinite(number));
  const sums = bad ? [] : sumsOf(numbers);
  parts.list.replaceChildren(...sums.flatMap(({ name, sum }) => [
    make("dt", { textContent: name }),
    make("dd", { textContent: `${sum.toFixed(7)} ${bitsOf(sum)}` }),
  ]));
  const different = new Set(sums.map(({ sum }) => bitsOf(sum))).size;
  parts.said.textContent = bad
    ? "Write numbers with commas between them."
    : `${numbers.length} numbers, ${different} ${different === 1 ? "sum" : "different sums"}.`;
}

export function start(box) {
  const frame = make("div", { innerHTML: FRAME });
  const parts = partsOf(frame);
  parts.numbers.value = NUMBERS.join(", ");
  parts.numbers.addEventListener("input", () => show(parts));
  box.append(frame);
  show(parts);
}
