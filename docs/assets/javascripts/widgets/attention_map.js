/* The attention map: its box holds one link per sentence to a file of weights, and becomes a
   sentence that answers to a click, a heatmap (Plotly) and small pictures of all heads.

   A view can be shared: ?map=<sentence>.<layer>.<head>.<token>.<row|column>, where the numbers count from
   zero as in the data; the second map of a page reads ?map2=, and so on. It is a query because the hash
   belongs to the headings. */
import { namesOf, summaryOf } from "../figures/light_map.js";
import { PLOTLY, loadPlotly, onScheme, theme } from "../figures/plotly.js";
import { asked, remember } from "../site/address.js";
import { anotherTask, make, partsOf, shape } from "../site/dom.js";
import { loadJson } from "../site/json.js";
import { onPage } from "../site/pages.js";
import { copiesLink, onLinkToView } from "../site/view_links.js";

const CONFIG = { displayModeBar: false, responsive: false, doubleClick: false };
const DIRECTIONS = { row: "this word looks at", column: "is looked at by" };
const FIRST_NOTED = { layer: undefined, head: undefined, token: undefined };
const NEAR = "200px 0px"; // the heatmap gets its library
const PAUSE_MS = 150;
const MOST_ARCS = 4; // from the chosen word to those that weigh most
const DONE = 0.9; // of what the best head does: the task is done
const SHADES = 256;
const VIEW = /^([\w-]+)\.(\d{1,4})\.(\d{1,4})\.(\d{1,4})\.(row|column)$/;
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
  <div class="am-map-stage" data-part="stage" hidden>
    <div class="am-map-text">
      <fieldset class="am-map-tabs" data-part="directions"><legend>Show</legend></fieldset>
      <svg class="am-map-arcs" data-part="arcs" aria-hidden="true"></svg>
      <div class="am-map-tokens" data-part="tokens" role="group" aria-label="Tokens of the sentence"></div>
      <p class="am-map-summary" data-part="summary" aria-live="polite"></p>
    </div>
    <div class="am-map-heat" data-part="heat" role="img">
      <div class="am-map-columns" data-part="columns"></div>
      <div class="am-map-rows" data-part="rows"></div>
      <div class="am-map-cells" data-part="cells">
        <canvas data-part="still"></canvas><div data-part="plot"></div><b data-part="row"></b><b data-part="column"></b>
      </div>
    </div>
    <div class="am-map-panel">
      <p class="am-map-task" role="status"><b>A task:</b> <span data-part="task"></span></p>
      <p class="am-map-count" data-part="count"></p>
      <div class="am-map-heads" data-part="heads" role="group" aria-label="All heads"></div>
    </div>
  </div>
  <div class="am-map-foot" data-part="foot" hidden>
    <span class="am-map-scale">weight, by its square root <span><i>0</i><i>0.25</i><i>1</i></span></span>
    <button type="button" data-part="copy">Copy link to this view</button>
    <span class="am-map-notes" data-part="notes"></span>
  </div>`;

const maps = new Map(); // box -> map: {parts, sources, param, first, data, view, …}
const files = new Map(); // address -> promise of the data, shared by all maps
let palette;

const count = (n) => [...Array(n).keys()];
const escape = (text) => text.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`); // Plotly reads tags
// A new text node is laid out with all around it, a changed one alone.
const say = (node, text) => (node.firstChild ? (node.firstChild.data = text) : node.append(text));
const nameOf = ({ layer, head }) => `layer ${layer}, head ${head}`;
const weightsOf = ({ data, view }) => data.weights[view.layer][view.head];

// Colors. The scale is linear in the square root of a weight: most weights are small, and a linear one
// would show them all alike. Custom properties are read as they are written, as six hex digits.
function readPalette() {
  const style = getComputedStyle(document.body);
  const get = (name) => style.getPropertyValue(`--am-map-${name}`).trim();
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const [low, mid, high] = ["low", "mid", "high"].map(get).map(rgb);
  const mix = (from, to, t) => from.map((channel, c) => Math.round(channel + (to[c] - channel) * t));
  const at = (t) => (t < 0.5 ? mix(low, mid, 2 * t) : mix(mid, high, 2 * t - 1));
  const shades = count(SHADES).map((k) => at(k / (SHADES - 1)));
  palette = {
    bytes: Uint32Array.from(shades, ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0),
    css: shades.map((shade) => `rgb(${shade})`),
    text: shades.map((shade) => (luminance(shade) > 0.179 ? "#000" : "#fff")), // at least 4.5:1
    plotly: count(17).map((k) => [(k / 16) ** 2, `rgb(${at(k / 16)})`]),
  };
}

