/* A table, a formula, a diagram or code that is wider than its place scrolls inside itself. Then it takes the focus,
   so that the arrow keys can scroll it. What is folded away is looked at when it is unfolded. Code says how many
   columns it has: to measure each block would make a browser lay out all that it has left aside. */
import { make } from "./dom.js";
import { onPage } from "./pages.js";

const WIDE = ".md-typeset__scrollwrap, .am-math, .md-content__inner > p:has(> svg[role='img']:only-child)";
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

const PADDING = 2; // characters at each side of a line of code

function measureCode() {
  const blocks = document.querySelectorAll(".highlight[style*='--am-columns']");
  if (!blocks.length) return;
  const probe = make("code", { textContent: "0".repeat(100) });
  const box = make("div", { className: "md-typeset am-probe" }, make("pre", {}, probe));
  document.body.append(box);
  const fit = (document.querySelector(".md-content__inner").clientWidth / probe.offsetWidth) * 100 - 2 * PADDING;
  box.remove();
  for (const block of blocks) {
    const code = block.querySelector("pre > code");
    if (Number(block.style.getPropertyValue("--am-columns")) > fit) code.tabIndex = 0;
    else code.removeAttribute("tabindex");
  }
}

function measureAll() {
  measure(document);
  measureCode();
}

const later = window.requestIdleCallback ?? setTimeout; // measuring asks for a layout
onPage(() => later(measureAll));
addEventListener("resize", measureAll);
addEventListener("toggle", (event) => measure(event.target), true); // does not bubble
