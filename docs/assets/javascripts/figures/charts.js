/* Draws the charts: every .am-plot box holds a link to a Plotly spec ({data, layout}) and is drawn when it comes
   near the screen. What all charts share is the template in plotly.js; `make figures` writes the rest. */
import { make } from "../site/dom.js";
import { loadJson } from "../site/json.js";
import { nearby, onPage } from "../site/pages.js";
import { PLOTLY, loadPlotly, onScheme, theme } from "./plotly.js";

const narrow = matchMedia("(max-width: 599px)");
const touch = matchMedia("(pointer: coarse)");
const drawn = new Map(); // box -> {plot, spec, name, narrow}: what is on the page now

async function loadSpec(url) {
  const spec = await loadJson(url);
  if (!Array.isArray(spec.data) || !spec.layout) throw new Error("is not a figure: no data or layout");
  return spec;
}

function layoutFor(box, spec) {
  const layout = { ...spec.layout, ...(narrow.matches && spec.layout.meta?.narrow) };
  return {
    ...layout, margin: { ...layout.margin, r: Math.max(20, layout.margin?.r) }, // a number below the right end has room
    template: theme(), autosize: false, transition: { duration: 0 }, width: box.clientWidth, height: box.clientHeight,
  };
}

// Plotly writes into what it is given, so it gets a copy and the spec stays as it was fetched.
function render(box) {
  const { plot, spec, name } = drawn.get(box);
  drawn.get(box).narrow = narrow.matches;
  const config = {
    displaylogo: false, scrollZoom: false, responsive: false,
    displayModeBar: touch.matches ? false : "hover",
    modeBarButtons: [["toImage", "resetScale2d"]],
    toImageButtonOptions: { filename: name, scale: 2 },
  };
  return Plotly.newPlot(plot, structuredClone(spec.data), structuredClone(layoutFor(box, spec)), config);
}

function resize(box) {
  const { plot, narrow: wasNarrow } = drawn.get(box);
  if (wasNarrow !== narrow.matches) render(box);
  else if (plot._fullLayout.width !== box.clientWidth) Plotly.relayout(plot, { width: box.clientWidth });
}

/* On a phone panels stand below each other, and one chart is higher than the screen. Its legend stays in sight. */
function keepLegends() {
  if (!narrow.matches) return;
  const head = document.querySelector(".md-header").getBoundingClientRect().bottom;
  for (const { plot } of drawn.values()) {
    const legend = plot.querySelector(".legend");
    const { bottom, height } = plot.getBoundingClientRect();
    if (!legend) continue;
    const [, moved = 0] = legend.style.translate.split(" ").map(parseFloat);
    const { top: now, height: high } = legend.getBoundingClientRect();
    const first = now - moved; // where it stands unmoved
    const tall = height > innerHeight - head && bottom > head;
    const far = tall ? Math.min(head - first, bottom - high - first) : 0;
    legend.style.translate = far > 0 ? `0 ${far}px` : "";
    legend.classList.toggle("am-kept", far > 0);
    if (far > 0 && legend.nextSibling) legend.parentNode.append(legend); // over the panels' titles
  }
}
addEventListener("scroll", keepLegends, { passive: true });

function fail(box, file, error) {
  const textContent = `This figure cannot be drawn: ${file} ${error.message}. `
    + "Its numbers may still be where the data link below leads.";
  box.replaceChildren(make("p", { className: "am-missing", textContent }));
  console.warn(textContent);
}

async function draw(box) {
  const source = box.querySelector(".am-source");
  let file = source ? new URL(source.href).pathname : "the link to its data";
  try {
    if (!source) throw new Error("is missing");
    const [spec] = await Promise.all([
      loadSpec(source.href),
      loadPlotly().catch((error) => {
        file = new URL(PLOTLY).pathname;
        throw error;
      }),
    ]);
    if (!box.isConnected) return; // the reader has left the page meanwhile
    const name = file.split("/").slice(-2).join("-").replace(/\.json$/, "");
    const plot = make("div");
    box.replaceChildren(plot);
    drawn.set(box, { plot, spec, name });
    await render(box);
    // Its group is named by what it finds, and the table holds the numbers: no loose words of an axis.
    plot.querySelectorAll(".main-svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
    box.classList.add("am-drawn");
    resized.observe(box);
  } catch (error) {
    drawn.delete(box);
    fail(box, file, error);
  }
}

const resized = new ResizeObserver((entries) => requestAnimationFrame(() => {
  for (const { target } of entries) {
    // A box that is folded away has no width; it is looked at again when it is unfolded.
    if (drawn.has(target) && target.clientWidth) resize(target);
  }
}));

function recolor() {
  for (const { plot } of drawn.values()) Plotly.relayout(plot, { template: theme() });
}
onScheme(recolor);

// On paper: light colors and the paper's width. Material unfolds the tables.
const PAPER_WIDTH = 560;
let scheme;
addEventListener("beforeprint", () => {
  scheme = document.body.dataset.mdColorScheme;
  document.body.dataset.mdColorScheme = "default";
  for (const [box, { plot }] of drawn) {
    Plotly.relayout(plot, { template: theme(), width: Math.min(PAPER_WIDTH, box.clientWidth) });
  }
});
addEventListener("afterprint", () => {
  document.body.dataset.mdColorScheme = scheme; // its observer recolors
  for (const [box, { plot }] of drawn) Plotly.relayout(plot, { width: box.clientWidth });
});

const near = nearby(draw);

onPage(() => {
  for (const [box, { plot }] of drawn) {
    if (box.isConnected) continue;
    resized.unobserve(box);
    Plotly.purge(plot);
    drawn.delete(box);
  }
  near.disconnect();
  document.querySelectorAll(".am-plot:not(.am-drawn)").forEach((box) => near.observe(box));
});
