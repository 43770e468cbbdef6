/* A table to choose rows from, with a filter for each of some columns. What is chosen is in the address, each
   parameter with the table's prefix. Styles: filter_table.css. */
import { asked, remember } from "./address.js";
import { button, make } from "./dom.js";

const ANY = "";

/* filters: {name: its values}; heads: the columns' titles; valueOf(row, name): what a filter compares;
   rowOf(row): a row's element; summaryOf(shown, every): a sentence; page: rows at a time.
   Returns the table's elements, in order, and show(rows). */
export function filterTable({ prefix, label, filters, heads, valueOf, rowOf, summaryOf, page }) {
  const names = Object.keys(filters);
  const body = make("tbody");
  const summary = make("p", { className: "am-rows-summary", role: "status" });
  const [back, on] = [button("← Earlier rows", () => turn(-page)), button("Later rows →", () => turn(page))];
  const place = make("span");
  const pages = make("p", { className: "am-rows-pages" }, back, place, on);
  const clear = button("Clear filters", () => {
    for (const name of names) selects[name].value = ANY;
    choose();
  });
  const bar = make("div", { className: "am-rows-bar" });
  const selects = Object.fromEntries(names.map((name) => [name, make(
    "select", { ariaLabel: name }, make("option", { value: ANY, textContent: "any" }),
    ...filters[name].map((value) => make("option", { value, textContent: value })),
  )]));
  let every = [];
  let from = 0;

  function fill() {
    const chosen = names.filter((name) => selects[name].value !== ANY);
    const rows = every.filter((row) => chosen.every((name) => valueOf(row, name) === selects[name].value));
    body.replaceChildren(...rows.slice(from, from + page).map(rowOf));
    summary.textContent = summaryOf(rows, every);
    pages.hidden = rows.length <= page;
    place.textContent = `${from + 1}–${Math.min(from + page, rows.length)} of ${rows.length}`;
    back.disabled = from === 0;
    on.disabled = from + page >= rows.length;
    clear.disabled = !chosen.length;
  }

  function turn(rows) {
    from += rows;
    fill();
    scroll.scrollIntoView({ block: "nearest" });
  }

  function choose() {
    from = 0;
    remember(Object.fromEntries(names.map((name) => [prefix + name, selects[name].value])));
    fill();
  }

  for (const name of names) {
    const value = asked(prefix + name) ?? ANY;
    selects[name].value = filters[name].includes(value) ? value : ANY;
    selects[name].addEventListener("change", choose);
    bar.append(make("label", {}, make("span", { textContent: name }), selects[name]));
  }
  bar.append(clear);
  const row = make("tr", {}, ...heads.map((textContent) => make("th", { textContent, scope: "col" })));
  const table = make("table", { className: "am-rows" }, make("thead", {}, row), body);
  const scroll = make("div", { className: "am-rows-scroll", tabIndex: 0, role: "region", ariaLabel: label }, table);

  function show(rows) {
    every = rows;
    from = 0;
    fill();
  }
  return { elements: [bar, summary, scroll, pages], show };
}

/* A cell that knows its column, so that a phone can show a row as a list; with words beside its value. */
export function cellOf(name, value, { className = "", beside = "" } = {}) {
  const cell = make("td", { className }, value ?? "–");
  cell.dataset.name = name;
  if (beside) cell.append(make("span", { className: "am-rows-aside", textContent: beside }));
  return cell;
}

/* The values of a column, each once, in the order of their first row. */
export const valuesOf = (rows, valueOf, name) => [...new Set(rows.map((row) => valueOf(row, name)))];