function luminance(rgb) { // as WCAG 2 defines it
  const [r, g, b] = rgb.map((c) => (c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const shade = (weight) => Math.round(Math.sqrt(Math.min(Math.max(weight, 0), 1)) * (SHADES - 1));

// One pixel a weight; the style sheet enlarges it.
function paint(canvas, weights) {
  canvas.width = canvas.height = weights.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  new Uint32Array(image.data.buffer).set(weights.flat().map((weight) => palette.bytes[shade(weight)]));
  context.putImageData(image, 0, 0);
}

// Data.
function load(url) {
  if (!files.has(url)) {
    files.set(url, loadJson(url).then(checked));
    files.get(url).catch(() => files.delete(url)); // the next choice of this sentence tries again
  }
  return files.get(url);
}

function checked(data) {
  const { tokens, layers, heads, weights } = data ?? {};
  const sized = (list, n, inside = () => true) => Array.isArray(list) && list.length === n && list.every(inside);
  const square = (rows) => sized(rows, tokens.length, (row) => sized(row, tokens.length));
  if (!tokens?.length || !sized(weights, layers, (layer) => sized(layer, heads, square))) {
    throw new Error("is not an attention map: its sizes do not fit");
  }
  data.names = namesOf(tokens);
  return data;
}

// Views.
function follow(map, link) {
  const [, sentence, layer, head, token, direction] = VIEW.exec(link) ?? [];
  if (!direction) refuse(map, "it is not of a form that a map can read");
  else if (!map.sources.has(sentence)) refuse(map, `there is no sentence “${sentence}”`);
  else open(map, { sentence, layer: +layer, head: +head, token: +token, direction }, "link");
}

function refuse(map, why) {
  map.parts.notice.textContent = `The link to this view does not work: ${why}. This is the map's first view instead.`;
  open(map, map.first, "page");
}

function outside(view, data) {
  const counts = { layer: data.layers, head: data.heads, token: data.tokens.length };
  const key = Object.keys(counts).find((name) => view[name] >= counts[name]);
  return key && `there is no ${key} ${view[key]}, only 0 to ${counts[key] - 1}`;
}

// Shows a view whose data may still have to come. by: who asks for it, "page", "link" or "reader".
async function open(map, view, by) {
  map.asked = view;
  map.parts.sentences.querySelector(`[value="${view.sentence}"]`).checked = true;
  const url = map.sources.get(view.sentence);
  const file = new URL(url).pathname;
  const data = await load(url).catch((error) => ({ error }));
  if (map.asked !== view || !map.box.isConnected) return; // overtaken
  if (data.error) return fail(map, `${file} ${data.error.message}`);
  const noted = data.highlights?.[0] ?? { ...map.first, token: 1 };
  const chosen = { ...view };
  for (const key of Object.keys(FIRST_NOTED)) chosen[key] ??= noted[key];
  const wrong = outside(chosen, data);
  if (wrong) return by === "link" ? refuse(map, wrong) : fail(map, `in ${file} ${wrong}`);
  map.moved ||= by !== "page";
  Object.assign(map, { data, view: chosen });
  showSentence(map);
  if (map.held) map.parts.tokens.children[chosen.token].focus({ preventScroll: true });
  map.held = false;
  if (by === "reader") keep(map);
}

function choose(map, change) {
  const before = map.view ?? map.first;
  const view = { ...before, ...change };
  map.parts.notice.textContent = "";
  map.moved = true;
  if (!map.data || view.sentence !== before.sentence) return open(map, view, "reader");
  map.view = view;
  if (view.layer !== before.layer || view.head !== before.head) showHead(map);
  else showToken(map);
  keep(map);
}

function keep({ param, view }) {
  remember({ [param]: [view.sentence, view.layer, view.head, view.token, view.direction].join(".") });
}

function fail(map, why) {
  const { foot, notice, stage } = map.parts;
  map.data = undefined;
  stage.hidden = foot.hidden = true;
  notice.textContent = `This map cannot be drawn: ${why}.`;
  console.warn(notice.textContent);
}

// Drawing. A new sentence fills everything, a new head the weights, a new token moves the marks only.
function showSentence(map) {
  const { data, parts } = map;
  parts.stage.hidden = parts.foot.hidden = false;
  parts.layer.replaceChildren(...count(data.layers).map((k) => new Option(k, k)));
  parts.head.replaceChildren(...count(data.heads).map((k) => new Option(k, k)));
  map.places = undefined;
  parts.tokens.replaceChildren(...data.tokens.map(tokenButton));
  for (const part of [parts.rows, parts.columns]) {
    part.replaceChildren(...data.names.map((textContent) => make("span", { textContent })));
  }
  sayAll(map);
  parts.heat.style.setProperty("--am-map-tokens", data.tokens.length);
  if (parts.heads.querySelectorAll("canvas").length !== data.layers * data.heads) fillHeads(data, parts.heads);
  map.best = Math.max(...data.weights.flat().map(toTheWordBefore));
  map.noted = (data.highlights ?? []).filter((place) => !isFound(map, place)); // the task's answer is not told
  const noted = new Set(map.noted.map(nameOf));
  for (const button of parts.heads.querySelectorAll("button")) {
    button.classList.toggle("am-map-noted", noted.has(button.title));
  }
  fillNotes(map);
  showAll(map);
}

const sayAll = ({ data, parts }) => {
  parts.count.textContent = `All ${data.layers * data.heads} heads, a row per layer; dots: worth a look`;
};

// The task: a pattern that the small pictures show, and the numbers of one head confirm.
const toTheWordBefore = (weights) => weights.slice(1).reduce((sum, row, i) => sum + row[i], 0) / (weights.length - 1);
const isFound = ({ data, best }, { layer, head }) => toTheWordBefore(data.weights[layer][head]) >= DONE * best;

function showTask(map) {
  const percent = `${Math.round(100 * toTheWordBefore(weightsOf(map)))}\u00a0%`;
  const found = map.moved && isFound(map, map.view);
  map.parts.task.classList.toggle("am-map-found", found);
  say(map.parts.task, found
    ? `solved, ${nameOf(map.view)} gives the word before ${percent} of its attention.`
    : `find a head that looks at the word before. This one gives that word ${percent} on average.`);
}

function showAll(map) {
  showHead(map);
  paintHeads(map);
}

// The small pictures come after the sentence, a layer at a time: the page stays quick to react.
async function paintHeads(map) {
  const { data, parts } = map;
  const canvases = parts.heads.querySelectorAll("canvas");
  for (const [layer, heads] of data.weights.entries()) {
    await anotherTask();
    if (map.data !== data) return; // another sentence by now
    heads.forEach((weights, k) => paint(canvases[layer * data.heads + k], weights));
  }
}

function showHead(map) {
  const { data, parts, view } = map;
  parts.layer.value = view.layer;
  parts.head.value = view.head;
  parts.heat.ariaLabel = `Heatmap of ${nameOf(view)}: a row for each token, a column for each token it attends to`;
  const chosen = parts.heads.querySelectorAll("button")[view.layer * data.heads + view.head];
  for (const button of parts.heads.querySelectorAll("[aria-current], [tabindex='0']")) {
    button.ariaCurrent = null;
    button.tabIndex = -1;
  }
  chosen.ariaCurrent = "true";
  chosen.tabIndex = 0;
  showHeat(map);
  showTask(map);
  showToken(map);
}

function showToken(map) {
  const { parts, view } = map;
  const weights = weightsOf(map);
  const line = view.direction === "row" ? weights[view.token] : weights.map((row) => row[view.token]);
  [...parts.tokens.children].forEach((button, j) => {
    const k = shade(line[j]);
    Object.assign(button.style, { background: palette.css[k], color: palette.text[k] });
    say(button.lastChild, line[j].toFixed(2));
    button.classList.toggle("am-map-slight", line[j] < VISIBLE);
    if (button.ariaPressed === String(j === view.token)) return; // to write it again costs as much as a change
    button.ariaPressed = j === view.token;
    button.tabIndex = j === view.token ? 0 : -1;
  });
  for (const name of ["row", "column"]) {
    [...parts[`${name}s`].children].forEach((label, j) => label.classList.toggle("am-map-chosen", j === view.token));
    parts[name].style.setProperty("--am-map-token", view.token);
    parts[name].classList.toggle("am-map-chosen", name === view.direction);
  }
  parts.directions.querySelector(`[value="${view.direction}"]`).checked = true;
  say(parts.summary, summaryOf(map.data.names, view, line));
  clearTimeout(map.title); // what is above the map follows when the reader pauses: it may move the page
  if (map.moved) map.title = setTimeout(() => sayFinding(map, line), PAUSE_MS);
  showArcs(map, line);
}

// The figure's title says what is shown, from the reader's first choice on.
function sayFinding({ finding, data, view }, line) {
  if (!finding) return;
  const best = line.indexOf(Math.max(...line));
  const word = (at) => make("em", { textContent: /\w/.test(data.names[at]) ? data.names[at] : `“${data.names[at]}”` });
  const where = `In ${nameOf(view).replace(",", "")}, `;
  finding.replaceChildren(...view.direction === "row"
    ? [where, word(view.token), " looks most at ", word(best), "."]
    : [where, word(view.token), " gets most from ", word(best), "."]);
}

// Where the words stand: asked for once a sentence and width, because the question lays out the page.
function placesOf(map) {
  map.places ??= [...map.parts.tokens.children].map((button) => ({
    x: button.offsetLeft + button.offsetWidth / 2,
    half: button.offsetWidth / 2,
    top: button.offsetTop,
    foot: button.offsetTop + button.offsetHeight,
  }));
  return map.places;
}

// Lines from the chosen word to those that weigh most, the broader the more. The farther away a word, the higher its
// line, and the nearer to the middle it begins.
function showArcs(map, line) {
  const { parts: { arcs }, view } = map;
  const most = [...line.keys()].filter((j) => j !== view.token && line[j] >= VISIBLE)
    .sort((a, b) => line[b] - line[a]).slice(0, MOST_ARCS);
  requestAnimationFrame(() => {
    if (map.view !== view) return; // something else by now
    const places = placesOf(map);
    const from = places[view.token];
    const away = (j) => Math.abs(places[j].x - from.x);
    arcs.replaceChildren(...most.sort((a, b) => away(a) - away(b)).map((j, rank) => {
      const to = places[j].x;
      const part = (rank + 1) / most.length;
      const x = from.x + Math.sign(to - from.x) * (1 - part) * from.half;
      const lower = places[j].top - from.top; // words of another line are met at their near side
      const y = lower > 0 ? from.foot : from.top;
      const end = lower < 0 ? places[j].foot : places[j].top;
      const over = lower ? y + (end - y) * (0.2 + 0.6 * part) : y - 6 - 22 * part;
      const d = `M${x} ${y}C${x} ${over} ${to} ${over} ${to} ${end}`;
      return shape("path", { d, "stroke-width": 1 + 5 * line[j] });
    }));
  });
}

function tokenButton(token) {
  const joined = token.startsWith("##"); // the rest of a word
  const className = joined ? "am-map-joined" : /^\[[A-Z]+\]$/.test(token) ? "am-map-special" : "";
  const button = make("button", { type: "button", className });
  button.append(make("span", { textContent: joined ? token.slice(2) : token }), " ", make("small"));
  return button;
}

function fillHeads({ layers, heads }, grid) {
  const label = (text) => make("span", { textContent: text, ariaHidden: "true" });
  const button = (layer, head) => {
    const name = nameOf({ layer, head });
    const made = make("button", { type: "button", title: name, ariaLabel: name, tabIndex: -1 });
    made.append(make("canvas"));
    return made;
  };
  const rows = count(layers).map((layer) => [label(layer), ...count(heads).map((head) => button(layer, head))]);
  grid.style.setProperty("--am-map-columns", heads);
  grid.replaceChildren(label(""), ...count(heads).map(label), ...rows.flat());
}

function fillNotes(map) {
  const notes = map.noted.map(({ note, ...place }) => {
    const onclick = () => choose(map, { ...place, direction: "row" });
    return make("button", { type: "button", textContent: note, title: nameOf(place), onclick });
  });
  map.parts.notes.replaceChildren(...(notes.length ? [make("span", { textContent: "Worth a look:" }), ...notes] : []));
}

// The heatmap.
function traces(map) {
  const { names } = map.data;
  return [{
    type: "heatmap", z: weightsOf(map), zmin: 0, zmax: 1, colorscale: palette.plotly, showscale: false,
    text: names.map((from) => names.map((to) => escape(`${from} attends to ${to}`))),
    hovertemplate: "%{text}: %{z:.3f}<extra></extra>",
  }];
}

// Plotly draws the cells and answers to the pointer. Labels and the marks of the chosen row and column are
// the page's own: with fifty labels Plotly takes 60 ms to move a shape, and 7 ms for everything without.
function layout({ data: { tokens }, parts: { cells } }) {
  const axis = { visible: false, fixedrange: true };
  const [low, high] = [-0.5, tokens.length - 0.5];
  return {
    template: theme(), autosize: false, width: cells.clientWidth, height: cells.clientHeight,
    margin: { l: 0, t: 0, r: 0, b: 0 }, dragmode: false,
    xaxis: { ...axis, range: [low, high] }, yaxis: { ...axis, range: [high, low] },
  };
}

// Plotly needs longer than a frame, so it follows when the reader pauses: the still picture answers at once
// and takes clicks; only the numbers under the pointer wait.
function showHeat(map) {
  paint(map.parts.still, weightsOf(map));
  map.parts.still.hidden = false;
  clearTimeout(map.late);
  if (!map.drawn) draw(map);
  else map.late = setTimeout(() => follows(map), PAUSE_MS);
}

async function follows(map) {
  map.late = undefined;
  if (!map.data || !map.box.isConnected) return;
  await Plotly.react(map.parts.plot, traces(map), layout(map), CONFIG);
  map.parts.still.hidden = !map.late && !map.previewed;
}

// Another head's weights in the large picture, while the reader points at its small one.
function preview(map, k) {
  if (!map.data || k < 0) return;
  const place = { layer: Math.floor(k / map.data.heads), head: k % map.data.heads };
  map.previewed = true;
  paint(map.parts.still, map.data.weights[place.layer][place.head]);
  map.parts.still.hidden = false;
  say(map.parts.count, `Seen above: ${nameOf(place)}. Click to choose it.`);
}

function endPreview(map) {
  if (!map.previewed || !map.data) return;
  map.previewed = false;
  paint(map.parts.still, weightsOf(map));
  map.parts.still.hidden = Boolean(map.drawn && !map.late);
  sayAll(map);
}

async function draw(map) {
  const { cells, notice, plot } = map.parts;
  if (!map.wanted || !map.data || map.drawing) return;
  map.drawing = true;
  try {
    await loadPlotly();
    if (!map.box.isConnected || !map.data) return;
    await Plotly.newPlot(plot, traces(map), layout(map), CONFIG);
    plot.on("plotly_click", ({ points: [{ x, y }] }) => chooseCell(map, x, y));
    map.drawn = true;
    await follows(map); // the reader may have chosen something else meanwhile
    resized.observe(cells);
  } catch (error) {
    notice.textContent = `The large map stays a still picture: ${new URL(PLOTLY).pathname} ${error.message}.`;
  } finally {
    map.drawing = false;
  }
}

function chooseCell(map, column, row) {
  choose(map, { token: map.view.direction === "row" ? row : column });
}

const rewrapped = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const map = maps.get(target.closest(".am-map"));
    if (!map?.data) continue;
    map.places = undefined;
    showToken(map);
  }
});

