/* Right or wrong, and which known mistake a wrong result is.

   What each mistake would return on each problem was worked out in Python and stored as fingerprints:
   sums of some rows of the result. A mistake is named if one of its ways matches on every problem that it
   says something of, a wrong one among them. Where nothing but NaN or 0 came out of the wrong ones, much would
   match: then it takes one of the room's own wrong variants. Nothing here knows what a mistake is. */
import { halves } from "./packed.js";

const PRINTED = 5; // rows that a fingerprint tells, as in snippets/_lab/probe/launches.py
const CLOSE = 4e-3; // of the sum's size: float16 has 11 bits

/* Which rows are told, and a column's weight. */
const rowsTold = (last) => {
  const between = Array.from({ length: PRINTED - 3 }, (_, i) => Math.floor((last * i) / (PRINTED - 3)));
  const all = new Set([0, 1, last - 1, last, ...between]);
  return [...all].filter((row) => row >= 0 && row <= last).sort((a, b) => a - b);
};
const weight = (column) => 1 + ((column * 5) % 7) / 7;

const UNREAL = 512; // counts for what is no number, and
const INFINITE = 8192; // for an infinity

function counted(x) {
  if (x !== x) return UNREAL;
  return Number.isFinite(x) ? x : Math.sign(x) * INFINITE;
}

/* Of what came out of a problem, or (`which` is "expected") of what should have. */
function fingerprint(outputs, which = "got") {
  return outputs.flatMap(({ [which]: values, shape }) => {
    const columns = shape.at(-1);
    return rowsTold(values.length / columns - 1).map((row) => {
      let [sum, size] = [0, 0];
      for (let column = 0; column < columns; column += 1) {
        const term = weight(column) * counted(values[row * columns + column]);
        sum += term;
        size += Math.abs(term);
      }
      return { sum, size };
    });
  });
}

const LARGEST = 65504; // of float16

function alike(sums, print) {
  return (
    sums.length === print.length &&
    print.every((want, i) => {
      const { sum, size } = sums[i];
      if (Math.abs(sum) > LARGEST) return Math.sign(sum) * Infinity === want || Math.abs(want) > LARGEST / 1.01;
      return Math.abs(sum - want) <= CLOSE * Math.max(size, Math.abs(want), 0.05);
    })
  );
}

/* What may be said comes in this order: zeros are certain; what the room's own variant confirms; what says
   something of most problems; and a model knows more kernels than one variant does. */
const byRank = (a, b) => (b.row.mistake === "zeros") - (a.row.mistake === "zeros")
  || b.confirmed - a.confirmed || b.said - a.said || (b.row.source === "model") - (a.row.source === "model");
const isBlank = (x) => x !== x || x === 0;

/* Of each problem with fingerprints: whether its result is right, which of them it is like, and which of
   them cannot be told from the right result; null for one that did not run. */
export function likeness(results, file) {
  const problems = file.rows.filter((row) => row.prints && row.problem);
  return problems.map((problem) => {
    const same = (one) => one.name === problem.problem && one.group === problem.group && one.file === problem.file;
    const result = results.find(same);
    if (!result || result.error) return null;
    const prints = problem.prints.map(halves);
    const [sums, rights] = [fingerprint(result.outputs), fingerprint(result.outputs, "expected")];
    return {
      right: result.outputs.every((output) => output.right),
      blank: result.outputs.every(({ got }) => got.every(isBlank)),
      like: prints.map((print) => alike(sums, print)),
      harmless: prints.map((print) => alike(rights, print)),
    };
  });
}

/* The mistakes that explain what these problems gave, [{name, sentence, source}]. */
export function explain(results, file) {
  const mistakes = file.rows.filter((row) => row.mistake);
  const seen = likeness(results, file);
  if (!seen.some((one) => one && !one.right)) return [];
  /* {said, told}: of how many problems a way says something, and how many wrong ones it explains, of which not
     all is NaN or 0; nothing unless it is right about all of them and explains one. */
  const saidBy = (numbers) => {
    let [said, told, matched] = [0, 0, 0];
    for (const [i, number] of numbers.entries()) {
      if (number < 0 || !seen[i]) continue;
      if (!seen[i].like[number]) return null;
      said += 1;
      if (seen[i].right || seen[i].harmless[number]) continue;
      matched += 1;
      told += seen[i].blank ? 0 : 1;
    }
    return matched ? { said, told } : null;
  };
  const found = mistakes.map((row) => ({ row, ways: row.prints.map(saidBy).filter(Boolean) })).filter(({ ways }) => ways.length);
  const own = new Set(found.filter(({ row }) => row.source === "variant").map(({ row }) => row.mistake));
  return found
    .map(({ row, ways }) => ({
      row, confirmed: own.has(row.mistake), said: Math.max(...ways.map((way) => way.said)), told: ways.some((way) => way.told),
    }))
    .filter(({ row, confirmed, told }) => told || confirmed || row.mistake === "zeros")
    .sort(byRank)
    .map(({ row: { mistake, sentence, source } }) => ({ name: mistake, sentence, source }));
}

/* The first line of a text that the original does not have at its place. */
export function changedLine(source, original) {
  if (!original) return null;
  const [now, before] = [source.split("\n"), original.split("\n")];
  const at = now.findIndex((line, i) => line.trim() !== (before[i] ?? "").trim());
  if (at >= 0) return at + 1;
  return before.length > now.length ? now.length : null;
}

/* What to tell a reader of the problems that were run. */
export function judge(source, results, file, original) {
  const wrong = results
    .filter((result) => !result.right)
    .map((result) => ({
      problem: result.name,
      group: result.group,
      cells: result.outputs.reduce((sum, { wrong: cells }) => sum + cells.reduce((a, b) => a + b, 0), 0),
    }));
  const names = explain(results, file);
  const [first, ...others] = names;
  const mistake = first ? { ...first, line: changedLine(source, original), others } : null;
  return { right: wrong.length === 0, mistake, wrong };
}
