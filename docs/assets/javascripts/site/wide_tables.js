/* A table or a diagram that is wider than its place scrolls inside itself. Then it takes the focus, so that
   the arrow keys can scroll it. What is folded away is looked at when it is unfolded. */
import { onPage } from "./pages.js";

const WIDE = ".md-typeset__scrollwrap, .md-content__inner > p:has(> svg[role='img']:only-child)";
const NAMED = { tabindex: "0", role: "group", "aria-label": "Scrolls sideways" };

function measure(within) {
  for (const wrap of within.querySelectorAll(WIDE)) {
    if (wrap.closest("details:not([open])")) continue;
    const scrolls = wrap.scrollWidth > wrap.clientWidth;
    for (const [name, value] of Object.entries(NAMED)) {
      if (scrolls) wrap.setAttribute(name, value);
      else wrap.removeAttribute(name);
    }
  }
}

const later = window.requestIdleCallback ?? setTimeout; // measuring asks for a layout
onPage(() => later(() => measure(document)));
addEventListener("resize", () => measure(document));
addEventListener("toggle", (event) => measure(event.target), true); // does not bubble
