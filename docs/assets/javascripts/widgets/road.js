/* Every kernel on the same work, on one slider: the drawing, the code and the clock of a stop follow it. All of them are
   in the page, made by scoreboard/road.py, with one stop shown: this adds the slider and moves what is there.
   The stop is in the address once a reader has chosen one. */
import { asked, rememberLater } from "../site/address.js";
import { make, partsOf } from "../site/dom.js";

const PARAMETER = "kernel";
const SCALES = ["--am-length", "--am-part"]; // where the time is on powers of ten, and on a bar from zero
const SWEEP_MS = 1100; // in which a program goes through its keys, to the tile that is drawn
const reduced = matchMedia("(prefers-reduced-motion: reduce)");

export function start(box) {
  const rail = box.querySelector(".am-stops");
  const stops = [...rail.children];
  const names = stops.map((stop) => stop.dataset.post);
  const { moving, time, gain, share } = partsOf(box);
  const shapes = [...box.querySelectorAll("[data-at]")].map((shape) => [
    shape, shape.dataset.at.split(";").map((place) => place.split(" ")),
  ]);
  const parts = [...box.querySelectorAll("[data-stop], [data-kernel]")];
  const range = make("input", { type: "range", min: 0, max: stops.length - 1, step: 1, ariaLabel: "Kernel" });
  const lengths = SCALES.map((name) => stops.map(({ style }) => Number.parseFloat(style.getPropertyValue(name))));
  const later = rememberLater(box);
  let shown;
  let before;

  function show(at) {
    const { post, said, gain: factor, share: fraction } = stops[at].dataset;
    shown = at;
    range.setAttribute("aria-valuetext", `${post}, ${said}, ${factor}`);
    stops.forEach((stop, i) => stop.classList.toggle("am-now", i === at));
    for (const part of parts) {
      part.classList.toggle("am-now", (part.dataset.kernel ?? names[part.dataset.stop]) === post);
    }
    for (const [shape, places] of shapes) {
      ["x", "y", "width", "height"].forEach((side, i) => { shape.style[side] = `${places[at][i]}px`; });
    }
    [time.textContent, gain.textContent, share.textContent] = [said, factor, fraction];
    sweep(at);
  }

  /* From the first keys on, tile by tile. */
  function sweep(at) {
    if (reduced.matches) return;
    const [, places] = shapes.find(([shape]) => moving.contains(shape));
    const [x, , wide] = places[at].map(Number);
    const tiles = Math.max(1, Math.round((x - moving.dataset.first) / wide));
    moving.getAnimations().forEach((old) => old.cancel());
    moving.animate(
      [{ transform: `translateX(${moving.dataset.first - x}px)` }, { transform: "none" }],
      { duration: SWEEP_MS, delay: 150, fill: "backwards", easing: `steps(${tiles}, jump-end)` },
    );
  }

  /* The ring, and on both scales what is shown there: between two stops in the same proportion. */
  function follow() {
    rail.style.setProperty("--am-at", range.value / range.max);
    const [low, high] = [Math.floor(range.value), Math.ceil(range.value)];
    for (const [i, { [low]: from, [high]: to }] of lengths.entries()) {
      box.style.setProperty(SCALES[i], `${from + (to - from) * (range.value - low)}%`);
    }
  }

  function choose() {
    const at = Math.round(range.value);
    rail.classList.add("am-dragged");
    if (at !== shown) show(at);
    follow();
    later({ [PARAMETER]: names[at] });
  }

  /* While it is held the ring is where the pointer is, then at the nearest stop. A finger that scrolls the page over
     the slider chooses nothing. */
  function hold() {
    before = range.value;
    range.step = "any";
    box.classList.add("am-held");
  }
  function settle(value) {
    if (range.step === "1") return;
    range.step = 1;
    range.value = Math.round(value);
    box.classList.remove("am-held");
    if (Number(range.value) === shown) follow();
    else choose();
  }

  range.addEventListener("input", choose);
  range.addEventListener("pointerdown", hold);
  for (const kind of ["pointerup", "change"]) range.addEventListener(kind, () => settle(range.value));
  range.addEventListener("pointercancel", () => settle(before));
  rail.before(range);
  const first = names.indexOf(asked(PARAMETER));
  range.value = first < 0 ? stops.findIndex((stop) => stop.matches(".am-now")) : first;
  show(Number(range.value));
  follow();
}
