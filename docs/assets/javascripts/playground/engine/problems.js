/* The fixed problems of a page: what its launcher launches, recorded in Python, and what comes out. */
import { run } from "./index.js";

export function problemsOf(file) {
  return file.rows.filter((row) => row.problem);
}

export function runProblem(source, problem, options) {
  return run(source, problem.kernel, { grid: problem.grid, args: problem.args, options });
}
