/* Where a reader stopped in the posts: kept in this browser and sent nowhere. The front page and the list of
   posts lead back there. */
import { make } from "./dom.js";
import { keep, kept } from "./kept.js";
import { onPage } from "./pages.js";

const KEY = "attention-measured.stopped"; // the address of a section, without the host
const RESTS_MS = 500; // a reader who stays
let timer = 0;

/* Of a post the section on screen; at its last one, the page that follows. */
function stop() {
  if (!document.querySelector(".am-here")) return;
  const sections = [...document.querySelectorAll("article h2[id]")];
  const begun = sections.filter((title) => title.getBoundingClientRect().top < innerHeight / 2);
  const next = document.querySelector(".md-footer__link--next");
  const here = begun.length ? `${location.pathname}#${begun.at(-1).id}` : location.pathname;
  keep(KEY, next && begun.length === sections.length ? next.pathname : here);
}

/* If the navigation still has that page. */
function resume() {
  const box = document.querySelector(".am-continue");
  const [path, section] = (kept(KEY) ?? "").split("#");
  const links = [...document.querySelectorAll(".md-nav--primary a.md-nav__link")];
  const link = links.find((a) => a.pathname === path);
  if (!box || !link) return;
  const href = section ? `${link.href}#${section}` : link.href;
  box.replaceChildren("Continue where you stopped: ", make("a", { href, textContent: link.textContent.trim() }));
  box.hidden = false;
}

addEventListener("scroll", () => {
  clearTimeout(timer);
  timer = setTimeout(stop, RESTS_MS);
}, { passive: true });
onPage(() => {
  clearTimeout(timer);
  resume();
  stop();
});
