/* Where things stand on the stage, in cells: a cell is a number of a matrix. Kᵀ above the scores, Vᵀ below,
   Q to the left, what is collected and the output to the right; under all of it the memories. */
const EDGE = 0.7;
const STRIP = 4.6; // how high the memories are

export function layoutOf({ M, N, D, collected, strip = STRIP }) {
  const qx = EDGE + 0.6; // the numbers of the rows stand before
  const sx = qx + D + 1.7;
  const collectedWide = 2.1;
  const mx = sx + N + 0.8;
  const ax = mx + collected.length * (collectedWide + 0.15) + 0.35;
  const ky = 1.7;
  const sy = ky + D + 1.5;
  const vy = sy + M + 1.6;
  const my = vy + D + 1.1;
  return {
    qx, sx, mx, ax, ky, sy, vy, my, collectedWide, edge: EDGE, strip,
    wide: ax + D + EDGE, tall: my + strip + 0.3,
  };
}
