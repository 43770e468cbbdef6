/* The attention map: every .am-map box holds one link per sentence to a file of weights, and becomes a
   sentence that answers to a click, a heatmap (Plotly, see figures.js) and small pictures of all heads.

   A view can be shared: ?map=<sentence>.<layer>.<head>.<token>.<row|column>, where the numbers count from
   zero as in the data; the second map of a page reads ?map2=, and so on. It is a query because the hash
   belongs to the headings, and it replaces the history's entry, so that "back" leaves the page. A link to
   such an address on its own page changes the map in place. */
(() => {
  const { PLOTLY, loadJson, loadPlotly, theme } = window.amFigures;
  const NEAR = "200px 0px";
  const VIEW = /^([\w-]+)\.(\d{1,4})\.(\d{1,4})\.(\d{1,4})\.(row|column)$/;
  const DIRECTIONS = { row: "what it attends to", column: "what attends to it" };
  const SHADES = 256;
  const CONFIG = { displayModeBar: false, responsive: false, doubleClick: false };
  const VISIBLE = 0.05; // smaller weights show their number on hover and focus only
  const FRAME = `
    <div class="am-map-bar">
      <fieldset class="am-map-tabs" data-part="sentences"><legend>Sentence</legend></fieldset>
      <span class="am-map-selects">
        <label>Layer <select data-part="layer"></select></label>
        <label>Head <select data-part="head"></select></label>
      </span>
    </div>
    <p class="am-map-notice" data-part="notice" role="status"></p>
    <div class="am-map-stage" data-part="stage">
      <div class="am-map-text">
        <fieldset class="am-map-tabs" data-part="directions"><legend>Show</legend></fieldset>
        <div class="am-map-tokens" data-part="tokens" role="group" aria-label="Tokens of the sentence"></div>
        <p class="am-map-summary" data-part="summary" aria-live="polite"></p>
      </div>
      <div class="am-map-heat" data-part="heat" role="img">
        <canvas data-part="preview"></canvas><div data-part="plot"></div>
      </div>
      <div class="am-map-panel">
        <p data-part="count"></p>
        <div class="am-map-heads" data-part="heads" role="group" aria-label="All heads"></div>
      </div>
    </div>
    <div class="am-map-foot" data-part="foot">
      <span class="am-map-scale" aria-hidden="true">weight <span data-part="scale"></span></span>
      <span data-part="notes"></span>
      <button type="button" class="am-map-copy" data-part="copy">Copy link to this view</button>
    </div>`;

  const maps = new Map(); // box -> map: its parts, data and view
  const files = new Map(); // address -> promise of the data, shared by all maps
  let palette;

  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const escape = (text) => text.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`); // Plotly reads tags
  const encode = (v) => [v.sentence, v.layer, v.head, v.token, v.direction].join(".");
  const title = ({ layer, head }) => `layer ${layer}, head ${head}`;
  const weightsOf = ({ data, view }) => data.weights[view.layer][view.head];

  // Colours. The scale is linear in the square root of a weight: most weights are small, and a linear
  // scale would show them all alike. Custom properties are read as they are written: six hex digits.
  function readPalette() {
    const style = getComputedStyle(document.body);
    const get = (name) => style.getPropertyValue(`--am-${name}`).trim();
    const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const stops = ["map-low", "map-mid", "map-high"].map(get).map(rgb);
    const texts = [get("ink"), get("paper"), "#000000", "#ffffff"];
    const shades = Array.from({ length: SHADES }, (_, k) => {
      const t = (2 * k) / (SHADES - 1);
      const [from, to] = t < 1 ? [stops[0], stops[1]] : [stops[1], stops[2]];
      return from.map((channel, c) => Math.round(channel + (to[c] - channel) * (t < 1 ? t : t - 1)));
    });
    palette = {
      css: shades.map((shade) => `rgb(${shade.join(" ")})`),
      bytes: Uint32Array.from(shades, ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0),
      text: shades.map((shade) => texts.find((text) => contrast(rgb(text), shade) >= 4.5)),
      scale: [...Array(17).keys()].map((k) => {
        const t = k / 16;
        return [t * t, `rgb(${shades[Math.round(t * (SHADES - 1))].join(",")})`];
      }),
      chosen: get("map-chosen"),
    };
  }

  // WCAG 2: relative luminance and contrast ratio.
  function luminance(rgb) {
    const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(one, other) {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }

  const shade = (weight) => Math.round(Math.sqrt(Math.min(Math.max(weight, 0), 1)) * (SHADES - 1));

  // One pixel a weight; the style sheet enlarges it.
  function paint(canvas, weights) {
    canvas.width = canvas.height = weights.length;
    const context = canvas.getContext("2d");
    const image = context.createImageData(weights.length, weights.length);
    const pixels = new Uint32Array(image.data.buffer);
    weights.flat().forEach((weight, k) => { pixels[k] = palette.bytes[shade(weight)]; });
    context.putImageData(image, 0, 0);
  }

  // Data.
  function load(url) {
    if (!files.has(url)) {
      const file = loadJson(url).then(checked);
      file.catch(() => files.delete(url)); // the next choice of this sentence tries again
      files.set(url, file);
    }
    return files.get(url);
  }

  function checked(data) {
    const n = data.tokens?.length;
    const sized = (list, length) => Array.isArray(list) && list.length === length;
    const complete = n > 0 && sized(data.weights, data.layers) && data.weights.every((heads) =>
      sized(heads, data.heads) && heads.every((rows) => sized(rows, n) && rows.every((row) => sized(row, n))));
    if (!complete) throw new Error("is not an attention map: its sizes do not fit");
    // "the" may come twice: the₁, the₂.
    const ordinal = (k) => String(k).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
    const all = (token) => data.tokens.filter((other) => other === token).length;
    const upTo = (token, j) => data.tokens.slice(0, j + 1).filter((other) => other === token).length;
    data.names = data.tokens.map((token, j) => (all(token) > 1 ? token + ordinal(upTo(token, j)) : token));
    return data;
  }

  // Views.
  function parse(map, text) {
    const [, sentence, layer, head, token, direction] = VIEW.exec(text) ?? [];
    if (!direction) return { wrong: "is not one that a map can show" };
    if (!map.sources.has(sentence)) return { wrong: `asks for a sentence that is not here, “${sentence}”` };
    return { view: { sentence, layer: +layer, head: +head, token: +token, direction } };
  }

  function outside(view, data) {
    const counts = { layer: data.layers, head: data.heads, token: data.tokens.length };
    const wrong = Object.keys(counts).find((name) => view[name] >= counts[name]);
    return wrong && `asks for ${wrong} ${view[wrong]}, but they are numbered 0 to ${counts[wrong] - 1}`;
  }

  function follow(map, text) {
    const { view, wrong } = parse(map, text);
    if (wrong) refuse(map, wrong);
    else open(map, view, "link");
  }

  function refuse(map, wrong) {
    map.parts.notice.textContent = `The link to this view ${wrong}. This is the map's first view instead.`;
    open(map, map.first, "page");
  }

  // Shows a view whose data may still have to be fetched. by: "page", "link" or "reader".
  async function open(map, view, by) {
    map.asked = view;
    map.parts.sentences.querySelector(`[value="${view.sentence}"]`).checked = true;
    const url = map.sources.get(view.sentence);
    try {
      if (!url) throw new Error("has no link to its data");
      const data = await load(url);
      if (map.asked !== view || !map.box.isConnected) return; // overtaken by a newer choice
      const wrong = by === "link" && outside(view, data);
      if (wrong) return refuse(map, wrong);
      const within = (value, count) => Math.min(value, count - 1);
      map.view = {
        ...view, layer: within(view.layer, data.layers), head: within(view.head, data.heads),
        token: within(view.token ?? data.highlights?.[0]?.token ?? 1, data.tokens.length),
      };
      map.data = data;
      showSentence(map);
      if (by === "reader") remember(map);
    } catch (error) {
      if (map.asked === view) fail(map, url ? new URL(url).pathname : view.sentence, error);
    }
  }

  // What the reader's choice leads to.
  function choose(map, change) {
    const view = { ...(map.view ?? map.first), ...change };
    map.parts.notice.textContent = "";
    if (!map.data || view.sentence !== map.data.sentence) return open(map, view, "reader");
    const moved = view.layer !== map.view.layer || view.head !== map.view.head;
    map.view = view;
    if (moved) showHead(map);
    else showToken(map);
    remember(map);
  }

  function remember(map) {
    const url = new URL(location.href);
    url.searchParams.set(map.param, encode(map.view));
    try {
      history.replaceState(history.state, "", url); // the state is Material's: where the page was scrolled to
    } catch (error) {
      console.warn(`The address does not follow: ${error.message}`); // Safari allows 100 in half a minute
    }
  }

  function linkTo(map) {
    const url = new URL(location.href);
    url.search = new URLSearchParams({ [map.param]: encode(map.view) });
    url.hash = map.box.closest("figure[id]")?.id ?? "";
    return url.href;
  }

  // Drawing: a new sentence draws everything, a new head the weights, a new token moves the marks only.
  function showSentence(map) {
    const { data, parts } = map;
    parts.stage.hidden = parts.foot.hidden = false;
    map.box.querySelector(".am-missing")?.remove();
    fillSelect(parts.layer, data.layers);
    fillSelect(parts.head, data.heads);
    parts.tokens.replaceChildren(...data.tokens.map(tokenButton));
    parts.count.textContent = `All ${data.layers * data.heads} heads: a row is a layer, a column a head, counted from 0`;
    fillHeads(map);
    fillNotes(map);
    const longest = Math.max(...data.tokens.map((token) => token.length));
    map.margin = Math.min(Math.max(longest, 5), 11) * 7 + 12;
    parts.heat.style.setProperty("--am-map-margin", `${map.margin}px`);
    showHead(map, true);
  }

  function showHead(map, everything = false) {
    const { data, parts, view } = map;
    parts.layer.value = view.layer;
    parts.head.value = view.head;
    parts.heat.setAttribute("aria-label", `Heatmap of ${title(view)}: a row for each token, brighter where it attends more`);
    paint(parts.preview, weightsOf(map));
    [...parts.heads.querySelectorAll("button")].forEach((button, k) => {
      const current = k === view.layer * data.heads + view.head;
      button.ariaCurrent = current ? "true" : null;
      button.tabIndex = current ? 0 : -1;
    });
    if (!map.drawn) draw(map);
    else if (everything) redraw(map);
    else Plotly.restyle(parts.plot, { z: [weightsOf(map)] }, [0]);
    showToken(map);
  }

  function showToken(map) {
    const { parts, view } = map;
    const line = lineOf(map);
    [...parts.tokens.children].forEach((button, j) => {
      const k = shade(line[j]);
      button.style.background = k ? palette.css[k] : "";
      button.style.color = palette.text[k];
      button.lastChild.textContent = line[j].toFixed(2);
      button.classList.toggle("am-map-slight", line[j] < VISIBLE);
      button.setAttribute("aria-pressed", j === view.token);
      button.tabIndex = j === view.token ? 0 : -1;
    });
    parts.directions.querySelector(`[value="${view.direction}"]`).checked = true;
    parts.summary.textContent = summary(map, line);
    if (map.drawn) Plotly.relayout(parts.plot, marks(map));
  }

  function lineOf(map) {
    const [weights, { view }] = [weightsOf(map), map];
    return view.direction === "row" ? weights[view.token] : weights.map((row) => row[view.token]);
  }

  function summary({ data, view }, line) {
    const order = [...line.keys()].sort((a, b) => line[b] - line[a]);
    const top = order.slice(0, 3).map((j) => `${data.names[j]} ${line[j].toFixed(2)}`).join(", ");
    const rest = order.slice(3).reduce((sum, j) => sum + line[j], 0);
    const name = `“${data.names[view.token]}”`;
    const note = data.highlights?.find((h) => ["layer", "head", "token"].every((key) => h[key] === view[key]))?.note;
    const said = view.direction === "row"
      ? `${name} attends to ${top}` + (order.length > 3 ? `; the other ${order.length - 3} share ${rest.toFixed(2)}.` : ".")
      : `${name} is attended to by ${top}; in all it receives ${line.reduce((a, b) => a + b).toFixed(2)}.`;
    return `In ${title(view)}, ${said}${note ? ` ${note}` : ""}`;
  }

  function tokenButton(token) {
    const special = /^\[.+\]$/.test(token);
    const joined = token.startsWith("##"); // the rest of a word
    const button = make("button", {
      type: "button", className: special ? "am-map-special" : joined ? "am-map-joined" : "",
    });
    button.append(make("span", { textContent: joined ? token.slice(2) : token }), " ", make("small"));
    return button;
  }

  function fillSelect(select, count) {
    if (select.length !== count) select.replaceChildren(...[...Array(count).keys()].map((k) => new Option(k, k)));
  }

  function fillHeads({ data, parts }) {
    const label = (text) => make("span", { textContent: text, ariaHidden: "true" });
    const cells = [label(""), ...[...Array(data.heads).keys()].map(label)];
    const noted = new Set(data.highlights?.map(title));
    data.weights.forEach((heads, layer) => {
      cells.push(label(layer));
      heads.forEach((weights, head) => {
        const name = title({ layer, head });
        const button = make("button", { type: "button", title: name, ariaLabel: name });
        button.classList.toggle("am-map-noted", noted.has(name));
        button.append(make("canvas"));
        paint(button.firstChild, weights);
        cells.push(button);
      });
    });
    parts.heads.style.setProperty("--am-map-columns", data.heads);
    parts.heads.replaceChildren(...cells);
  }

  function fillNotes(map) {
    const notes = (map.data.highlights ?? []).map(({ layer, head, token, note }) => {
      const button = make("button", { type: "button", textContent: title({ layer, head }), title: note });
      button.onclick = () => choose(map, { layer, head, token, direction: "row" });
      return button;
    });
    map.parts.notes.replaceChildren(...(notes.length ? ["Worth a look: ", ...notes] : []));
  }

  function fail(map, file, error) {
    const { box, parts } = map;
    map.data = map.view = undefined;
    parts.stage.hidden = parts.foot.hidden = true;
    box.querySelector(".am-missing")?.remove();
    const message = make("p", {
      className: "am-missing", role: "alert",
      textContent: `This map cannot be drawn: ${file} ${error.message}. Another sentence may still work.`,
    });
    box.append(message);
    console.warn(message.textContent);
  }

  // The heatmap.
  function traces(map) {
    const { names } = map.data;
    return [{
      type: "heatmap", z: weightsOf(map), zmin: 0, zmax: 1, colorscale: palette.scale, showscale: false,
      xgap: 1, ygap: 1, text: names.map((from) => names.map((to) => escape(`${from} attends to ${to}`))),
      hovertemplate: "%{text}: %{z:.3f}<extra></extra>",
    }];
  }

  function layout(map) {
    const { heat } = map.parts;
    const { tokens } = map.data;
    const n = tokens.length;
    const size = Math.min(12, (0.8 * (heat.clientWidth - map.margin)) / n);
    const axis = {
      tickvals: [...tokens.keys()], ticks: "", showgrid: false, zeroline: false, fixedrange: true,
      ticktext: tokens.map((token) => escape(token.length > 11 ? `${token.slice(0, 10)}…` : token)),
      tickfont: { size }, ticklabelstandoff: 3,
    };
    const mark = { type: "rect", x0: -0.5, x1: n - 0.5, y0: -0.5, y1: n - 0.5 };
    return {
      template: theme(), autosize: false, width: heat.clientWidth, height: heat.clientHeight,
      margin: { l: map.margin, t: map.margin, r: 2, b: 2 }, dragmode: false, transition: { duration: 0 },
      xaxis: { ...axis, side: "top", tickangle: -90, range: [-0.5, n - 0.5] },
      yaxis: { ...axis, range: [n - 0.5, -0.5] },
      shapes: [mark, { ...mark }],
    };
  }

  // The chosen token's row and column, as edits of single properties: replacing the list of shapes would
  // make Plotly compute the whole figure anew.
  function marks({ view }) {
    const line = (index, direction) => ({
      [`shapes[${index}].line.color`]: palette.chosen,
      [`shapes[${index}].line.width`]: view.direction === direction ? 2 : 1,
      [`shapes[${index}].line.dash`]: view.direction === direction ? "solid" : "1px,3px",
    });
    return {
      "shapes[0].y0": view.token - 0.5, "shapes[0].y1": view.token + 0.5, ...line(0, "row"),
      "shapes[1].x0": view.token - 0.5, "shapes[1].x1": view.token + 0.5, ...line(1, "column"),
    };
  }

  function redraw(map) {
    const { parts } = map;
    Plotly.react(parts.plot, traces(map), layout(map), CONFIG);
    Plotly.relayout(parts.plot, marks(map));
  }

  async function draw(map) {
    const { heat, plot, preview } = map.parts;
    if (!map.wanted || !map.data || map.drawing || map.drawn) return;
    map.drawing = true;
    try {
      await loadPlotly();
      if (!map.box.isConnected || !map.data) return;
      await Plotly.newPlot(plot, traces(map), layout(map), CONFIG);
      plot.on("plotly_click", ({ points: [{ x, y }] }) => chooseCell(map, x, y));
      map.drawn = true;
      preview.hidden = true;
      if (map.data) redraw(map); // the reader may have chosen something else meanwhile
      resized.observe(heat);
    } catch (error) {
      map.parts.notice.textContent = `The large map is a still picture: ${new URL(PLOTLY).pathname} ${error.message}.`;
    } finally {
      map.drawing = false;
    }
  }

  function chooseCell(map, column, row) {
    choose(map, { token: map.view.direction === "row" ? row : column });
  }

  const resized = new ResizeObserver((entries) => requestAnimationFrame(() => {
    for (const { target } of entries) {
      const map = maps.get(target.closest(".am-map"));
      const { clientWidth: width, clientHeight: height } = target;
      if (map?.drawn && width && map.parts.plot._fullLayout.width !== width) {
        Plotly.relayout(map.parts.plot, { width, height });
      }
    }
  }));

  // Plotly is large, so it comes when the heatmap is near and the reader has scrolled or used the map:
  // a map on a page's first screen is the still picture until then.
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const map = maps.get(target.closest(".am-map"));
      if (!isIntersecting || !map) continue;
      near.unobserve(target);
      map.wanted = true;
      draw(map);
    }
  }, { rootMargin: NEAR });
  const awaken = (map) => map.wanted || near.observe(map.parts.heat);
  addEventListener("scroll", () => maps.forEach(awaken), { passive: true });

  // Building.
  function build(box, index) {
    const links = [...box.querySelectorAll(".am-map-source")];
    const sources = new Map(box.dataset.sentences.split(/\s+/).filter(Boolean).map((name) => [name, undefined]));
    const map = { box, sources, param: index ? `map${index + 1}` : "map" };
    links.forEach((link) => sources.set(link.dataset.sentence, link.href));
    const { layer, head, token } = box.dataset;
    map.first = { sentence: [...sources.keys()][0], layer: +layer, head: +head, token: +token, direction: "row" };
    box.innerHTML = FRAME;
    map.parts = Object.fromEntries([...box.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
    const titles = Object.fromEntries(links.map((link) => [link.dataset.sentence, link.textContent]));
    fillTabs(map, "sentences", [...sources.keys()].map((name) => [name, name, titles[name]]), "sentence");
    fillTabs(map, "directions", Object.entries(DIRECTIONS), "direction");
    listen(map);
    maps.set(box, map);
    const shared = new URLSearchParams(location.search).get(map.param);
    if (shared === null) open(map, map.first, "page");
    else follow(map, shared);
    box.classList.add("am-map-ready");
  }

  function fillTabs(map, part, choices, key) {
    for (const [value, text, tip = ""] of choices) {
      const input = make("input", { type: "radio", name: `am-${map.param}-${part}`, value });
      input.onchange = () => choose(map, { [key]: value, ...(key === "sentence" && { token: undefined }) });
      const label = make("label", { title: tip });
      label.append(input, make("span", { textContent: text }));
      map.parts[part].append(label);
    }
  }

  function listen(map) {
    const { box, parts } = map;
    for (const event of ["pointerdown", "keydown"]) box.addEventListener(event, () => awaken(map));
    parts.layer.onchange = () => choose(map, { layer: +parts.layer.value });
    parts.head.onchange = () => choose(map, { head: +parts.head.value });
    grid(parts.tokens, () => Infinity, (token) => choose(map, { token }), true);
    grid(parts.heads, () => map.data.heads, (k) => {
      choose(map, { layer: Math.floor(k / map.data.heads), head: k % map.data.heads });
    });
    parts.preview.onclick = ({ offsetX, offsetY, target }) => {
      const index = (offset, length) => Math.floor((offset / length) * map.data.tokens.length);
      chooseCell(map, index(offsetX, target.clientWidth), index(offsetY, target.clientHeight));
    };
    parts.copy.onclick = async () => {
      const label = "Copy link to this view";
      remember(map);
      await navigator.clipboard.writeText(linkTo(map)).then(
        () => { parts.copy.textContent = "Copied"; },
        () => { parts.copy.textContent = "The link is in the address bar"; },
      );
      setTimeout(() => { parts.copy.textContent = label; }, 2000);
    };
  }

  // Buttons of which one is in the tab order and the arrow keys reach the others.
  function grid(parent, columns, choose, arrowsChoose = false) {
    const buttons = () => [...parent.querySelectorAll("button")];
    parent.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (button) choose(buttons().indexOf(button));
    });
    parent.addEventListener("keydown", (event) => {
      const all = buttons();
      const at = all.indexOf(event.target);
      const wide = Math.min(columns(), all.length);
      const start = at - (at % wide);
      const to = {
        ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - wide, ArrowDown: at + wide,
        Home: start, End: start + wide - 1,
      }[event.key];
      if (at < 0 || !all[to] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      all[at].tabIndex = -1;
      all[to].tabIndex = 0;
      all[to].focus();
      if (arrowsChoose) choose(to);
    });
  }

  // A link in the text to a view of this page's map.
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href*='?map'], a[href*='&map']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || url.pathname !== location.pathname) return;
    for (const map of maps.values()) {
      const text = url.searchParams.get(map.param);
      if (text === null) continue;
      event.preventDefault();
      event.stopPropagation(); // instant navigation would load the page again
      history.replaceState(history.state, "", url);
      awaken(map);
      follow(map, text);
      map.box.scrollIntoView({ block: "nearest" });
    }
  }, true);

  function recolour() {
    readPalette();
    for (const map of maps.values()) if (map.data) showSentence(map);
  }
  new MutationObserver(recolour)
    .observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });

  // Material emits a document on the first load and on each instant navigation.
  document$.subscribe(() => {
    for (const [box, { drawn, parts }] of maps) {
      if (box.isConnected) continue;
      resized.unobserve(parts.heat);
      near.unobserve(parts.heat);
      if (drawn) Plotly.purge(parts.plot);
      maps.delete(box);
    }
    readPalette();
    document.querySelectorAll(".am-map").forEach((box, index) => maps.has(box) || build(box, index));
  });
})();
