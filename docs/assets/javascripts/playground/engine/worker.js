/* The engine beside the page: one message, one answer, in order. The page ends it when it takes too long.

   The page's policy, a meta tag, does not bind a worker; so nothing here evaluates text, imports what it
   is told, or asks the network (a test reads what is shipped). */
import { parse, run } from "./index.js";
import { MODULE_NAMES } from "./language.js";
import { runProblem } from "./problems.js";

const TASKS = {
  parse: ({ source }) => parse(source),
  run: ({ source, kernel, grid, args, options }) => run(source, kernel, { grid, args, options }),
  modules: () => MODULE_NAMES,
  problem: ({ source, problem, options }) => runProblem(source, problem, options),
};

addEventListener("message", ({ data }) => {
  try {
    postMessage({ id: data.id, result: TASKS[data.task](data) });
  } catch (error) {
    postMessage({ id: data.id, failure: `${error}` });
  }
});
