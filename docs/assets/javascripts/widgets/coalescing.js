/* Which lane touches which sector: its box holds a link to the recorded addresses and a table
   of sectors per stride. The table stays where the script or the addresses cannot be had; otherwise it
   becomes a picture that the reader steps through by stride.

   A view can be shared: ?lanes=<dtype>.<stride>; the second picture of a page reads ?lanes2=, and so on. */
import { asked, rememberLater } from "../site/address.js";
import { button, make, partsOf, shape } from "../site/dom.js";
import { fromData } from "../site/from_data.js";

const DOUBLINGS = [1, 2, 4, 8, 16, 32];
const NUMBERS_FROM = 560; // pixels of width from which a lane's square holds its number
const ROW = { lanes: 22, fan: 120, memory: 26, gap: 36, zoom: 34 }; // heights
const ZOOMED = 4; // sectors of the magnified row
const FRAME = `
  <div class="am-lanes-bar">
    <fieldset><legend>Stride</legend>
      <button type="button" data-step="-1" aria-label="Stride less one">−</button>
      <input type="range" data-part="range" aria-label="Stride, elements">
      <button type="button" data-step="1" aria-label="Stride plus one">+</button>
      <span data-part="doublings"></span>
    </fieldset>
    <fieldset data-part="dtypes"><legend>Dtype</legend></fieldset>
  </div>
  <svg data-part="picture" role="img"></svg>
  <p class="am-lanes-key" aria-hidden="true">
    <span><i class="am-lanes-used"></i>read by a lane</span>
    <span><i class="am-lanes-wasted"></i>fetched and not used</span>
    <span><i class="am-lanes-idle"></i>not fetched</span>
  </p>
  <p class="am-lanes-summary" data-part="summary" role="status"></p>`;
const STATES = { used: "am-lanes-used", wasted: "am-lanes-wasted", idle: "am-lanes-idle" };
const VIEW = /^(\w+)\.(\d{1,4})$/;

function draw(svg, ...what) {
  const node = shape(...what);
  svg.append(node);
  return node;
}

function checked(data) {
  const isBytes = (list) => Array.isArray(list) && list.length && list.every(Number.isInteger);
  const valid = data?.sectorBytes > 0 && data.requests?.length
    && data.requests.every((r) => r.dtype && r.stride > 0 && r.elementBytes > 0 && isBytes(r.bytes));
  if (!valid) throw new Error("is not a list of recorded addresses");
  return data;
}

// What a request touches: sectors in order, and how many of the bytes that come are asked for.
function account({ bytes, elementBytes }, sectorBytes) {
  const sectorOf = bytes.map((byte) => Math.floor(byte / sectorBytes));
  const touched = new Set(sectorOf);
  const fetched = touched.size * sectorBytes;
  const used = new Set(bytes).size * elementBytes;
  return { sectorOf, touched, fetched, used };
}

function words({ request, sectorBytes }) {
  const { touched, fetched, used } = account(request, sectorBytes);
  const share = Math.round((used / fetched) * 10000) / 100;
  return `${request.dtype}, stride ${request.stride}: the ${request.bytes.length} lanes touch `
    + `${touched.size} sectors. ${fetched} bytes are fetched, ${used} of them are used: ${share}\u00a0%.`;
}

