/* Which exercises a reader has solved, and where they stopped: kept in this browser and sent nowhere. */
import { make } from "./dom.js";
import { onPage } from "./pages.js";

const SOLVED = "attention-measured.solved";
const STOPPED = "attention-measured.stopped"; // the address of a section of a post, without the host
const RESTS_MS = 500; // a reader who stays
let timer = 0;

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null; // no storage, or not ours
  }
}

function keep(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch (error) {
    console.warn(`Not remembered: ${error.message}`);
  }
}

function solved() {
  const names = read(SOLVED);
  return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
}

export function solve(name) {
  keep(SOLVED, [...new Set([...solved(), name])]);
  mark(name);
}

function mark(...names) {
  const done = new Set([...solved(), ...names]);
  for (const box of document.querySelectorAll(".am-exercise")) {
    box.classList.toggle("am-solved", done.has(box.dataset.exercise));
  }
  for (const sum of document.querySelectorAll(".am-tally")) {
    const all = [...document.querySelectorAll(".am-exercise")];
    const so = all.filter((box) => box.classList.contains("am-solved")).length;
    sum.textContent = so ? `${so} of ${all.length} solved in this browser.` : "";
  }
}

/* Of a post the section on screen; at its last one, the page that follows. */
function stop() {
  if (!document.querySelector(".am-here")) return;
  const sections = [...document.querySelectorAll("article h2[id]")];
  const begun = sections.filter((title) => title.getBoundingClientRect().top < innerHeight / 2);
  const next = document.querySelector(".md-footer__link--next");
  const here = begun.length ? `${location.pathname}#${begun.at(-1).id}` : location.pathname;
  keep(STOPPED, next && begun.length === sections.length ? next.pathname : here);
}

/* The front page and the list of posts lead back there, if the navigation still has that page. */
function resume() {
  const box = document.querySelector(".am-continue");
  const [path, section = ""] = String(read(STOPPED)).split("#");
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
  mark();
  resume();
  stop();
});
