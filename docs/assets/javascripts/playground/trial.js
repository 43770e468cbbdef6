/* A text, tried on its kernel's problems: what the panel does after Run, and a test without a panel. */
import { judge } from "./engine/verdict.js";
import { placed, sentenceOf } from "./outcome.js";

/* A kernel's text with the other kernels that the same launches need. */
export const whole = (kernel, source) => (kernel.rest ? `${source}\n\n\n${kernel.rest}` : source);

/* room: where kernels run; kernel: {name, text, rest} as the page has it; recorded: {problems, file}.
   begins(problem, at) and ends(result, at) hear of each problem. {says, results, error?, mistake?}: what to tell. */
export async function tried(room, source, { kernel, recorded, begins, ends }) {
  const { problems, file } = recorded;
  const { error, kernels } = await room.parse(source);
  if (error) return { says: placed(error), results: [], error };
  if (!kernels.some(({ name }) => name === kernel.name)) {
    const names = kernels.map(({ name }) => name).join(", ") || "none";
    const message = `The kernel must be named ${kernel.name}; @triton.jit functions here: ${names}.`;
    return { says: message, results: [], error: { line: 0, message } };
  }
  const results = [];
  for (const [at, problem] of problems.entries()) {
    begins?.(problem, at);
    const result = await room.run(whole(kernel, source), problem);
    results.push(result);
    ends?.(result, at);
    if (result.error?.kind === "limit") break; // the others would not end either
  }
  const right = results.filter((result) => result.right).length;
  if (right === problems.length) return { says: `Right on all ${right} problems.`, results };
  const says = `Right on ${right} of ${problems.length} problems. ${sentenceOf(results.find((result) => !result.right))}`;
  // What mistakes return is known of the page's kernels, and not of an exercise's own.
  const known = problems.some((problem) => problem.prints);
  const { mistake } = known ? judge(whole(kernel, source), results, file, whole(kernel, kernel.text)) : {};
  return { says, results, mistake };
}

/* The names of other mistakes that leave the same. */
export const alikeTo = ({ name, others }) => [...new Set(others.map((one) => one.name))].filter((other) => other !== name);
