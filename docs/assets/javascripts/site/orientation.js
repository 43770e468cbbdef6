/* Where a reader is: a bar under the header that fills as the page goes by, and the side column, in which the
   section in sight stays in view. The theme marks that section's link but scrolls only a column of its own. */
import { onPage } from "./pages.js";

const AFTER_MS = 150; // a scroll has come to rest
const MARKED = ".md-sidebar--primary .md-nav--secondary .md-nav__link--active";
const LONG = 2; // screens: a shorter page has no bar
const bar = document.querySelector(".am-progress");
let frame = 0;
let timer = 0;

function fill() {
  frame = 0;
  const page = document.documentElement;
  const whole = page.scrollHeight - innerHeight;
  const part = whole > (LONG - 1) * innerHeight ? Math.min(1, page.scrollTop / whole) : 0;
  bar.style.transform = `scaleX(${part.toFixed(4)})`;
}

function follow() {
  const links = document.querySelectorAll(MARKED);
  const link = links[links.length - 1];
  const column = link?.closest(".md-sidebar__scrollwrap");
  if (!column?.offsetHeight) return; // a closed drawer
  const { top, height } = column.getBoundingClientRect();
  const at = link.getBoundingClientRect();
  const inSight = at.top >= top + height * 0.15 && at.bottom <= top + height * 0.85;
  if (!inSight) column.scrollTop += at.top - top - height * 0.4;
}

function followSoon() {
  clearTimeout(timer);
  timer = setTimeout(follow, AFTER_MS);
}

function moved() {
  frame ||= requestAnimationFrame(fill);
  followSoon();
}

/* A busy machine marks the link long after the scroll. */
const marks = new MutationObserver(followSoon);

addEventListener("scroll", moved, { passive: true });
addEventListener("resize", moved, { passive: true });
onPage(() => {
  marks.disconnect();
  const column = document.querySelector(".md-sidebar--primary");
  if (column) marks.observe(column, { attributeFilter: ["class"], subtree: true });
  moved();
});
