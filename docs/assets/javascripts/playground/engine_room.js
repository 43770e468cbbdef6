/* The worker in which kernels run. It answers each message, in order; one that takes longer than it may is ended
   with its worker, and the next message starts a new one. */
const SCRIPT = new URL("./engine/worker.js", import.meta.url);
const LIMIT_MS = 3000; // of one problem, inside the worker
const COUNT_MS = 20_000; // of one program of a launch as large as those that are timed
const GRACE_MS = 500;

export class Stopped extends Error {}

/* script: of the worker, if it is another. */
export function engineRoom(script = SCRIPT) {
  let worker;
  let next = 0;
  const waiting = new Map(); // id -> {resolve, reject, timer}

  function end(error) {
    worker?.terminate();
    worker = undefined;
    for (const { reject, timer } of waiting.values()) {
      clearTimeout(timer);
      reject(error);
    }
    waiting.clear();
  }

  function begin() {
    worker = new Worker(script, { type: "module" });
    worker.addEventListener("message", ({ data }) => {
      const asked = waiting.get(data.id);
      if (!asked) return;
      waiting.delete(data.id);
      clearTimeout(asked.timer);
      if ("failure" in data) asked.reject(new Error(`The interpreter failed: ${data.failure}`));
      else asked.resolve(data.result);
    });
    worker.addEventListener("error", (event) => end(new Error(event.message || "The worker could not be started.")));
  }

  function ask(message, milliseconds = LIMIT_MS) {
    if (!worker) begin();
    const id = (next += 1);
    return new Promise((resolve, reject) => {
      const tooLong = `Stopped after ${(milliseconds + GRACE_MS) / 1000} seconds.`;
      const timer = setTimeout(() => end(new Error(tooLong)), milliseconds + GRACE_MS);
      waiting.set(id, { resolve, reject, timer });
      worker.postMessage({ id, ...message }, []); // a worker has no origin to name
    });
  }

  return {
    plan: (source, problems, given) => ask({ task: "plan", source, problems, given }, COUNT_MS),
    parse: (source) => ask({ task: "parse", source }),
    run: (source, problem, options = {}) => ask({
      task: "problem", source, problem, options: { maxMilliseconds: LIMIT_MS, ...options },
    }),
    launch: (source, kernel, task) => ask({
      task: "run", source, kernel, ...task, options: { maxMilliseconds: COUNT_MS, maxSteps: 1e9, firstNaN: false },
    }, COUNT_MS),
    stop: () => end(new Stopped("Stopped.")),
    end: () => end(new Stopped("Closed.")),
  };
}
