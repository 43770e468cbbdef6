/* The coverage grid: every .am-coverage box holds a link to all cells and becomes a table of them with a
   filter for each axis. What is chosen is in the address, so that a view can be shared. The summary above
   the box needs no script. */
(() => {
  const { make, widget } = window.amFigures;
  const AT_FIRST = 60; // rows; more on request
  const PREFIX = "cell-"; // of the parameters in the address
  const OUTCOMES = { passed: "am-rows-good", failed: "am-rows-bad", "does not fit": "am-rows-bad" };

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

  function fromAddress(view) {
    const found = new URLSearchParams(location.search);
    for (const name of view.data.filters) {
      const value = found.get(PREFIX + name) ?? "";
      view.chosen[name] = view.values[name].includes(value) ? value : "";
    }
  }

  function toAddress(view) {
    const address = new URL(location.href);
    for (const [name, value] of Object.entries(view.chosen)) {
      if (value) address.searchParams.set(PREFIX + name, value);
      else address.searchParams.delete(PREFIX + name);
    }
    history.replaceState(history.state, "", address);
  }

  function rowOf(view, row) {
    const at = (name) => row[view.data.columns.indexOf(name)];
    const outcome = at("outcome");
    const inside = [make("strong", { textContent: outcome })];
    if (at("reason")) inside.push(make("span", { className: "am-rows-aside", textContent: ` ${at("reason")}` }));
    const cells = [
      ["launcher", at("launcher")],
      ["device", at("device")],
      ["dtype", at("dtype")],
      ["N, M, D", `${at("N")}, ${at("M")}, ${at("D")}`],
      ["mask", at("mask")],
      ["layout", at("layout")],
      ["configuration", at("configuration")],
      ["error", number(at("error"))],
      ["allowed", number(at("allowed"))],
    ].map(([name, text]) => {
      const cell = make("td", { textContent: text });
      cell.dataset.name = name;
      return cell;
    });
    const last = make("td", { className: OUTCOMES[outcome] ?? "" }, ...inside);
    last.dataset.name = "outcome";
    return make("tr", {}, ...cells, last);
  }

  function show(view) {
    const { data, chosen, parts } = view;
    const wanted = data.filters.map((name) => [data.columns.indexOf(name), chosen[name]]).filter(([, v]) => v);
    const rows = data.rows.filter((row) => wanted.every(([i, value]) => row[i] === value));
    const outcome = data.columns.indexOf("outcome");
    const passed = rows.filter((row) => row[outcome] === "passed").length;
    const shown = view.all ? rows : rows.slice(0, AT_FIRST);
    parts.body.replaceChildren(...shown.map((row) => rowOf(view, row)));
    parts.summary.textContent = rows.length
      ? `${rows.length} of ${data.rows.length} cells; ${passed} of them are within rounding of float64.`
      : "No cell has all of these: they never met. Widen one of the filters.";
    parts.more.hidden = shown.length === rows.length;
    parts.more.textContent = `Show all ${rows.length}`;
    parts.clear.disabled = !wanted.length;
    for (const [name, select] of Object.entries(parts.selects)) select.value = chosen[name];
  }

  function build(box, data) {
    const values = Object.fromEntries(data.filters.map((name) => {
      const i = data.columns.indexOf(name);
      return [name, [...new Set(data.rows.map((row) => row[i]))]];
    }));
    const parts = {
      body: make("tbody", {}),
      summary: make("p", { className: "am-rows-summary" }),
      more: make("button", { type: "button", className: "am-rows-more" }),
      clear: make("button", { type: "button", textContent: "Clear filters" }),
      selects: {},
    };
    parts.summary.setAttribute("role", "status");
    const view = { data, values, parts, chosen: {}, all: false };
    const bar = make("div", { className: "am-rows-bar" });
    for (const name of data.filters) {
      const select = make("select", { ariaLabel: name }, make("option", { value: "", textContent: "any" }),
        ...values[name].map((value) => make("option", { value, textContent: value })));
      select.addEventListener("change", () => {
        view.chosen[name] = select.value;
        view.all = false;
        toAddress(view);
        show(view);
      });
      parts.selects[name] = select;
      bar.append(make("label", {}, make("span", { textContent: name }), select));
    }
    parts.clear.addEventListener("click", () => {
      for (const name of data.filters) view.chosen[name] = "";
      toAddress(view);
      show(view);
    });
    parts.more.addEventListener("click", () => {
      view.all = true;
      show(view);
    });
    bar.append(parts.clear);
    const heads = ["launcher", "device", "dtype", "N, M, D", "mask", "layout", "configuration", "error", "allowed", "outcome"]
      .map((textContent) => make("th", { textContent, scope: "col" }));
    const table = make("table", { className: "am-rows" },
      make("thead", {}, make("tr", {}, ...heads)), parts.body);
    const scroll = make("div", { className: "am-rows-scroll", tabIndex: 0, role: "region" }, table);
    scroll.setAttribute("aria-label", "Cells");
    box.replaceChildren(bar, parts.summary, scroll, parts.more);
    fromAddress(view);
    show(view);
  }

  widget(".am-coverage", {
    frame: ".am-rows", checked, build,
    fails: "The cells cannot be shown",
    instead: "The summary is in the table below.",
  });
})();
