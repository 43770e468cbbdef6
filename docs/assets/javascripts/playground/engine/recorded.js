/* What a page needs of recorded problems before the worker runs them. Apart from problems.js, which brings the
   interpreter: that is in the worker, and once is enough. */

/* The recorded problems of a page, in their order. */
export function problemsOf(file) {
  return file.rows
    .filter((row) => row.problem)
    .map((row) => ({ ...row, name: row.problem, kernels: [...new Set(row.launches.map((launch) => launch.kernel))] }));
}
