/* What moves where parts work side by side: a tile for each consumer that is at it, the buffers in shared memory with
   their barriers, and who has the tensor cores. Time goes on between two steps. */
import { mix, part } from "./canvas.js";

const BAND = 0.8;
const NEVER = { start: Infinity, end: Infinity };
const share = (time, from, to) => (time < from ? 0 : Math.min(1, (time - from) / (to - from)));

export function* roles({ draw, at, colors, small, script, time }) {
  const e = script.example;
  const { perConsumer, width } = script;
  const spansOf = (name, kind) => e.spans.filter((s) => s.part === name && s.kind === kind);
  const tileBuffers = script.buffers.filter((b) => b.kind === "k");
  const consumers = Array.from({ length: e.consumers }, (_, i) => i);
  const color = (i) => colors[`consumer-${i}`];

  for (const i of consumers) {
    const name = `consumer ${i}`;
    const top = at.sy + i * perConsumer;
    const left = at.sx - 1.25;
    const lane = [left, top + 0.08, at.wide - 0.2 - left, perConsumer - 0.16];
    draw.box(...lane, { fill: colors.paper, round: 0.3 });
    draw.box(...lane, { fill: color(i), alpha: 0.1, round: 0.3 });
    draw.box(...lane, { line: color(i), round: 0.3, width: 1.3 });
    const q = script.buffers.find((b) => b.kind === "q" && b.index === i);
    const came = q ? part(time, q.from, q.full) : 0;
    draw.words(at.sx + 0.4, top + perConsumer / 2, name, { color: color(i), px: small, weight: 700, align: "left" });
    if (came) draw.box(mix(at.qx, at.sx - 1.05, came), top + 0.2, mix(script.D, BAND, came), perConsumer - 0.4, { fill: colors.q, alpha: 0.9 });

    const softmax = spansOf(name, "softmax");
    const added = spansOf(name, "values");
    spansOf(name, "scores").forEach((scores, n) => {
      const [weigh, add] = [softmax[n] ?? NEVER, added[n] ?? NEVER];
      if (time < scores.start || time > add.end) return;
      const x = at.sx + script.columnOf(tileBuffers[n].start);
      const [made, weighed, gone] = [share(time, scores.start, scores.end), share(time, weigh.start, weigh.end), share(time, add.start, add.end)];
      draw.shade(x - 0.04, top + 0.14, width + 0.08, perConsumer - 0.28);
      draw.box(x - 0.04, top + 0.14, width + 0.08, perConsumer - 0.28, { fill: colors.paper, round: 0.2 });
      draw.box(x - 0.04, top + 0.14, width + 0.08, perConsumer - 0.28, { line: color(i), round: 0.2, width: 1.6 });
      const cells = width * perConsumer;
      for (let cell = 0; cell < cells; cell += 1) {
        const [r, j] = [Math.floor(cell / width), cell % width];
        const place = [x + j, top + r];
        const there = part(made * (cells + 4) - cell, 0, 4);
        if (!there) continue;
        const turned = part(weighed * (cells + 4) - cell, 0, 4);
        const kept = 1 - part(gone * (cells + 4) - cell, 0, 4);
        if (turned < 1) draw.mark(...place, 0.42 * there, colors.scores, 1 - turned);
        if (turned) draw.mark(...place, 0.42, colors.weights, turned * (0.25 + 0.75 * kept));
      }
      draw.flush();
      const said = time >= add.start ? "p·v" : time >= weigh.start ? "softmax" : "q·kᵀ";
      if (!draw.fits(said, width, small)) return; // who works is told below, too
      draw.box(x + width / 2 - 1.6, top + perConsumer / 2 - 0.45, 3.2, 0.9, { fill: colors.paper, alpha: 0.9, round: 0.4 });
      draw.words(x + width / 2, top + perConsumer / 2 + 0.03, said, { color: colors.ink, px: small, weight: 600 });
    });
    const done = added.reduce((sum, s) => sum + share(time, s.start, s.end), 0) / Math.max(1, added.length);
    const stored = spansOf(name, "out")[0];
    const out = stored ? share(time, stored.start, stored.end) : 0;
    draw.box(at.ax, top + 0.3, script.D, perConsumer - 0.6, { fill: colors.raised, round: 0.15 });
    if (done) draw.box(at.ax, top + 0.3, script.D * done, perConsumer - 0.6, { fill: out ? colors.output : colors.v, alpha: 0.55, round: 0.15 });
    draw.words(at.ax + script.D / 2, top + perConsumer / 2, out ? "out" : "acc", { color: colors.ink, px: small, weight: 700 });
  }
  yield;
  yield* shared(draw, { at, colors, small, script, time, consumers, color });
}

