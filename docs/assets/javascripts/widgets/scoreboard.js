/* From the first kernel to the last: its box holds the code of each step, written by `make figures`.
   With this script one step shows at a time, chosen with a slider; without it all stand one below the other.
   The step is in the address, so that a view can be shared. */
import { asked, rememberLater } from "../site/address.js";
import { player } from "../site/player.js";

const PARAMETER = "kernel";

export const atOnce = true; // it hides all steps but one

export function start(box) {
  const sections = [...box.querySelectorAll(":scope > section[data-kernel]")];
  if (sections.length < 2) return;
  const names = sections.map((section) => section.dataset.kernel);
  const { bar, show: showBar } = player({ go: (step) => show(step, true), name: "Kernel" });
  bar.classList.add("am-ladder-bar");
  box.prepend(bar);
  const later = rememberLater(box);

  function show(step, keep) {
    sections.forEach((section, i) => { section.hidden = i !== step; });
    showBar({ step, last: sections.length - 1, said: names.slice(Math.max(0, step - 1), step + 1).join(" → ") });
    if (keep) later({ [PARAMETER]: names[step] });
  }

  const first = names.indexOf(asked(PARAMETER));
  show(Math.max(0, first), false);
}