const resized = new ResizeObserver((entries) => requestAnimationFrame(() => {
  for (const { target: { clientWidth: width, clientHeight: height, isConnected, children: [, plot] } } of entries) {
    if (!isConnected || !width) continue; // once the reader has left the page, the plot has no layout
    const drawn = plot._fullLayout;
    const fits = drawn.width === width && drawn.height === height;
    if (!fits) Plotly.relayout(plot, { width, height });
  }
}));

// Plotly is large: it comes when the heatmap is near and the reader has scrolled or used the map. Until
// then a map on a page's first screen has a still picture.
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
const boxes = () => [...document.querySelectorAll("[data-widget=attention_map]")];

export function start(box) {
  if (maps.has(box)) return; // a link has asked for it before
  if (!maps.size) readPalette();
  const index = boxes().indexOf(box);
  const links = [...box.querySelectorAll(".am-map-source")];
  const titles = Object.fromEntries(links.map((link) => [link.dataset.sentence, link.textContent]));
  const sources = new Map(links.map((link) => [link.dataset.sentence, link.href]));
  const names = box.dataset.sentences.trim().split(/\s+/);
  const [layer, head, token] = ["layer", "head", "token"].map((key) => Number(box.dataset[key]));
  const first = { sentence: names[0], layer, head, token, direction: "row" };
  const { chosen } = box.dataset; // on the light map, before this one came
  const held = box.querySelector(".am-map-light")?.contains(document.activeElement);
  box.innerHTML = FRAME;
  const parts = partsOf(box);
  const finding = box.closest(".am-figure")?.querySelector(".am-finding");
  const map = { box, parts, sources, first, finding, param: index ? `map${index + 1}` : "map" };
  maps.set(box, map);
  names.forEach((name) => addTab(map, "sentence", name, name, titles[name]));
  Object.entries(DIRECTIONS).forEach(([value, text]) => addTab(map, "direction", value, text));
  listen(map);
  rewrapped.observe(parts.tokens);
  box.classList.add("am-map-ready");
  const link = asked(map.param);
  map.held = held;
  if (link !== null) follow(map, link);
  else if (chosen === undefined) open(map, first, "page");
  else choose(map, { token: Number(chosen) });
  if (scrollY > 0) awaken(map);
}

