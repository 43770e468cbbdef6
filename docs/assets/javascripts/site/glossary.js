/* A word of the glossary under a finger: the first touch shows its definition, below it the way to all of them.
   With a mouse the definition is the word's title, and a click leads there at once. */
import { make } from "./dom.js";

let open = null;
let pressed = ""; // the definition of the word under the finger: the theme takes titles away for its tooltips

function close() {
  open?.remove();
  open = null;
}

function show(link, definition) {
  close();
  const all = make("a", { href: link.href, textContent: "In the glossary" });
  open = make("span", { className: "am-definition", role: "status" }, make("span", { textContent: definition }), all);
  link.after(open);
  open.word = link;
}

addEventListener("pointerdown", (event) => {
  pressed = event.target.closest?.("a.am-term")?.title || pressed;
}, true);

addEventListener("click", (event) => {
  const link = event.target.closest?.("a.am-term");
  if (!link) {
    if (!event.target.closest?.(".am-definition")) close();
    return;
  }
  const touched = event.pointerType === "touch" || (!event.pointerType && matchMedia("(hover: none)").matches);
  if (!touched) return;
  if (open?.word === link) return; // the second touch follows the link
  if (!pressed) return;
  event.preventDefault();
  event.stopPropagation(); // instant navigation would follow it
  show(link, pressed);
}, true);

addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
});
