/* The card chooser: its box holds a link to the kernels of all cards and the table of one. It becomes a choice
   of cards, filters, what the card has, and its kernels. Without a script the table stays. */
import { asked, remember } from "../site/address.js";
import { make } from "../site/dom.js";
import { cellOf, filterTable, valuesOf } from "../site/filter_table.js";
import { fromData } from "../site/from_data.js";

const CARD = "gpu-card"; // the card's parameter in the address
const FILTERS = ["launcher", "dtype", "verdict"];
const BESIDE = { "at once": ["limit", " by "], verdict: ["reason", " "] }; // said in the same cell
const HIDDEN = ["limit", "reason"];
const ONE = { refused: "is refused" };
const MANY = {
  fits: "fit", spills: "spill", "does not fit": "do not fit", "does not compile": "do not compile", refused: "are refused",
};

function checked(data) {
  const strings = (list) => Array.isArray(list) && list.length && list.every((x) => typeof x === "string");
  const valid = strings(data?.columns) && FILTERS.every((name) => data.columns.includes(name))
    && Array.isArray(data.cards) && data.cards.some((card) => card.id === data.first)
    && data.cards.every((card) => strings([card.id, card.name, card.target]) && Array.isArray(card.facts)
      && Array.isArray(data.kernels?.[card.target])
      && data.kernels[card.target].every((row) => row.length === data.columns.length));
  if (!valid) throw new Error("is not a list of cards and kernels");
  return data;
}

function build(box, data) {
  const { cards, columns, kernels } = data;
  const valueOf = (row, name) => row[columns.indexOf(name)];
  const shown = columns.filter((name) => !HIDDEN.includes(name));
  const every = Object.values(kernels).flat();
  const verdicts = valuesOf(every, valueOf, "verdict");
  const first = cards.find((card) => card.id === data.first);
  let card = cards.find(({ id }) => id === asked(CARD)) ?? first;

  function cell(row, name) {
    const value = valueOf(row, name);
    const [also, word] = BESIDE[name] ?? [];
    const more = also && valueOf(row, also);
    const beside = more ? word + more : "";
    if (name !== "verdict") return cellOf(name, value, { className: value === null ? "am-cards-empty" : "", beside });
    const className = value === "fits" ? "am-rows-good" : "am-rows-bad";
    return cellOf(name, make("strong", { textContent: value }), { className, beside });
  }

  /* "76 fit, 1 spills". */
  function counted(rows) {
    const count = (verdict) => rows.filter((row) => valueOf(row, "verdict") === verdict).length;
    return verdicts.filter(count).map((verdict) => `${count(verdict)} ${(count(verdict) === 1 ? ONE : MANY)[verdict] ?? verdict}`).join(", ");
  }

  function summaryOf(rows, all) {
    if (!rows.length) return `${card.name}: nothing has all of these. Widen one of the filters.`;
    return `${card.name}: ${rows.length} of ${all.length} kernels and refused calls; ${counted(rows)}.`;
  }

  const table = filterTable({
    prefix: "gpu-",
    label: "Kernels",
    filters: Object.fromEntries(FILTERS.map((name) => [name, valuesOf(every, valueOf, name)])),
    heads: shown,
    page: 16,
    valueOf, summaryOf,
    rowOf: (row) => make("tr", {}, ...shown.map((name) => cell(row, name))),
  });
  const choice = make("fieldset", { className: "am-cards-choice" }, make("legend", { textContent: "Your card" }));
  const facts = make("dl", { className: "am-cards-facts" });

  function choose(chosen) {
    card = chosen;
    for (const input of choice.querySelectorAll("input")) input.checked = input.value === card.id;
    facts.replaceChildren(...card.facts.map(([name, value]) => (
      make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))
    )));
    table.show(kernels[card.target]);
  }

  for (const other of cards) {
    // One radio group: the arrow keys go from card to card.
    const input = make("input", { type: "radio", name: "am-card", value: other.id });
    input.addEventListener("change", () => {
      remember({ [CARD]: other === first ? "" : other.id });
      choose(other);
      title();
    });
    choice.append(make("label", {}, input, make("span", { textContent: other.name })));
  }
  // The figure's title is of all cards until the reader has chosen one; then of all that one has, whatever the filters.
  const finding = box.closest(".am-figure")?.querySelector(".am-finding");
  function title() {
    if (finding) finding.textContent = `${card.name}: ${counted(kernels[card.target])}, of ${kernels[card.target].length} kernels and calls.`;
  }

  box.replaceChildren(choice, facts, ...table.elements);
  choose(card);
  if (asked(CARD)) title();
}

export const start = fromData({
  checked, build,
  fails: "Other cards cannot be shown",
  instead: "One card is in the table below.",
});
