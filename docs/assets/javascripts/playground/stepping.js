/* One program, line by line: each assignment that it executes, with what the variables hold as pictures. */
import { make } from "../site/dom.js";
import { picture, written } from "./pictures.js";

const isTile = (value) => value !== null && typeof value === "object";

const MOST = 1000; // programs to choose from

/* programs: how many there are; stepsOf(program): a promise of what one did; at(line): the editor shows it. */
export async function stepping({ programs, stepsOf, at }) {
  const input = make("input", { type: "number", min: 0, max: Math.min(programs, MOST) - 1, value: 0 });
  const place = make("div");
  let asked = 0;
  async function show() {
    const mine = (asked += 1);
    const steps = await stepsOf(Number(input.value));
    if (mine === asked) place.replaceChildren(player(steps, at));
  }
  input.addEventListener("change", show);
  await show();
  return make("div", {}, make("p", {}, make("label", {}, "Program ", input)), place);
}

function player(steps, at) {
  const box = make("div", { className: "am-play-stepping" });
  if (!steps?.length) {
    box.textContent = "This program has executed no line.";
    return box;
  }
  const slider = make("input", { type: "range", min: 1, max: steps.length, value: 1 });
  slider.setAttribute("aria-label", "Step");
  const back = make("button", { type: "button", textContent: "Step back" });
  const forward = make("button", { type: "button", textContent: "Step" });
  const words = make("p", { className: "am-play-words" });
  words.setAttribute("role", "status");
  const place = make("div", { className: "am-play-variables" });

  function held(count) {
    const variables = new Map();
    for (const { variable, value, loop } of steps.slice(0, count)) {
      const [name, is] = loop ? [loop.variable, loop.value] : [variable, value];
      variables.delete(name); // what was written last stands first
      variables.set(name, is);
    }
    return [...variables].toReversed();
  }

  function show() {
    const count = Number(slider.value);
    const { line, variable, loop } = steps[count - 1];
    const name = loop?.variable ?? variable;
    words.textContent = `Step ${count} of ${steps.length}, line ${line}: ${name} is set.`;
    back.disabled = count === 1;
    forward.disabled = count === steps.length;
    place.replaceChildren(...held(count).map(([title, value]) => {
      const entry = isTile(value) && value.shape?.length
        ? picture({ label: title, shape: value.shape, data: value.data, width: 220 })
        : make("div", { className: "am-play-picture" },
          make("span", { className: "am-play-name", textContent: title }),
          make("code", { textContent: scalar(value) }));
      if (title === name) entry.classList.add("am-play-now");
      return entry;
    }));
    at(line);
  }

  const move = (by) => {
    slider.value = Number(slider.value) + by;
    show();
  };
  back.addEventListener("click", () => move(-1));
  forward.addEventListener("click", () => move(1));
  slider.addEventListener("input", show);
  box.append(make("p", { className: "am-play-bar" }, back, forward, slider), words, place);
  show();
  return box;
}

function scalar(value) {
  if (isTile(value)) return value.data ? written(Number(value.data[0])) : String(value.dtype ?? "");
  return typeof value === "number" ? written(value) : String(value);
}
