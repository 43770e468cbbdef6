/* Where a reader is: a bar under the header that fills as the page goes by, and the side column, in which the
   section in sight stays in view, with a whole line at the top. The theme marks that section's link but scrolls
   only a column of its own. */
import { onPage } from "./pages.js";

const AFTER_MS = 150; // a scroll has come to rest
const MARKED = ".md-sidebar--primary .md-nav--secondary .md-nav__link--active";
const SEEN = { visibilityProperty: true }; // a line of a part that is folded has a place, too
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
  if (inSight) return;
  const name = column.querySelector(".md-nav--lifted > .md-nav__list > .md-nav__item--active > .md-nav__link");
  const edge = top + (name?.offsetHeight ?? 0); // of what stays at the column's top
  const left = column.scrollHeight - column.clientHeight - column.scrollTop;
  const wanted = Math.min(left, at.top - top - height * 0.4);
  const lines = [...column.querySelectorAll(".md-nav__link")].filter((line) => line.checkVisibility(SEEN));
  const steps = lines.filter((line) => line !== name).map((line) => line.getBoundingClientRect().top - edge);
  column.scrollTop += Math.max(...steps.filter((step) => step <= wanted), steps[0]);
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
/* On a phone not all tabs fit. */
function showTab() {
  const tab = document.querySelector(".md-tabs__item--active");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft + tab.offsetWidth - tab.parentElement.clientWidth;
}

onPage(() => {
  requestAnimationFrame(showTab);
  marks.disconnect();
  const column = document.querySelector(".md-sidebar--primary");
  if (column) marks.observe(column, { attributeFilter: ["class"], subtree: true });
  moved();
});
