/* Half a megabyte that draws all our charts, a third of the whole library. It comes beside the first chart that
   is near and never before. Its name holds its version, so a cache may keep it for all pages. */
export const PLOTLY = new URL("../../vendor/plotly-cartesian-4.1.1.min.js", import.meta.url).href;

const hovertemplate = "%{hovertext}<extra></extra>";
const touch = matchMedia("(pointer: coarse)");
let loading;

export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = PLOTLY;
    script.fetchPriority = "low"; // data and small scripts go first
    script.addEventListener("load", () => resolve());
    script.addEventListener("error", () => {
      loading = undefined; // the next figure tries again
      reject(new Error("could not be loaded"));
    });
    document.head.append(script);
  });
  return loading;
}

/* Colors and fonts come from the style sheets, so that a figure follows the color scheme. A template sets the
   defaults of every axis at once, however many subplots the layout has. */
export function theme() {
  const style = getComputedStyle(document.body);
  const get = (name) => style.getPropertyValue(`--am-${name}`).trim();
  const font = { family: get("sans"), size: 13, color: get("ink") };
  const axis = {
    color: get("muted"), gridcolor: get("grid"), linecolor: get("axis"), tickcolor: get("axis"),
    title: { font, standoff: 10 },
    zeroline: false, tickformat: "~r", fixedrange: touch.matches, // a finger on an axis scrolls the page
  };
  const bar = { outlinewidth: 0, tickcolor: get("axis"), tickfont: { color: get("muted") } };
  return {
    layout: {
      font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: { ...axis, ticklabelstandoff: 4 }, yaxis: { ...axis, automargin: "left" },
      legend: {
        bgcolor: get("paper"), orientation: "h", traceorder: "normal",
        x: 0, xref: "container", y: 0, yref: "container", yanchor: "bottom",
      },
      annotationdefaults: { font: { size: 12 }, showarrow: false }, hovermode: "closest",
      hoverlabel: { bgcolor: get("raised"), bordercolor: get("axis"), align: "left", font },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: get("muted"), activecolor: get("accent") },
      dragmode: touch.matches ? false : "zoom",
    },
    data: { heatmap: [{ colorbar: bar, hovertemplate }], bar: [{ hovertemplate }], scatter: [{ hovertemplate }] },
  };
}

/* Calls `recolor` when the reader has switched the color scheme. */
export function onScheme(recolor) {
  new MutationObserver(recolor)
    .observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
}
