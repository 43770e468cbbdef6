/* The coverage grid: its box holds a link to all cells and becomes a table of them with a filter for each axis.
   The summary above the box needs no script. */
import { make } from "../site/dom.js";
import { cellOf, filterTable, valuesOf } from "../site/filter_table.js";
import { fromData } from "../site/from_data.js";

const OUTCOMES = { passed: "am-rows-good", failed: "am-rows-bad", "does not fit": "am-rows-bad" };
const PLAIN = ["launcher", "device", "dtype", "sizes", "mask", "layout", "configuration", "error", "allowed"];
const HEADS = { sizes: "M, N, D" };

function checked(data) {
  const strings = (list) => Array.isArray(list) && list.length && list.every((x) => typeof x === "string");
  const valid = strings(data?.columns) && strings(data?.filters)
    && data.filters.every((name) => data.columns.includes(name))
    && Array.isArray(data.rows) && data.rows.length
    && data.rows.every((row) => Array.isArray(row) && row.length === data.columns.length);
  if (!valid) throw new Error("is not a list of cells");
  return data;
}

const number = (value) => (value === null ? "–" : Number(value).toExponential(1));

function build(box, data) {
  const valueOf = (row, name) => row[data.columns.indexOf(name)];
  const headOf = (name) => HEADS[name] ?? name;

  function textOf(row, name) {
    if (name === "sizes") return ["M", "N", "D"].map((size) => valueOf(row, size)).join(", ");
    return ["error", "allowed"].includes(name) ? number(valueOf(row, name)) : valueOf(row, name);
  }

  function rowOf(row) {
    const outcome = valueOf(row, "outcome");
    const reason = valueOf(row, "reason");
    return make(
      "tr", {}, ...PLAIN.map((name) => cellOf(headOf(name), textOf(row, name))),
      cellOf("outcome", make("strong", { textContent: outcome }), {
        className: OUTCOMES[outcome] ?? "", beside: reason ? ` ${reason}` : "",
      }),
    );
  }

  function summaryOf(shown, every) {
    if (!shown.length) return "No cell has all of these: they never met. Widen one of the filters.";
    const passed = shown.filter((row) => valueOf(row, "outcome") === "passed").length;
    return `${shown.length} of ${every.length} cells; ${passed} of them are within rounding of float64.`;
  }

  const table = filterTable({
    prefix: "cell-",
    label: "Cells",
    filters: Object.fromEntries(data.filters.map((name) => [name, valuesOf(data.rows, valueOf, name)])),
    heads: [...PLAIN.map(headOf), "outcome"],
    valueOf, rowOf, summaryOf,
    page: 16,
  });
  box.replaceChildren(...table.elements);
  table.show(data.rows);
}

export const start = fromData({
  checked, build,
  fails: "The cells cannot be shown",
  instead: "The summary is in the table below.",
});