function addTab(map, key, value, text, title = "") {
  const onchange = () => choose(map, key === "sentence" ? { sentence: value, ...FIRST_NOTED } : { [key]: value });
  const label = make("label", { title });
  label.append(
    make("input", { type: "radio", name: `${map.param}-${key}`, value, onchange }),
    make("span", { textContent: text }),
  );
  map.parts[`${key}s`].append(label);
}

function listen(map) {
  const { box, parts: { copy, head, heads, layer, still, tokens } } = map;
  for (const event of ["pointerdown", "keydown"]) box.addEventListener(event, () => awaken(map));
  layer.addEventListener("change", () => choose(map, { layer: Number(layer.value) }));
  head.addEventListener("change", () => choose(map, { head: Number(head.value) }));
  rove(tokens, () => Infinity, (token) => choose(map, { token }), true);
  rove(heads, () => map.data.heads, (k) => {
    choose(map, { layer: Math.floor(k / map.data.heads), head: k % map.data.heads });
  });
  const pointed = ({ target }) => preview(map, [...heads.querySelectorAll("button")].indexOf(target.closest("button")));
  heads.addEventListener("pointerover", (event) => event.pointerType !== "touch" && pointed(event));
  heads.addEventListener("focusin", ({ target }) => target.matches(":focus-visible") && pointed({ target }));
  for (const event of ["pointerleave", "focusout", "click"]) heads.addEventListener(event, () => endPreview(map));
  still.addEventListener("click", ({ offsetX, offsetY }) => {
    const index = (offset, length) => Math.floor((offset / length) * map.data.tokens.length);
    chooseCell(map, index(offsetX, still.clientWidth), index(offsetY, still.clientHeight));
  });
  copiesLink(copy, box, () => keep(map));
}

