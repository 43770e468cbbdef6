/* A table, a formula, a diagram or code that is wider than its place scrolls inside itself. Then it takes the focus,
   so that the arrow keys can scroll it. Code says how many columns it has: to measure each block would make a browser
   lay out all that it has left aside. */
import { make } from "./dom.js";
import { onPage } from "./pages.js";

const WIDE = ".md-typeset__scrollwrap, .am-math, .md-content__inner > p:has(> svg[role='img']:only-child)";
const NAMED = { tabindex: "0", role: "group", "aria-label": "Scrolls sideways" };

// Tells of a box when it is laid out first (unfolded, or scrolled to), and whenever it or what it holds changes.
const laidOut = new ResizeObserver((entries) => {
  for (const wrap of new Set(entries.map(({ target }) => target.closest(WIDE) ?? target))) {
    const scrolls = wrap.scrollWidth > wrap.clientWidth;
    for (const [name, value] of Object.entries(NAMED)) {
      if (scrolls) wrap.setAttribute(name, value);
      else wrap.removeAttribute(name);
    }
  }
});

function watch() {
  laidOut.disconnect();
  for (const wrap of document.querySelectorAll(WIDE)) {
    laidOut.observe(wrap);
    if (wrap.firstElementChild) laidOut.observe(wrap.firstElementChild);
  }
}

const PADDING = 2; // characters at each side of a line of code

function measureCode() {
  const blocks = document.querySelectorAll(".highlight[style*='--am-columns']");
  if (!blocks.length) return;
  const probe = make("code", { textContent: "0".repeat(100) });
  const box = make("div", { className: "md-typeset am-probe" }, make("pre", {}, probe));
  document.body.append(box);
  const wraps = getComputedStyle(probe).textIndent !== "0px"; // a phone's
  const fit = wraps ? Infinity : (document.querySelector(".md-content__inner").clientWidth / probe.offsetWidth) * 100 - 2 * PADDING;
  box.remove();
  for (const block of blocks) {
    const code = block.querySelector("pre > code");
    if (Number(block.style.getPropertyValue("--am-columns")) > fit) code.tabIndex = 0;
    else code.removeAttribute("tabindex");
  }
}

const later = window.requestIdleCallback ?? setTimeout; // measuring asks for a layout
onPage(watch);
onPage(() => later(measureCode));
addEventListener("resize", measureCode);
