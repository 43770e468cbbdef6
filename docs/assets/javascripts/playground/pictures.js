/* Numbers as pictures: a cell for each number, its color the sign, its strength the size; on a canvas, because
   there may be thousands. Beside it the number that is pointed at, or walked to with the arrow keys. */
import { make } from "../site/dom.js";

const LARGEST_CELL = 18;
const SMALLEST_CELL = 3;

export const written = (x) => {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  const text = size === 0 || (size >= 0.01 && size < 100_000)
    ? String(Number(x.toPrecision(4))) : x.toExponential(2);
  return text.replace("-", "−");
};

/* Where a number stands, as a reader would index it: [0, 1, 3]. */
export function placeOf(at, shape) {
  const place = [];
  let rest = at;
  for (let d = shape.length - 1; d >= 0; d -= 1) {
    place.unshift(rest % shape[d]);
    rest = Math.floor(rest / shape[d]);
  }
  return `[${place.join(", ")}]`;
}

/* The largest size among numbers, of those that have one. */
export function largest(data) {
  let most = 0;
  for (const x of data) if (Number.isFinite(x) && Math.abs(x) > most) most = Math.abs(x);
  return most;
}

/* One picture. framed: a list of 0 and 1, or nothing; scale: what the strongest color stands for. */
export function picture({ label, shape, data, framed, scale = largest(data) || 1, width = 320 }) {
  const many = shape.length ? shape.at(-1) : 1;
  const columns = shape.length === 1 && many > 64 ? 32 : Math.max(many, 1);
  const rows = Math.max(Math.ceil(data.length / columns), 1);
  const cell = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, Math.floor(width / columns)));
  const ariaLabel = `${label}, ${shape.join(" × ") || "one number"}`;
  const canvas = make("canvas", { tabIndex: 0, className: "am-play-cells", role: "img", ariaLabel });
  const value = make("span", { className: "am-play-value", ariaLive: "polite" });
  let chosen = -1;

  function draw() {
    const style = getComputedStyle(canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    const ratio = devicePixelRatio || 1;
    canvas.width = columns * cell * ratio;
    canvas.height = rows * cell * ratio;
    canvas.style.aspectRatio = `${columns} / ${rows}`;
    canvas.style.width = `${columns * cell}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = color("--am-raised");
    pen.fillRect(0, 0, columns * cell, rows * cell);
    const gap = cell > 5 ? 1 : 0;
    data.forEach((x, at) => {
      const left = (at % columns) * cell;
      const top = Math.floor(at / columns) * cell;
      if (Number.isNaN(x)) {
        pen.globalAlpha = 1;
        pen.fillStyle = color("--am-ink");
      } else {
        pen.globalAlpha = Math.min(1, 0.06 + (0.94 * Math.min(Math.abs(x), scale)) / scale);
        pen.fillStyle = color(x < 0 ? "--am-warn" : "--am-accent");
      }
      pen.fillRect(left, top, cell - gap, cell - gap);
      pen.globalAlpha = 1;
      if (framed?.[at]) {
        pen.strokeStyle = color("--am-bad");
        pen.lineWidth = cell > 8 ? 2 : 1;
        pen.strokeRect(left + 0.5, top + 0.5, cell - gap - 1, cell - gap - 1);
      }
      if (at === chosen) {
        pen.strokeStyle = color("--am-ink");
        pen.lineWidth = 2;
        pen.strokeRect(left + 1, top + 1, cell - 2, cell - 2);
      }
    });
  }

  function choose(at) {
    if (at < 0 || at >= data.length || at === chosen) return;
    chosen = at;
    value.textContent = `${placeOf(at, shape)}: ${written(data[at])}`;
    draw();
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    choose(Math.floor(((event.clientY - box.top) / box.height) * rows) * columns + column);
  });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (!by) return;
    event.preventDefault();
    choose(chosen < 0 ? 0 : chosen + by);
  });
  const name = make("span", { className: "am-play-name", textContent: label });
  const figure = make("div", { className: "am-play-picture" }, name, canvas, value);
  requestAnimationFrame(draw); // when it is on the page, and has colors
  return figure;
}
