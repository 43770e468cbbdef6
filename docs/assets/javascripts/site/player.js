/* The controls of whatever goes step by step, the same everywhere: Play, step back, step forward, Start over, and
   where the last step is known a slider and a count. */
import { button, make } from "./dom.js";

const PLAY_MS = 900; // of a step, where the widget has no clock of its own

/* go(step): shows a step. play(): turns playing on or off; without it the player has a clock. name: of the slider.
   {bar, show({step, last, said, playing}), start(), stop()}: the widget calls show() of each step, also of the first. */
export function player({ go, play, name = "Step" }) {
  let now = 0;
  let end = 0;
  let timer;

  const [start, stop] = [true, false].map((on) => () => tick(on));
  function tick(on) {
    clearInterval(timer);
    timer = on ? setInterval(() => {
      if (bar.isConnected && now < end) go(now + 1);
      else stop();
    }, PLAY_MS) : undefined;
    playing.textContent = on ? "Pause" : "Play";
  }
  const by = (act) => () => {
    stop();
    act();
  };
  const playing = button("Play", play ?? (() => {
    if (!timer && now >= end) go(0);
    tick(!timer);
  }));
  const back = button("◀", by(() => go(now - 1)), { ariaLabel: "Step back" });
  const forward = button("▶", by(() => go(now + 1)), { ariaLabel: "Step forward" });
  const over = button("Start over", by(() => go(0)));
  const range = make("input", { type: "range", min: 0, step: 1, ariaLabel: name });
  range.addEventListener("input", by(() => go(Number(range.value))));
  const count = make("span", { ariaHidden: "true" });
  const bar = make("div", { className: "am-player" }, playing, back, forward, over, range, count);
  back.dataset.step = -1;
  forward.dataset.step = 1;

  function show({ step, last, said, playing: on = Boolean(timer) }) {
    [now, end] = [step, last];
    back.disabled = over.disabled = step <= 0;
    forward.disabled = step >= last;
    range.hidden = count.hidden = last === Infinity;
    range.max = last;
    range.value = step;
    range.setAttribute("aria-valuetext", said);
    count.textContent = `${step} / ${last}`;
    if (play) playing.textContent = on ? "Pause" : "Play";
    else if (step >= last) stop();
  }
  return { bar, show, start, stop };
}
