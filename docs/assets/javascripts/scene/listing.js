/* The kernel's lines beside the scene: those of a step are marked, the one that runs is lit. */
import { make } from "../site/dom.js";

const WORDS = /(#.*)|("[^"]*")|\b(def|for|in|if|elif|else|while|and|or|not|is|None|True|False|range)\b|\b(\d[\d.]*)\b|\b((?:tl|gl|mbarrier|tma)\.\w+)/g;
const KINDS = ["", "am-scene-comment", "am-scene-string", "am-scene-keyword", "am-scene-number", "am-scene-function"];

function colored(line) {
  const parts = [];
  let end = 0;
  for (const match of line.matchAll(WORDS)) {
    const kind = KINDS.find((_, i) => i && match[i]);
    parts.push(line.slice(end, match.index), make("span", { className: kind, textContent: match[0] }));
    end = match.index + match[0].length;
  }
  return [...parts, line.slice(end)];
}

/* lines: text. show(ran, u): of the statements that a step ran, [first, last], the one at moment u is lit.
   stand(who): where several parts stand at once, {part, lines, waits}. */
export function listing(lines, label) {
  const rows = lines.map((line) => make("span", { className: "am-scene-line" }, ...colored(line), "\n"));
  rows.forEach((row, at) => row.style.setProperty("--am-indent", `${lines[at].search(/\S|$/) + 2}ch`));
  const code = make("code", {}, ...rows);
  const box = make("pre", { className: "am-scene-code", tabIndex: 0, role: "region", ariaLabel: label }, code);
  let marked;
  let lit;

  /* Scrolled first and marked then: the other way around the browser would lay out the marks in between. */
  function show(ran, u) {
    const now = ran[Math.min(ran.length - 1, Math.floor(u * ran.length))];
    const others = ran !== marked;
    if (!others && now === lit) return;
    if (others && ran.length) toward(rows[Math.min(...ran.map(([first]) => first))], rows[Math.max(...ran.map(([, last]) => last))]);
    if (now) keepInSight(rows[now[0]], rows[now[1]]);
    if (others) {
      for (const row of rows) row.classList.remove("am-scene-ran");
      for (const [first, last] of ran) rows.slice(first, last + 1).forEach((row) => row.classList.add("am-scene-ran"));
    }
    for (const row of rows) row.classList.remove("am-scene-lit");
    if (now) rows.slice(now[0], now[1] + 1).forEach((row) => row.classList.add("am-scene-lit"));
    marked = ran;
    lit = now;
  }

  const place = (row) => row.offsetTop - box.offsetTop;

  /* No line is cut at the top: the first that begins at or below it becomes the first in sight. */
  function scrollTo(wanted) {
    const end = place(rows.at(-1)) + rows.at(-1).offsetHeight - box.clientHeight; // the last line at the lower edge
    const top = Math.min(wanted, end);
    box.scrollTo({ top: top > 0 ? place(rows.find((row) => place(row) >= top)) : 0 });
  }

  /* The lines of a step in the middle, if they fit. */
  function toward(first, last) {
    const [from, to] = [place(first), place(last) + last.offsetHeight];
    const fits = to - from <= box.clientHeight;
    scrollTo(fits ? (from + to - box.clientHeight) / 2 : from - first.offsetHeight);
  }

  function keepInSight(first, last) {
    const [from, to] = [place(first), place(last) + last.offsetHeight];
    if (from < box.scrollTop) scrollTo(from);
    else if (to > box.scrollTop + box.clientHeight) scrollTo(to - box.clientHeight);
  }

  /* Of parts that run side by side: where each stands, and whether it waits there. */
  function stand(who) {
    if (who === marked) return;
    const at = (who.find(({ waits }) => !waits) ?? who[0] ?? {}).lines;
    if (at) keepInSight(rows[at[0]], rows[at[1]]);
    marked = who;
    for (const row of rows) {
      row.classList.remove("am-scene-ran", "am-scene-waits");
      row.style.removeProperty("--am-who");
    }
    for (const { lines: [first, last], part, waits } of who) {
      for (const row of rows.slice(first, last + 1)) {
        row.classList.add("am-scene-ran");
        if (waits) row.classList.add("am-scene-waits");
        row.style.setProperty("--am-who", `var(--am-warp-${part.replace(" ", "-")})`);
      }
    }
  }

  return { element: box, show, stand };
}
