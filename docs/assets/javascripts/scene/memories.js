/* The foot of the stage: HBM, shared memory and registers, what moves between them, and how much of it so far. */
import { mix, part } from "./canvas.js";

const TITLE = 0.65;
// While its step runs, a tile is on its way between these moments.
const WHEN = { q: [0.1, 0.7], k: [0.2, 0.55], v: [0.05, 0.4], out: [0.5, 0.95] };

export function memories(draw, { at, colors, small, script, before, now, u, bytes }) {
  const { edge, my, strip, wide } = at;
  const inner = wide - 2 * edge;
  const places = { hbm: [edge, inner * 0.27], shared: [edge + inner * 0.36, inner * 0.28], registers: [edge + inner * 0.73, inner * 0.27] };
  const through = script.through === "shared memory";
  const box = (name, title, quiet) => {
    const [x, across] = places[name];
    draw.box(x, my, across, strip, { fill: colors[name], alpha: quiet ? 0.04 : 0.13, round: 0.3 });
    draw.box(x, my, across, strip, { line: colors[name], alpha: quiet ? 0.45 : 1, round: 0.3, width: 1.2, dash: quiet && [3, 3] });
    draw.words(x + across / 2, my + TITLE, title, { color: quiet ? colors.muted : colors.ink, px: small, weight: 600 });
  };
  box("hbm", "HBM");
  box("shared", "shared memory", !through);
  box("registers", "registers");
  const counted = (what) => mix(before[what] ?? 0, now[what] ?? 0, now === before ? 1 : part(u, 0.2, 0.6));
  const [hx, hw] = places.hbm;
  const row = (y, name, value) => {
    draw.words(hx + 0.35, y, name, { color: colors.muted, px: small - 0.5, align: "left" });
    draw.words(hx + hw - 0.35, y, value, { color: colors.ink, px: small - 0.5, weight: 600, align: "right" });
  };
  const readHere = now === before ? part(u, 0.1, 0.7) * now.read : counted("read");
  row(my + 1.85, "read", bytes(Math.round(readHere)));
  row(my + 2.8, "written", bytes(Math.round(counted("written"))));
  row(my + 3.75, "scores", bytes(0));

  const chip = (x, y, name, color, alpha = 1) => {
    draw.box(x, y, 1.7, 0.85, { fill: color, alpha, round: 0.2 });
    draw.words(x + 0.85, y + 0.45, name, { color: colors.paper, px: small - 0.5, weight: 700, alpha });
  };
  // What lies where, when nothing moves.
  const [rx, rw] = places.registers;
  const [sx, sw] = places.shared;
  const columns = [rx + rw / 2 - 1.95, rx + rw / 2 + 0.25];
  const seats = { q: [columns[0], my + 1.3], s: [columns[1], my + 1.3], k: [columns[0], my + 2.3], v: [columns[1], my + 2.3] };
  const shared = { k: [sx + sw / 2 - 1.95, my + 1.9], v: [sx + sw / 2 + 0.25, my + 1.9] };
  const running = now.keys !== null;
  const moving = Object.fromEntries(now.moves.map((move) => [move.what, part(u, ...WHEN[move.what])]));
  chip(columns[0], my + 3.35, script.collected.join(" "), colors.muted);
  chip(columns[1], my + 3.35, script.kept, colors.v);
  if (!("q" in moving)) chip(...seats.q, "q", colors.q);
  if (running && ("k" in moving ? moving.k === 1 : true)) {
    const weighed = ["add", "value"].includes(now.phase);
    chip(...seats.s, weighed ? "p" : "s", weighed ? colors.weights : colors.scores);
  }
  if (script.kind === "row" && !running && now.phase !== "start") chip(...seats.s, "p", colors.weights);
  // Arrows, and what is on its way.
  const gap = (a, b) => [places[a][0] + places[a][1] + 0.25, places[b][0] - 0.25];
  for (const [from, to] of [gap("hbm", "shared"), gap("shared", "registers")]) {
    draw.arrow(from, my + 2.3, to, colors.axis, 0.9);
    draw.arrow(to, my + 3.75, from, colors.axis, 0.5);
  }
  if (!through) {
    draw.line([[sx, my + 2.3], [sx + sw, my + 2.3]], { color: colors.axis, alpha: 0.9, width: 1.3 });
    draw.line([[sx, my + 3.75], [sx + sw, my + 3.75]], { color: colors.axis, alpha: 0.5, width: 1.3 });
  }
  for (const move of now.moves) {
    const { what, out } = move;
    const moment = moving[what];
    const color = out ? colors.output : colors[what];
    const stays = !out && through && what !== "q" ? shared[what] : seats[what] ?? [columns[1], my + 3.35];
    const home = [hx + hw - 1.9, out ? my + 3.3 : my + 1.9];
    const [from, to] = out ? [stays, home] : [home, stays];
    if (moment > 0 && (!out || moment < 1)) {
      const [x, y] = [mix(from[0], to[0], moment), mix(from[1], to[1], moment)];
      chip(x, y, what, color);
      const away = Math.sin(Math.PI * moment) ** 2; // in a memory there is no room for words
      draw.words(x + 0.85, y - 0.5, bytes(move.bytes), { color: colors.ink, px: small - 0.5, weight: 600, alpha: away });
    }
  }
  // A tile of keys stays until its step's values have been added.
  if (running && !("k" in moving) && script.kind === "running") {
    if (through) chip(...shared.k, "k", colors.k, 0.9);
  }
}
