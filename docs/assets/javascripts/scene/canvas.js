/* What all that draws on a canvas here shares: colors of the page, moments of a movement, shapes. */

/* A movement runs from 0 to 1; `part` is how far the piece of it between two moments has come, eased. */
const clamp = (x) => Math.max(0, Math.min(1, x));
const eased = (x) => (x < 0.5 ? 4 * x ** 3 : 1 - (2 - 2 * x) ** 3 / 2);
export const part = (u, from, to) => eased(clamp((u - from) / (to - from)));
export const mix = (a, b, u) => a + (b - a) * u;

const PLAIN = 8; // pixels of a square up to which it has corners

const NAMES = [
  "paper", "raised", "ink", "muted", "rule", "axis", "accent", "tensor-q", "tensor-k", "tensor-v", "tensor-scores",
  "tensor-weights", "tensor-output", "memory-registers", "memory-shared", "memory-hbm", "warp-producer",
  "warp-consumer-0", "warp-consumer-1", "warp-consumer-2",
];

/* The colors that the page has now, by the last part of their names: q, k, …, registers, … */
export function colorsOf(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(NAMES.map((name) => [
    name.replace(/^(tensor|memory|warp)-/, ""), style.getPropertyValue(`--am-${name}`).trim() || "#888",
  ]));
}

/* A canvas as sharp as the screen: its context, measured in cells of `size` pixels. */
export function contextOf(canvas, wide, tall, size) {
  const dense = devicePixelRatio || 1;
  const [width, height] = [Math.round(wide * size * dense), Math.round(tall * size * dense)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.setTransform(size * dense, 0, 0, size * dense, 0, 0);
  context.clearRect(0, 0, wide, tall);
  return context;
}

/* Shapes on a context whose unit is a cell; `size` is its pixels, so that words and lines are sharp. */
export function pen(context, size, fonts) {
  const px = 1 / size;
  const marks = new Map(); // look → what waits to be drawn
  const set = {}; // of the context, for it takes long to set a font
  const inCells = context.getTransform();
  const inPixels = inCells.scale(px);
  context.textBaseline = "middle";

  function box(x, y, wide, tall, { fill, line, alpha = 1, round = 0.18, width = 1, dash }) {
    context.globalAlpha = alpha;
    context.beginPath();
    if (context.roundRect) context.roundRect(x, y, wide, tall, round);
    else context.rect(x, y, wide, tall);
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (line) {
      context.lineWidth = width * px;
      context.setLineDash((dash || []).map((d) => d * px));
      context.strokeStyle = line;
      context.stroke();
      context.setLineDash([]);
    }
    context.globalAlpha = 1;
  }

  /* A number as a square: its area is the size of the number; a negative one is hollow. Those of one look are drawn
     together, by `flush`. */
  function mark(x, y, share, color, alpha = 1) {
    const side = 0.9 * Math.sqrt(Math.min(1, Math.abs(share)));
    if (side < 0.06 || alpha < 0.02) return;
    const look = `${color} ${Math.round(alpha * 20)} ${share > 0}`;
    if (!marks.has(look)) marks.set(look, { color, alpha: Math.round(alpha * 20) / 20, filled: share > 0, path: new Path2D() });
    const { path } = marks.get(look);
    const [left, top] = [x + (1 - side) / 2, y + (1 - side) / 2];
    const inner = share > 0 ? 0 : px;
    // One that is too small to see that it is round is drawn with corners: that is much quicker.
    if (side < PLAIN * px || !path.roundRect) path.rect(left + inner, top + inner, side - 2 * inner, side - 2 * inner);
    else path.roundRect(left + inner, top + inner, side - 2 * inner, side - 2 * inner, 0.1);
  }

  function flush() {
    for (const { color, alpha, filled, path } of marks.values()) {
      context.globalAlpha = alpha;
      if (filled) {
        context.fillStyle = color;
        context.fill(path);
      } else {
        context.lineWidth = 1.4 * px;
        context.strokeStyle = color;
        context.stroke(path);
      }
    }
    context.globalAlpha = 1;
    marks.clear();
  }

  function words(x, y, text, { color, px: high = 11, weight = 400, align = "center", alpha = 1, mono, halo }) {
    if (alpha < 0.02) return;
    context.globalAlpha = alpha;
    context.setTransform(inPixels); // fonts in pixels: a font of less than one unit is rounded
    const font = `${weight} ${high}px ${mono ? fonts.mono : fonts.sans}`;
    if (font !== set.font) context.font = font;
    set.font = font;
    if (align !== set.align) context.textAlign = align;
    set.align = align;
    if (halo) { // what lies below is read around it
      [context.strokeStyle, context.lineWidth, context.lineJoin] = [halo, 4, "round"];
      context.strokeText(text, x * size, y * size);
    }
    context.fillStyle = color;
    context.fillText(text, x * size, y * size);
    context.setTransform(inCells);
    context.globalAlpha = 1;
  }

  /* Whether a word has room in so many cells. */
  function fits(text, wide, high) {
    [context.font, set.font] = [`600 ${high}px ${fonts.sans}`, ""];
    return context.measureText(text).width < wide * size;
  }

  function polyline(points, { color, alpha = 1, width = 1, dash }) {
    context.globalAlpha = alpha;
    context.strokeStyle = color;
    context.lineWidth = width * px;
    context.setLineDash((dash || []).map((d) => d * px));
    context.beginPath();
    points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  function arrow(x, y, to, color, alpha = 1) {
    const back = Math.sign(to - x) * -0.3;
    polyline([[x, y], [to, y]], { color, alpha, width: 1.3 });
    polyline([[to + back, y - 0.22], [to, y], [to + back, y + 0.22]], { color, alpha, width: 1.3 });
  }

  /* A soft edge under a box: a few boxes, for a blurred shadow takes longer than all else of a frame. */
  function shade(x, y, wide, tall) {
    for (const out of [0.08, 0.16, 0.26]) {
      box(x - out, y - out + 0.12, wide + 2 * out, tall + 2 * out, { fill: "#000", alpha: 0.07, round: 0.3 + out });
    }
  }

  return { box, mark, flush, words, fits, line: polyline, arrow, shade };
}
