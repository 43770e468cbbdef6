/* The numbers of a step as tables: what the picture shows, to be read. */
import { make } from "../site/dom.js";

const KINDS = { none: "am-scene-none", hidden: "am-scene-hidden", score: "am-scene-score", acc: "am-scene-acc" };

function table({ caption, heads, body: rows }, chosen) {
  const node = make("table", { className: "am-scene-table" }); // a class: none of Material's table style
  node.append(make("caption", { textContent: caption }));
  const head = node.createTHead().insertRow();
  for (const text of heads) head.append(make("th", { scope: "col", textContent: text }));
  const body = node.createTBody();
  rows.forEach(({ head: name, cells }, i) => {
    const row = body.insertRow();
    row.classList.toggle("am-scene-chosen", i === chosen && rows.length > 1);
    row.append(make("th", { scope: "row", textContent: name }));
    for (const { text, kind, level, label, changed, minus } of cells) {
      const css = [KINDS[kind], changed && "am-scene-changed", minus && "am-scene-minus"];
      const cell = make("td", { textContent: text, className: css.filter(Boolean).join(" ") });
      if (label) cell.ariaLabel = label;
      if (level !== undefined) cell.style.setProperty("--am-level", level);
      row.append(cell);
    }
  });
  return node;
}

export const tablesFor = (step, chosen) => step.tables().map((one) => table(one, chosen));
