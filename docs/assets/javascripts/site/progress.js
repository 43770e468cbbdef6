/* Which exercises a reader has solved: kept in this browser and sent nowhere. */
import { onPage } from "./pages.js";

const KEY = "attention-measured.solved";

function read() {
  try {
    const names = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
  } catch {
    return []; // no storage, or not ours
  }
}

export function solve(name) {
  try {
    localStorage.setItem(KEY, JSON.stringify([...new Set([...read(), name])]));
  } catch (error) {
    console.warn(`Not remembered: ${error.message}`);
  }
  mark(name);
}

function mark(...names) {
  const done = new Set([...read(), ...names]);
  for (const box of document.querySelectorAll(".am-exercise")) {
    box.classList.toggle("am-solved", done.has(box.dataset.exercise));
  }
  for (const sum of document.querySelectorAll(".am-tally")) {
    const all = [...document.querySelectorAll(".am-exercise")];
    const so = all.filter((box) => box.classList.contains("am-solved")).length;
    sum.textContent = so ? `${so} of ${all.length} solved in this browser.` : "";
  }
}

onPage(() => mark());
