/* The picture of the scene: a program at work on its rows of the matrix of scores.

   What exists in HBM stands on plates at the edge. The lane across the middle is the chip: the block of queries at its
   left, the tile that slides along, and what is collected at its right. Squares are numbers: their area is the size, a
   hollow one is negative. Of the matrix of scores only the tile exists; what is drawn behind it is what its keys weigh
   so far, which shrinks when the maximum moves. */
import { colorsOf, contextOf, mix, part, pen } from "./canvas.js";
import { layoutOf } from "./layout.js";
import { memories } from "./memories.js";
import { bytes, number } from "./numbers.js";
import { roles } from "./roles_stage.js";

const BAND = 0.8; // how high a tile of keys is that lies on the chip
const LETTER = 0.66; // how wide a digit with its share of the margin is, of its height
const NUMBERS_FROM = 15; // pixels of a cell, from which its lane has room for numbers

const largestOf = (rows) => Math.max(1e-9, ...rows.flat().filter(Number.isFinite).map(Math.abs));
const UNIT = { q: 1, k: 1, v: 1 }; // where squares are no numbers

export function stage(canvas, ground, script) { // ground: all that never moves, drawn once
  const at = layoutOf(script);
  const { M, N, D, first, block: rows, steps } = script;
  const most = {
    ...(script.kind === "roles" ? UNIT : { q: largestOf(script.q), k: largestOf(script.k), v: largestOf(script.v) }),
    scores: largestOf(steps.flatMap((s) => s.scores ?? [])),
    weights: largestOf(steps.flatMap((s) => s.weights ?? [])),
    acc: largestOf(steps.flatMap((s) => s.state?.acc ?? [])),
  };
  const top = at.sy + first; // of the lane
  let size = 0;
  let colors;
  let fonts;
  let small;

  function measure() {
    const style = getComputedStyle(canvas);
    fonts = { sans: style.getPropertyValue("--am-sans") || "sans-serif", mono: style.getPropertyValue("--am-mono") || "monospace" };
    colors = colorsOf(canvas);
    size = canvas.clientWidth / at.wide;
    small = Math.max(script.kind === "roles" ? 11.5 : 9, Math.min(11, size), Math.min(12, size * 0.62)); // a phone leaves no more room
  }

  /* Whether the size and the colors are still those that were measured. */
  const fits = () => size === canvas.clientWidth / at.wide && colors.paper === colorsOf(canvas).paper;

  function plate(draw, x, y, wide, tall, color, name, where) {
    draw.box(x - 0.25, y - 0.25, wide + 0.5, tall + 0.5, { fill: color, alpha: 0.1, round: 0.3 });
    draw.words(x - 0.1, y - 0.75, name, { color, px: small + 2, weight: 700, align: "left" });
    if (where) draw.words(x + wide + 0.1, y - 0.75, where, { color: colors.muted, px: small - 0.5, align: "right" });
  }

  /* Both halves of the picture stop where a slow phone has worked long enough for one task. */
  function* still() {
    if (!size) return;
    const context = contextOf(ground, at.wide, at.tall, size);
    const draw = pen(context, size, fonts);
    yield;
    plate(draw, at.qx, at.sy, D, M, colors.q, "Q");
    plate(draw, at.sx, at.ky, N, D, colors.k, "Kᵀ", "in HBM");
    plate(draw, at.sx, at.vy, N, D, colors.v, "Vᵀ", "in HBM");
    plate(draw, at.ax, at.sy, D, M, colors.output, "out");
    yield;
    for (let m = 0; m < M; m += 1) {
      const own = script.q[m - first];
      for (let d = 0; d < D; d += 1) {
        if (own) draw.mark(at.qx + d, at.sy + m, own[d] / most.q, colors.q);
        else draw.box(at.qx + d + 0.3, at.sy + m + 0.3, 0.4, 0.4, { fill: colors.q, alpha: 0.22, round: 0.1 });
      }
      if (size >= small || m % 2 === 0) draw.words(at.qx - 0.55, at.sy + m + 0.5, String(m), { color: colors.muted, px: small - 1 });
    }
    yield;
    for (let n = 0; n < N; n += 1) {
      for (let d = 0; d < D; d += 1) {
        draw.mark(at.sx + n, at.ky + d, script.k[n][d] / most.k, colors.k);
        draw.mark(at.sx + n, at.vy + d, script.v[n][d] / most.v, colors.v);
      }
      for (let m = 0; m < M; m += 1) {
        draw.box(at.sx + n + 0.44, at.sy + m + 0.44, 0.12, 0.12, { fill: colors.axis, alpha: 0.55, round: 0.06 });
      }
    }
    draw.box(at.sx - 0.05, at.sy - 0.05, N + 0.1, M + 0.1, { line: colors.axis, alpha: 0.7, dash: [2, 4] });
    if (first + rows < M && script.kind !== "roles") {
      draw.words(at.sx + N / 2, at.sy + M - 0.5, "scores: M × N, never stored", { color: colors.muted, px: small });
    }
    if (script.kind !== "roles") {
      [["positive", 0.6], ["negative", -0.6]].forEach(([said, share], down) => {
        draw.mark(at.sx + N + 0.7, at.ky + down, share, colors.muted);
        draw.words(at.sx + N + 1.8, at.ky + down + 0.5, said, { color: colors.muted, px: small, align: "left" });
      });
    }
    draw.flush();
    if (script.kind !== "roles") lane(draw);
  }

  /* The lane of this program: the chip. */
  function lane(draw) {
    const left = at.sx - 1.25;
    draw.shade(left, top - 0.12, at.wide - 0.2 - left, rows + 0.24);
    draw.box(left, top - 0.12, at.wide - 0.2 - left, rows + 0.24, { fill: colors.paper, round: 0.3 });
    draw.box(left, top - 0.12, at.wide - 0.2 - left, rows + 0.24, { fill: colors.registers, alpha: 0.1, round: 0.3 });
    draw.box(left, top - 0.12, at.wide - 0.2 - left, rows + 0.24, { line: colors.registers, round: 0.3, width: 1.2 });
  }

  function queries(draw, now, u) {
    const moved = now.phase === "start" ? part(u, 0.1, 0.7) : 1;
    if (!moved) return;
    const x = mix(at.qx, at.sx - 1.05, moved);
    const wide = mix(D, BAND, moved);
    draw.box(x, top, wide, rows, { fill: colors.q, alpha: 0.9, round: 0.15 });
    if (moved === 1 && rows > 1) draw.words(x + wide / 2, top + rows / 2, "q", { color: colors.paper, px: small, weight: 700 });
  }

  /* What the keys that were seen weigh, in every row. */
  function traces(draw, before, now, u) {
    const moves = now.phase === "rescale" ? part(u, 0.25, 0.85) : part(u, 0.55, 0.95);
    const [from, to] = now.keys ?? [0, 0];
    const inTile = script.kind === "running" && ["scores", "rescale"].includes(now.phase);
    for (let r = 0; r < rows; r += 1) {
      for (let n = 0; n < N; n += 1) {
        if (inTile && n >= from && n < to) continue;
        const share = mix(before.weights[r]?.[n] ?? 0, now.weights[r]?.[n] ?? 0, moves);
        if (share > 0) draw.mark(at.sx + n, top + r, share / most.weights, colors.weights, 0.75);
      }
    }
    draw.flush();
  }

  function hatch(draw, x, y) {
    draw.line([[x + 0.2, y + 0.8], [x + 0.8, y + 0.2]], { color: colors.muted, alpha: 0.7 });
  }

  /* The tile of scores, with its keys above and its values below once they are there. */
  function tile(draw, before, now, u) {
    if (!now.keys) return;
    const slide = now.phase === "scores" && before.keys ? part(u, 0, 0.3) : 1;
    const left = at.sx + mix(before.keys?.[0] ?? now.keys[0], now.keys[0], slide);
    const wide = script.width;
    const shown = now.keys[1] - now.keys[0];
    draw.shade(left - 0.06, top - 0.06, wide + 0.12, rows + 0.12);
    draw.box(left - 0.06, top - 0.06, wide + 0.12, rows + 0.12, { fill: colors.paper, round: 0.22 });
    draw.box(left - 0.06, top - 0.06, wide + 0.12, rows + 0.12, { line: colors.ink, alpha: 0.8, round: 0.22, width: 1.5 });
    const copyOf = (what, y, landed, flown) => {
      if (!flown) return;
      const color = colors[what];
      const tall = mix(D, BAND, flown);
      draw.box(left, mix(y, landed, flown), shown, tall, { fill: color, alpha: mix(0.55, 0.92, flown), round: 0.15 });
      if (flown === 1 && wide > 1) {
        draw.words(left + shown / 2, landed + BAND / 2, what, { color: colors.paper, px: small, weight: 700 });
      }
    };
    const keysHere = now.phase === "scores" ? part(u, 0.25, 0.5) : Number(now.phase !== "start");
    copyOf("k", at.ky, top - BAND - 0.16, keysHere);
    copyOf("v", at.vy, top + rows + 0.16, now.phase === "add" ? part(u, 0.05, 0.35) : 0);
    for (let r = 0; r < rows; r += 1) {
      for (let j = 0; j < shown; j += 1) {
        const [x, y] = [left + j, top + r];
        const delay = (r + j) * 0.035;
        const score = now.scores[r][j];
        if (now.phase === "scores") {
          const there = part(u, 0.48 + delay, 0.62 + delay);
          if (!there) continue;
          if (score === null) hatch(draw, x, y);
          else draw.mark(x, y, (score / most.scores) * there, colors.scores, there);
        } else if (score === null) {
          hatch(draw, x, y);
        } else {
          const turned = now.phase === "add" ? part(u, 0.1, 0.45) : 0;
          if (turned < 1) draw.mark(x, y, score / most.scores, colors.scores, 1 - turned);
          if (turned) draw.mark(x, y, (now.p[r][j] / most.weights) * turned, colors.weights, turned);
        }
      }
    }
  }

  /* Of a kernel that keeps a whole row: its slots, and the key that it is at. */
  function wholeRow(draw, before, now, u) {
    for (let n = 0; n < N; n += 1) {
      const score = now.scores[0][n];
      if (score === undefined || ["value", "end"].includes(now.phase)) continue;
      const fresh = now.phase === "score" && n === now.keys[0] ? part(u, 0.5, 0.85) : 1;
      const gone = now.phase === "softmax" ? part(u, 0.35, 0.8) : 0;
      if (fresh && gone < 1) draw.mark(at.sx + n, top, (score / most.scores) * fresh, colors.scores, 1 - gone);
    }
    if (!now.keys) return;
    const x = at.sx + mix(before.keys?.[0] ?? now.keys[0], now.keys[0], part(u, 0, 0.2));
    const [what, y] = now.phase === "score" ? ["k", at.ky] : ["v", at.vy];
    const landed = what === "k" ? top - BAND - 0.16 : top + 1.16;
    const flown = part(u, 0.15, 0.5);
    draw.box(x, mix(y, landed, flown), 1, mix(D, BAND, flown), { fill: colors[what], alpha: 0.9, round: 0.15 });
    draw.box(x - 0.02, top - 0.02, 1.04, 1.04, { line: colors.ink, round: 0.2, width: 1.5 });
  }

  /* From the largest score of a row to m; and from the weights into what is collected. */
  function streams(draw, now, u, query) {
    if (script.kind !== "running" || !now.keys) return;
    const dot = (fromX, fromY, toX, toY, moment, color) => {
      if (moment <= 0 || moment >= 1) return;
      const x = mix(fromX, toX, moment);
      const y = mix(fromY, toY, moment) - Math.sin(Math.PI * moment) * 0.35;
      draw.box(x - 0.17, y - 0.17, 0.34, 0.34, { fill: color, round: 0.17 });
    };
    for (let r = 0; r < rows; r += 1) {
      const row = now.scores[r].slice(0, now.keys[1] - now.keys[0]);
      if (now.phase === "scores") {
        const largest = row.reduce((best, s, j) => (s !== null && (best < 0 || s > row[best]) ? j : best), -1);
        if (largest < 0 || row[largest] !== now.state.m[r]) continue;
        const x = at.sx + now.keys[0] + largest;
        const ring = part(u, 0.72, 0.8);
        if (ring) draw.box(x + 0.02, top + r + 0.02, 0.96, 0.96, { line: colors.ink, alpha: ring, round: 0.15, width: 1.5 });
        dot(x + 0.5, top + r + 0.5, at.mx + 1, top + r + 0.5, part(u, 0.78, 0.97), colors.scores);
      }
      if (now.phase === "add") {
        row.forEach((score, j) => {
          if (score === null) return;
          const x = at.sx + now.keys[0] + j + 0.5;
          dot(x, top + r + 0.5, at.ax + (j % D) + 0.5, top + r + 0.5, part(u, 0.5 + j * 0.03, 0.8 + j * 0.03), colors.weights);
        });
      }
    }
    if (query < rows) {
      draw.box(at.sx - 1.15, top + query + 0.02, at.wide - at.sx + 0.85, 0.96, { line: colors.accent, round: 0.2, width: 1.4, alpha: 0.9 });
    }
  }

  function collected(draw, before, now, u) {
    const numbers = size >= NUMBERS_FROM;
    const moments = {
      start: [0.5, 0.9], scores: [0.85, 1], rescale: [0.3, 0.85], add: [0.65, 1], end: [0.1, 0.5],
      score: [0.7, 1], softmax: [0.1, 0.6], value: [0.5, 0.95],
    };
    const moved = part(u, ...(moments[now.phase] ?? [0, 1]));
    script.collected.forEach((name, i) => {
      const x = at.mx + i * (at.collectedWide + 0.15);
      draw.words(x + at.collectedWide / 2, top - 0.75, name, { color: colors.muted, px: small + 1, weight: 700 });
      for (let r = 0; r < rows; r += 1) {
        const [a, b] = [before.state[name][r], now.state[name][r]];
        const changes = a !== b && u < 1 && u > 0;
        draw.box(x, top + r + 0.08, at.collectedWide, 0.84, { fill: colors.raised, line: changes ? colors.ink : colors.rule });
        const value = Number.isFinite(a) && Number.isFinite(b) ? mix(a, b, moved) : moved < 0.5 ? a : b;
        if (value === undefined) continue;
        const said = number(value, numbers ? 2 : 1);
        const px = Math.min(small - 0.5, (at.collectedWide * size) / (said.length * LETTER));
        draw.words(x + at.collectedWide / 2, top + r + 0.52, said, { color: colors.ink, px, mono: true });
      }
    });
    const written = now.phase === "end" ? part(u, 0.45, 0.8) : 0;
    if (!written && first === 0) draw.words(at.ax + D - 0.1, at.sy - 0.75, script.kept, { color: colors.muted, px: small + 1, weight: 700, align: "right" });
    for (let r = 0; r < rows; r += 1) {
      draw.box(at.ax - 0.08, top + r + 0.02, D + 0.16, 0.96, { fill: colors.raised, round: 0.15 });
      for (let d = 0; d < D; d += 1) {
        const value = mix(before.state.acc[r][d], now.state.acc[r][d], moved);
        if (written < 1) draw.mark(at.ax + d, top + r, value / most.acc, colors.v, 1 - written);
        if (written) draw.mark(at.ax + d, top + r, value / most.acc, colors.output, written);
      }
    }
    draw.flush();
    for (let r = 0; r < rows; r += 1) {
      if (now.phase === "rescale" && now.state.alpha) {
        const seen = Math.sin(Math.PI * Math.min(1, u * 1.05)) ** 0.6;
        const alpha = now.state.alpha[r];
        if (before.state.m[r] !== null && alpha !== 1 && before.state.l[r]) {
          draw.box(at.ax + D / 2 - 1.6, top + r + 0.1, 3.2, 0.8, { fill: colors.paper, line: colors.weights, alpha: seen, round: 0.4 });
          draw.words(at.ax + D / 2, top + r + 0.52, `× ${number(alpha)}`, { color: colors.weights, px: small, weight: 700, alpha: seen });
        }
      }
    }
  }

  function* moving(index, u, query) {
    if (!size) return;
    const now = steps[index];
    const before = steps[Math.max(0, index - 1)];
    const context = contextOf(canvas, at.wide, at.tall, size);
    yield;
    const drawing = pen(context, size, fonts);
    if (script.kind === "roles") {
      yield* roles({ draw: drawing, at, colors, small, script, time: mix(before.at, now.at, u) });
      return;
    }
    traces(drawing, before, now, u);
    queries(drawing, now, u);
    if (script.kind === "running") tile(drawing, before, now, u);
    else wholeRow(drawing, before, now, u);
    drawing.flush();
    yield;
    collected(drawing, before, now, u);
    streams(drawing, now, u, query);
    yield;
    memories(drawing, { at, colors, small, script, before, now, u, bytes });
  }

  /* The query whose row is at a place of the canvas. */
  function queryAt(event) {
    const row = Math.floor(event.offsetY / size - top);
    return row >= 0 && row < rows && script.kind !== "roles" ? row : undefined;
  }

  return { measure, fits, still, moving, queryAt, ratio: at.wide / at.tall };
}
