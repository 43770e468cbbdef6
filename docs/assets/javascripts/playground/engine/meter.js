/* How much a run may do, and how much it has done. One kernel runs at a time in a worker. */
import { KernelError } from "./errors.js";

const LOOK = 1 << 17; // steps between two looks at the clock
const EACH = 16; // an operation costs at least so many steps, however small its tile is

export const meter = {
  steps: 0,
  most: Infinity,
  until: Infinity,
  next: LOOK,
  milliseconds: 0,
  begin(maxSteps, maxMilliseconds) {
    this.steps = 0;
    this.flops = 0;
    this.chosen = 0; // by tl.where
    this.largest = 0; // tile
    this.most = maxSteps;
    this.milliseconds = maxMilliseconds;
    this.until = performance.now() + maxMilliseconds;
    this.next = LOOK;
  },
  spend(elements) {
    this.steps += elements + EACH;
    if (this.steps < this.next) return;
    this.next = this.steps + LOOK;
    if (this.steps > this.most) {
      const steps = this.most.toLocaleString("en");
      throw new KernelError(`stopped after ${steps} steps: an endless loop, or too much for this page`, "limit");
    }
    if (performance.now() > this.until) {
      throw new KernelError(
        `stopped after ${this.milliseconds / 1000} s: an endless loop, or too much for this page`,
        "limit",
      );
    }
  },
};
