/* From the first kernel to the last: its box holds the code of each step, written by `make figures`.
   With this script one step shows at a time, chosen with a slider; without it all stand one below the other.
   The step is in the address, so that a view can be shared. */
import { asked, rememberLater } from "../site/address.js";
import { make } from "../site/dom.js";

const PARAMETER = "kernel";

export const atOnce = true; // it hides all steps but one

export function start(box) {
  const sections = [...box.querySelectorAll(":scope > section[data-kernel]")];
  if (sections.length < 2) return;
  const names = sections.map((section) => section.dataset.kernel);
  const bar = make("div", { className: "am-ladder-bar" });
  const back = make("button", { type: "button", textContent: "◀" });
  const on = make("button", { type: "button", textContent: "▶" });
  const range = make("input", { type: "range", min: 0, max: sections.length - 1, step: 1 });
  const count = make("span");
  back.setAttribute("aria-label", "The kernel before");
  on.setAttribute("aria-label", "The next kernel");
  range.setAttribute("aria-label", "Kernel");
  count.setAttribute("aria-hidden", "true");
  bar.append(back, range, on, count);
  box.prepend(bar);
  const later = rememberLater(box);

  function show(step, keep) {
    sections.forEach((section, i) => { section.hidden = i !== step; });
    range.value = step;
    range.setAttribute("aria-valuetext", names.slice(Math.max(0, step - 1), step + 1).join(" → "));
    back.disabled = step === 0;
    on.disabled = step === sections.length - 1;
    count.textContent = `${step + 1} of ${sections.length}`;
    if (keep) later({ [PARAMETER]: names[step] });
  }

  range.addEventListener("input", () => show(Number(range.value), true));
  back.addEventListener("click", () => show(Math.max(0, Number(range.value) - 1), true));
  on.addEventListener("click", () => show(Math.min(sections.length - 1, Number(range.value) + 1), true));
  const first = names.indexOf(asked(PARAMETER));
  show(Math.max(0, first), false);
}