// Buttons of which one is in the tab order; the arrow keys reach the others, as do Home and End.
function rove(parent, columns, pick, arrowsChoose = false) {
  const buttons = () => [...parent.querySelectorAll("button")];
  parent.addEventListener("click", ({ target }) => {
    const at = buttons().indexOf(target.closest("button"));
    if (at >= 0) pick(at);
  });
  parent.addEventListener("keydown", (event) => {
    const all = buttons();
    const at = all.indexOf(event.target);
    const wide = Math.min(columns(), all.length);
    const edge = at - (at % wide);
    const to = {
      ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - wide, ArrowDown: at + wide,
      Home: edge, End: edge + wide - 1,
    }[event.key];
    if (at < 0 || !all[to] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    all[at].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
    if (arrowsChoose) pick(to);
  });
}

onLinkToView((link) => {
  boxes().forEach(start);
  const meant = [...maps.values()].filter(({ param }) => link.has(param));
  for (const map of meant) {
    follow(map, link.get(map.param));
    map.box.scrollIntoView({ block: "nearest" });
  }
  return meant.length > 0;
});

onScheme(() => {
  if (maps.size) readPalette();
  for (const map of maps.values()) if (map.data) showAll(map);
});

onPage(() => {
  for (const [box, { drawn, parts }] of maps) {
    if (box.isConnected) continue;
    resized.unobserve(parts.cells);
    rewrapped.unobserve(parts.tokens);
    near.unobserve(parts.heat);
    if (drawn) Plotly.purge(parts.plot);
    maps.delete(box);
  }
});
