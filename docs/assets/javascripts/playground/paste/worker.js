/* The engine for kernels from elsewhere, with what works out how they are launched. Apart from the other worker, which
   is fetched for every kernel; like it, this one evaluates no text, imports nothing and asks nobody. */
import { parse } from "../engine/index.js";
import { runProblem } from "../engine/problems.js";
import { plan } from "./plan.js";

const TASKS = {
  parse: ({ source }) => parse(source),
  plan: ({ source, problems, given }) => plan(source, problems, given),
  problem: ({ source, problem, options }) => runProblem(source, problem, options),
};

addEventListener("message", ({ data }) => {
  try {
    postMessage({ id: data.id, result: TASKS[data.task](data) });
  } catch (error) {
    postMessage({ id: data.id, failure: `${error}` });
  }
});
