/* Which exercises a reader has solved: kept in this browser and sent nowhere. The playground's map shows them. */
import { make } from "./dom.js";
import { keep, kept } from "./kept.js";
import { onPage } from "./pages.js";

const KEY = "attention-measured.solved";

function read() {
  try {
    const names = JSON.parse(kept(KEY) ?? "[]");
    return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
  } catch {
    return []; // not ours
  }
}

/* A link to the first rung of the map that is not solved yet, or nothing. */
export function nextRung() {
  const cell = document.querySelector(".am-rung[aria-current]");
  return cell ? make("a", { href: cell.hash, textContent: `Next: ${cell.dataset.title}` }) : "";
}

export function solve(name) {
  keep(KEY, JSON.stringify([...new Set([...read(), name])]));
  mark(name);
}

function mark(...names) {
  const done = new Set([...read(), ...names]);
  for (const box of document.querySelectorAll(".am-exercise")) {
    box.classList.toggle("am-solved", done.has(box.dataset.exercise));
  }
  const cells = [...document.querySelectorAll(".am-rung")];
  const current = cells.find(({ dataset }) => !done.has(dataset.rung));
  for (const cell of cells) {
    const solved = done.has(cell.dataset.rung);
    cell.classList.toggle("am-solved", solved);
    cell.ariaCurrent = cell === current ? "step" : null;
    cell.ariaLabel = `${cell.dataset.title}: ${solved ? "solved" : cell === current ? "next" : "open"}`;
  }
  for (const sum of document.querySelectorAll(".am-tally")) {
    const so = cells.filter((cell) => done.has(cell.dataset.rung)).length;
    sum.replaceChildren(`${so} of ${cells.length} solved in this browser. `, nextRung());
  }
  for (const group of document.querySelectorAll(".am-group")) {
    const boxes = group.getElementsByClassName("am-exercise");
    const so = group.getElementsByClassName("am-solved").length;
    group.querySelector("summary > span").textContent = so ? `${so} of ${boxes.length} solved` : `${boxes.length} to solve`;
  }
}

/* A rung is in a group, and one group is open at a time. */
function reveal(hash) {
  const rung = hash.startsWith("#rung-") && document.getElementById(hash.slice(1));
  if (!rung) return;
  rung.closest("details").open = true;
  rung.scrollIntoView();
}

addEventListener("click", ({ target }) => {
  const link = target.closest?.("a[href^='#rung-']");
  if (link) reveal(link.hash);
});
addEventListener("hashchange", () => reveal(location.hash));

onPage(() => {
  mark();
  const current = document.querySelector(".am-rung[aria-current]");
  const rung = current && document.getElementById(current.hash.slice(1));
  if (rung) rung.closest("details").open = true;
  reveal(location.hash);
  if (rung && location.hash === "#start") { // from the front page: with the next rung's editor open
    rung.scrollIntoView();
    rung.querySelector(".am-edit").click();
  }
});
