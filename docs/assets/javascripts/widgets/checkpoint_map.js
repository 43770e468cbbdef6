/* Where one byte of a text looks, over the steps of a training: its box links to the weights of a few heads at a few
   steps and becomes two sliders, for the step and for the byte, above the text. */
import { make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";
import { player } from "../site/player.js";

const FRAME = `
  <div class="am-fields">
    <label class="am-field">Head <select data-part="head"></select></label>
    <label class="am-field">Byte <b data-part="byteShown"></b><input type="range" data-part="byte" min="0"></label>
  </div>
  <pre class="am-history-text" data-part="text"></pre>
  <p class="am-history-summary" data-part="summary" role="status"></p>`;
const NAMES = { "\n": "line break", " ": "space" };

const nameOf = (letter) => NAMES[letter] ?? letter;
const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

/* Weights of one query: its row begins behind the rows before it, 1 + 2 + … + query numbers. */
export const rowOf = (bytes, query) => {
  const begins = (query * (query + 1)) / 2;
  return Array.from(bytes.subarray(begins, begins + query + 1), (weight) => weight / 255);
};

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function show(map) {
  const { parts, letters, data, step } = map;
  const query = Number(parts.byte.value);
  const weights = rowOf(data.heads[parts.head.selectedIndex].weights[step], query);
  letters.forEach((letter, at) => {
    letter.style.setProperty("--am-weight", Math.sqrt(weights[at] ?? 0).toFixed(3));
    letter.toggleAttribute("data-chosen", at === query);
    letter.toggleAttribute("data-later", at > query);
  });
  const largest = weights.indexOf(Math.max(...weights));
  const back = query - largest;
  const where = back === 0 ? "at itself" : `${back} back`;
  map.player.show({ step, last: data.steps.length - 1, said: `step ${data.steps[step]}` });
  parts.byteShown.textContent = `${query + 1}, ${nameOf(data.text[query])}`;
  parts.byte.setAttribute("aria-valuetext", `byte ${parts.byteShown.textContent}`);
  parts.summary.textContent = `Step ${data.steps[step]}: the largest weight, ${percent(weights[largest])}, `
    + `is on “${nameOf(data.text[largest])}”, ${where}.`;
}

function build(box, data) {
  const frame = make("div", { className: "am-history-frame", innerHTML: FRAME });
  const parts = partsOf(frame);
  const letters = [...data.text].map((letter) => make("span", { textContent: letter === "\n" ? "↵\n" : letter }));
  parts.head.append(...data.heads.map(({ name }) => make("option", { textContent: name })));
  parts.text.append(...letters);
  parts.byte.max = data.text.length - 1;
  parts.byte.value = Math.max(data.text.indexOf(")"), 0);
  const map = { parts, letters, data, step: data.steps.length - 1 };
  map.player = player({ go: (step) => show(Object.assign(map, { step })) });
  frame.prepend(map.player.bar);
  frame.addEventListener("input", () => show(map));
  parts.text.addEventListener("click", (event) => {
    const at = letters.indexOf(event.target);
    if (at < 0) return;
    parts.byte.value = at;
    show(map);
  });
  box.replaceChildren(frame);
  show(map);
}

function checked(data) {
  const { text, steps, heads } = data ?? {};
  const size = (text?.length * (text?.length + 1)) / 2;
  const valid = text && steps?.length && heads?.length
    && heads.every((head) => head.name && head.weights?.length === steps.length);
  if (!valid) throw new Error("does not hold the weights of heads");
  for (const head of heads) head.weights = head.weights.map(bytesOf);
  if (!heads.every((head) => head.weights.every((weights) => weights.length === size))) {
    throw new Error("holds maps of another size than its text");
  }
  return data;
}

export const start = fromData({
  checked, build,
  fails: "The maps cannot be shown",
  instead: "The chart above says how much weight lies where.",
});