/* Under the matrices: what lies in shared memory, and who works. */
function* shared(draw, { at, colors, small, script, time, consumers, color }) {
  const e = script.example;
  const { edge, my, strip, wide } = at;
  const inner = wide - 2 * edge;
  const places = { hbm: [edge, 4.4], shared: [edge + 7.5, inner * 0.36], registers: [edge + 7.5 + inner * 0.36 + 0.9, 0] };
  places.registers[1] = wide - edge - places.registers[0];
  const box = (name, title) => {
    const [x, across] = places[name];
    draw.box(x, my, across, strip, { fill: colors[name], alpha: 0.1, round: 0.3 });
    draw.box(x, my, across, strip, { line: colors[name], round: 0.3, width: 1.2 });
    draw.words(x + across / 2, my + 0.85, title, { color: colors.ink, px: small, weight: 600 });
  };
  box("hbm", "HBM");
  box("shared", "shared memory");
  box("registers", "who works");
  const [hx, hw] = places.hbm;
  draw.words(hx + hw / 2, my + 2.6, "read", { color: colors.muted, px: small - 0.5 });
  draw.words(hx + hw / 2, my + 4.2, script.read(time), { color: colors.ink, px: small, weight: 600 });
  const copying = e.spans.find((s) => s.part === "copies" && s.start <= time && time < s.end);
  draw.arrow(hx + hw + 0.2, my + 4.6, places.shared[0] - 0.2, colors.axis);
  draw.words(hx + hw + 1.55, my + 3.7, "TMA", { color: copying ? colors.ink : colors.muted, px: small - 0.5, weight: copying ? 700 : 400 });

  // A row for each kind of buffer: how full it is, which tile, and its two barriers.
  const [sx, sw] = places.shared;
  ["q", "k", "v"].forEach((kind, row) => {
    const names = [...new Set(script.buffers.filter((b) => b.kind === kind).map((b) => b.name))];
    const across = (sw - 1.9) / names.length;
    const y = my + 1.7 + row * 2.85;
    draw.words(sx + 0.65, y + 1.1, kind, { color: colors[kind], px: small + 1, weight: 700 });
    names.forEach((name, i) => {
      const x = sx + 1.4 + i * across;
      const now = script.buffers.filter((b) => b.name === name && b.from <= time).at(-1);
      const holds = now && time < now.freed;
      draw.box(x, y, across - 0.4, 2.2, { fill: colors.paper, line: colors[kind], round: 0.2 });
      if (holds) {
        draw.box(x, y, (across - 0.4) * share(time, now.from, now.full), 2.2, { fill: colors[kind], alpha: 0.55, round: 0.2 });
        const text = kind === "q" ? `q ${i}` : `${kind} ${now.tile}`;
        draw.words(x + (across - 0.4) / 2, y + 1.15, text, { color: colors.ink, px: small, weight: 600 });
        if (copying && now.full > time) flight(draw, { from: [hx + hw - 1, my + 4.6], to: [x, y + 1.1], moment: share(time, now.from, now.full), color: colors[kind] });
      } else {
        draw.words(x + (across - 0.4) / 2, y + 1.15, "empty", { color: colors.muted, px: small - 0.5 });
      }
      const full = holds && time >= now.full;
      draw.box(x + across - 1.05, y + 0.18, 0.42, 0.42, { fill: full ? colors.output : colors.rule, round: 0.21 });
    });
  });

  yield;
  const [rx, rw] = places.registers;
  const busy = (name, kinds) => e.spans.filter((s) => s.part === name && kinds.includes(s.kind) && s.start <= time && time < s.end);
  const lines = [
    ...consumers.map((i) => [`products ${i}`, "none", i, busy(`consumer ${i}`, ["scores", "values"])]),
    ...consumers.map((i) => [`softmax ${i}`, "waits", i, busy(`consumer ${i}`, ["softmax", "out"])]),
    ["producer", "waits", undefined, busy("producer", ["start q", "start k", "start v"])],
  ];
  const tall = (strip - 2) / lines.length;
  lines.forEach(([name, without, i, spans], row) => {
    const y = my + 1.75 + row * tall;
    const [span] = spans;
    const tint = span ? (i === undefined ? colors.producer : color(i)) : undefined;
    draw.box(rx + 0.4, y, rw - 0.8, tall - 0.3, { fill: tint ?? colors.paper, alpha: tint ? 0.24 : 0.6, line: tint ?? colors.rule, round: 0.25 });
    if (span) draw.box(rx + 0.4, y, (rw - 0.8) * share(time, span.start, span.end), tall - 0.3, { fill: tint, alpha: 0.35, round: 0.25 });
    draw.words(rx + 0.75, y + tall / 2 - 0.13, name, { color: colors.ink, px: small - 0.5, align: "left", weight: 600 });
    const said = spans.map(({ kind }) => ({ scores: "q·kᵀ", values: "p·v" }[kind] ?? kind)).join(", ") || without;
    draw.words(rx + rw - 0.75, y + tall / 2 - 0.13, said, { color: span ? colors.ink : colors.muted, px: small - 0.5, align: "right" });
  });
}

function flight(draw, { from, to, moment, color }) {
  const [x, y] = [mix(from[0], to[0], moment), mix(from[1], to[1], moment)];
  draw.box(x - 0.35, y - 0.35, 0.7, 0.7, { fill: color, round: 0.2 });
}