function paint(view) {
  const { svg, request, sectorBytes, span } = view;
  const width = svg.clientWidth;
  if (!width) return; // folded away; drawn when it is unfolded
  const { sectorOf, touched } = account(request, sectorBytes);
  const lanes = request.bytes.length;
  const lane = width / lanes;
  const sector = width / span;
  const top = { fan: ROW.lanes, memory: ROW.lanes + ROW.fan };
  top.zoom = top.memory + ROW.memory + ROW.gap;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${top.zoom + ROW.zoom + 2}`);
  svg.setAttribute("aria-label", `Picture. ${words(view)}`);

  const lines = draw(svg, "g", { class: "am-lanes-fan" });
  sectorOf.forEach((at, j) => draw(lines, "line", {
    x1: (j + 0.5) * lane, y1: top.fan, x2: (at + 0.5) * sector, y2: top.memory,
  }));
  for (let j = 0; j < lanes; j++) {
    draw(svg, "rect", {
      class: "am-lanes-lane", x: j * lane + 1, y: 1, width: lane - 2, height: ROW.lanes - 2, rx: 2,
    });
    if (width < NUMBERS_FROM) continue;
    draw(svg, "text", { class: "am-lanes-number", x: (j + 0.5) * lane, y: ROW.lanes / 2 }, j);
  }
  for (let s = 0; s < span; s++) {
    draw(svg, "rect", {
      class: touched.has(s) ? "am-lanes-touched" : "am-lanes-idle",
      x: s * sector + 0.4, y: top.memory, width: Math.max(sector - 0.8, 1), height: ROW.memory,
    });
  }
  // The first sectors again, magnified: one slot an element, those that a lane reads filled.
  const slots = (ZOOMED * sectorBytes) / request.elementBytes;
  const slot = width / slots;
  draw(svg, "path", {
    class: "am-lanes-cone",
    d: `M0 ${top.memory + ROW.memory} L${ZOOMED * sector} ${top.memory + ROW.memory} `
      + `L${width} ${top.zoom} L0 ${top.zoom} Z`,
  });
  const readBy = new Map(request.bytes.map((byte, j) => [byte / request.elementBytes, j]));
  for (let k = 0; k < slots; k++) {
    const fetched = touched.has(Math.floor((k * request.elementBytes) / sectorBytes));
    const state = readBy.has(k) ? "used" : fetched ? "wasted" : "idle";
    draw(svg, "rect", {
      class: STATES[state], x: k * slot + 0.5, y: top.zoom, width: slot - 1, height: ROW.zoom,
    });
    if (state !== "used" || width < NUMBERS_FROM || slot < 14) continue;
    draw(svg, "text", {
      class: "am-lanes-number", x: (k + 0.5) * slot, y: top.zoom + ROW.zoom / 2,
    }, readBy.get(k));
  }
  draw(svg, "text", { class: "am-lanes-label", x: width, y: top.memory + ROW.memory + 10 },
    `${span} sectors of ${sectorBytes} bytes`);
  draw(svg, "text", { class: "am-lanes-label", x: width, y: top.zoom - 8 },
    `the first ${ZOOMED}, enlarged`);
  for (let s = 0; s < ZOOMED; s++) {
    draw(svg, "rect", {
      class: "am-lanes-border", x: (s * width) / ZOOMED + 0.5, y: top.zoom,
      width: width / ZOOMED - 1, height: ROW.zoom,
    });
  }
}

function show(view, change) {
  Object.assign(view, change);
  const { parts, data } = view;
  view.request = data.requests.find((r) => r.dtype === view.dtype && r.stride === view.stride);
  parts.range.value = view.stride;
  parts.range.setAttribute("aria-valuetext", `stride ${view.stride}`);
  for (const one of parts.doublings.children) {
    one.setAttribute("aria-pressed", String(Number(one.textContent) === view.stride));
  }
  for (const one of parts.steps) {
    const next = view.stride + Number(one.dataset.step);
    one.disabled = !view.strides.includes(next);
  }
  parts.summary.textContent = words(view);
  paint(view);
}

// What the reader has chosen: shown, and kept in the address.
function choose(view, change) {
  show(view, change);
  view.keep({ [view.param]: `${view.dtype}.${view.stride}` });
}

function build(box, data) {
  const frame = make("div", { className: "am-lanes-frame", innerHTML: FRAME });
  const parts = partsOf(frame);
  parts.steps = frame.querySelectorAll("[data-step]");
  const strides = [...new Set(data.requests.map((r) => r.stride))].sort((a, b) => a - b);
  const dtypes = [...new Set(data.requests.map((r) => r.dtype))];
  const last = Math.max(...data.requests.map((r) => Math.max(...r.bytes)));
  const view = {
    parts, data, strides, svg: parts.picture, sectorBytes: data.sectorBytes,
    span: Math.floor(last / data.sectorBytes) + 1, // one scale of memory for every stride
    stride: strides[0], dtype: dtypes[0], keep: rememberLater(box),
  };
  const index = [...document.querySelectorAll("[data-widget=coalescing]")].indexOf(box);
  view.param = index > 0 ? `lanes${index + 1}` : "lanes";
  const [, dtype, stride] = VIEW.exec(asked(view.param) ?? "") ?? [];
  if (data.requests.some((r) => r.dtype === dtype && r.stride === Number(stride))) {
    Object.assign(view, { dtype, stride: Number(stride) });
  }
  Object.assign(parts.range, { min: strides[0], max: strides.at(-1), step: 1 });
  parts.range.addEventListener("input", () => choose(view, { stride: Number(parts.range.value) }));
  for (const one of parts.steps) {
    one.addEventListener("click", () => choose(view, { stride: view.stride + Number(one.dataset.step) }));
  }
  for (const one of DOUBLINGS.filter((s) => strides.includes(s))) {
    parts.doublings.append(button(one, () => choose(view, { stride: one }), { ariaLabel: `Stride ${one}` }));
  }
  for (const value of dtypes) {
    const input = make("input", { type: "radio", name: view.param, value, checked: value === view.dtype });
    input.addEventListener("change", () => choose(view, { dtype: value }));
    parts.dtypes.append(make("label", {}, input, value));
  }
  box.replaceChildren(frame);
  show(view, {});
  new ResizeObserver(() => requestAnimationFrame(() => paint(view))).observe(frame);
}

export const start = fromData({
  checked, build,
  fails: "This picture cannot be drawn",
  instead: "The same numbers are in the table below.",
});
