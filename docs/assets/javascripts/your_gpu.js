/* The card chooser: every .am-cards box holds a link to the kernels of all cards and the table of one.
   It becomes a choice of cards, filters, what the card has, and its kernels. What is chosen is in the
   address. Without a script the table stays. */
(() => {
  const { make, widget } = window.amFigures;
  const PREFIX = "gpu-"; // of the parameters in the address
  const FILTERS = ["launcher", "dtype", "verdict"];
  const ANY = "";

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

  const shown = (data) => data.columns.filter((name) => !["limit", "reason"].includes(name));
  const rowsOf = (view) => view.data.kernels[view.card.target];
  const at = (view, row, name) => row[view.data.columns.indexOf(name)];

  function fromAddress(view) {
    const found = new URLSearchParams(location.search);
    const { cards, first } = view.data;
    view.card = cards.find((card) => card.id === found.get(`${PREFIX}card`)) ?? cards.find((card) => card.id === first);
    for (const name of FILTERS) {
      const value = found.get(PREFIX + name) ?? ANY;
      view.chosen[name] = view.values[name].includes(value) ? value : ANY;
    }
  }

  function toAddress(view) {
    const address = new URL(location.href);
    const state = { card: view.card.id === view.data.first ? ANY : view.card.id, ...view.chosen };
    for (const [name, value] of Object.entries(state)) {
      if (value) address.searchParams.set(PREFIX + name, value);
      else address.searchParams.delete(PREFIX + name);
    }
    history.replaceState(history.state, "", address);
  }

  function rowElement(view, row) {
    const beside = { "at once": ["limit", " by "], verdict: ["reason", " "] }; // said in the same cell
    return make("tr", {}, ...shown(view.data).map((name) => {
      const value = at(view, row, name);
      const cell = make("td", {});
      cell.dataset.name = name;
      if (value === null) cell.className = "am-cards-empty";
      if (name === "verdict") cell.className = value === "fits" ? "am-rows-good" : "am-rows-bad";
      cell.append(name === "verdict" ? make("strong", { textContent: value }) : value ?? "–");
      const [also, word] = beside[name] ?? [];
      const more = also && at(view, row, also);
      if (more) cell.append(make("span", { className: "am-rows-aside", textContent: word + more }));
      return cell;
    }));
  }

  function show(view) {
    const { chosen, parts, card } = view;
    const all = rowsOf(view);
    const rows = all.filter((row) => FILTERS.every((name) => !chosen[name] || at(view, row, name) === chosen[name]));
    const count = (verdict) => rows.filter((row) => at(view, row, "verdict") === verdict).length;
    // Joined outside of the text below: whitespace of a template in a template does not survive packing.
    const counted = view.values.verdict.filter(count).map((verdict) => `${count(verdict)} ${verdict}`).join(", ");
    parts.body.replaceChildren(...rows.map((row) => rowElement(view, row)));
    parts.facts.replaceChildren(...card.facts.flatMap(([name, value]) => [
      make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value })),
    ]));
    parts.summary.textContent = rows.length
      ? `${card.name}: ${rows.length} of ${all.length} kernels and refusals; ${counted}.`
      : `${card.name}: nothing has all of these. Widen one of the filters.`;
    parts.clear.disabled = FILTERS.every((name) => !chosen[name]);
    for (const input of parts.cards.querySelectorAll("input")) input.checked = input.value === card.id;
    for (const name of FILTERS) parts.selects[name].value = chosen[name];
  }

  function build(box, data) {
    const every = Object.values(data.kernels).flat();
    const values = Object.fromEntries(FILTERS.map((name) => {
      const i = data.columns.indexOf(name);
      return [name, [...new Set(every.map((row) => row[i]))]];
    }));
    const parts = {
      cards: make("fieldset", { className: "am-cards-choice" }, make("legend", { textContent: "Your card" })),
      facts: make("dl", { className: "am-cards-facts" }),
      body: make("tbody", {}),
      summary: make("p", { className: "am-rows-summary" }),
      clear: make("button", { type: "button", textContent: "Clear filters" }),
      selects: {},
    };
    parts.summary.setAttribute("role", "status");
    const view = { data, values, parts, chosen: {}, card: null };
    const changed = () => {
      toAddress(view);
      show(view);
    };
    for (const card of data.cards) {
      // One radio group: the arrow keys go from card to card.
      const input = make("input", { type: "radio", name: "am-card", value: card.id });
      input.addEventListener("change", () => {
        view.card = card;
        changed();
      });
      parts.cards.append(make("label", {}, input, make("span", { textContent: card.name })));
    }
    const bar = make("div", { className: "am-rows-bar" });
    for (const name of FILTERS) {
      const select = make("select", { ariaLabel: name }, make("option", { value: ANY, textContent: "any" }),
        ...values[name].map((value) => make("option", { value, textContent: value })));
      select.addEventListener("change", () => {
        view.chosen[name] = select.value;
        changed();
      });
      parts.selects[name] = select;
      bar.append(make("label", {}, make("span", { textContent: name }), select));
    }
    parts.clear.addEventListener("click", () => {
      for (const name of FILTERS) view.chosen[name] = ANY;
      changed();
    });
    bar.append(parts.clear);
    const heads = shown(data).map((textContent) => make("th", { textContent, scope: "col" }));
    const table = make("table", { className: "am-rows" },
      make("thead", {}, make("tr", {}, ...heads)), parts.body);
    const scroll = make("div", { className: "am-rows-scroll", tabIndex: 0, role: "region" }, table);
    scroll.setAttribute("aria-label", "Kernels");
    box.replaceChildren(parts.cards, parts.facts, bar, parts.summary, scroll);
    fromAddress(view);
    show(view);
  }

  widget(".am-cards", {
    frame: ".am-rows", checked, build,
    fails: "Other cards cannot be shown",
    instead: "One card is in the table below.",
  });
})();
