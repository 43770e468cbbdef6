/* One program, line by line: each assignment that it executes, with what the variables hold as pictures. */
import { make } from "../site/dom.js";
import { player } from "../site/player.js";
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
    if (mine === asked) place.replaceChildren(walk(steps, at));
  }
  input.addEventListener("change", show);
  await show();
  return make("div", {}, make("p", {}, make("label", {}, "Program ", input)), place);
}

function walk(steps, at) {
  const box = make("div", { className: "am-play-stepping" });
  if (!steps?.length) {
    box.textContent = "This program has executed no line.";
    return box;
  }
  const { bar, show: showBar } = player({ go: show });
  const words = make("p", { className: "am-play-words", role: "status" });
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

  function show(step) {
    const count = step + 1;
    const { line, variable, loop } = steps[step];
    const name = loop?.variable ?? variable;
    words.textContent = `Step ${step} of ${steps.length - 1}, line ${line}: ${name} is set.`;
    showBar({ step, last: steps.length - 1, said: `line ${line}` });
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

  box.append(bar, words, place);
  show(0);
  return box;
}

function scalar(value) {
  if (isTile(value)) return value.data ? written(Number(value.data[0])) : String(value.dtype ?? "");
  return typeof value === "number" ? written(value) : String(value);
}
