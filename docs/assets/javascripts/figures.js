/* Draws the figures: every .am-plot box holds a link to a Plotly spec ({data, layout}) and is drawn when
   it comes near the screen. Colours and fonts come from site.css, so a figure follows the colour scheme. */
(() => {
  // Half a megabyte that draws all our charts, a third of the whole library. It comes beside the first
  // spec that is near and never before; a preview (preview.py) stands in the box until it has come. Its
  // name holds its version, so a cache may keep it for all pages.
  const PLOTLY = new URL("../vendor/plotly-cartesian-4.1.1.min.js", document.currentScript.src).href;
  const NEAR = "400px 0px";
  const narrow = matchMedia("(max-width: 599px)");
  const touch = matchMedia("(pointer: coarse)");
  const drawn = new Map(); // box -> {plot, spec, name, narrow}: what is on the page now
  let loading;

  function loadPlotly() {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = PLOTLY;
      script.onload = () => resolve();
      script.onerror = () => {
        loading = undefined; // the next figure tries again
        reject(new Error("could not be loaded"));
      };
      document.head.append(script);
    });
    return loading;
  }

  async function loadJson(url) {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`could not be loaded (${response.status})`);
    return response.json().catch(() => {
      throw new Error("is not valid JSON");
    });
  }

  const make = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };

  // Material emits a document on the first load and on each instant navigation.
  function whenNear(selector, open) {
    const near = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        open(target);
      }
    }, { rootMargin: NEAR });
    document$.subscribe(() => {
      near.disconnect();
      document.querySelectorAll(selector).forEach((box) => near.observe(box));
    });
  }

  // A box that links to its data becomes what build(box, data) makes of them, when it comes near: then it
  // holds `frame`. Where that fails what stands in the box stays, and a sentence says so: `fails: …. ${instead}`.
  function widget(selector, { frame, checked, build, fails, instead }) {
    whenNear(`${selector}:not(:has(${frame}, .am-missing))`, async (box) => {
      const source = box.querySelector(".am-source");
      let file = "the link to its data";
      try {
        if (!source) throw new Error("is missing");
        file = new URL(source.href).pathname;
        const data = checked(await loadJson(source.href));
        // Otherwise the reader has left the page meanwhile, or come back to it.
        if (box.isConnected && !box.querySelector(frame)) build(box, data);
      } catch (error) {
        const textContent = `${fails}: ${file} ${error.message}. ${instead}`;
        box.prepend(make("p", { className: "am-missing", textContent }));
        console.warn(textContent);
      }
    });
  }

  async function loadSpec(url) {
    const spec = await loadJson(url);
    if (!Array.isArray(spec.data) || !spec.layout) throw new Error("is not a figure: no data or layout");
    return spec;
  }

  // A template sets the defaults of every axis at once, however many subplots the layout has.
  function theme() {
    const style = getComputedStyle(document.body);
    const get = (name) => style.getPropertyValue(`--am-${name}`).trim();
    const axis = {
      color: get("muted"), gridcolor: get("grid"), linecolor: get("axis"), zerolinecolor: get("axis"),
      tickcolor: get("axis"), title: { font: { color: get("ink"), size: 13 } },
      fixedrange: touch.matches, // a finger on an axis scrolls the page
    };
    const bar = { outlinewidth: 0, tickcolor: get("axis"), tickfont: { color: get("muted") } };
    return {
      layout: {
        font: { family: get("sans"), size: 13, color: get("ink") },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        xaxis: axis, yaxis: axis, coloraxis: { colorbar: bar },
        legend: { bgcolor: "rgba(0,0,0,0)" },
        hoverlabel: {
          bgcolor: get("raised"), bordercolor: get("axis"), align: "left",
          font: { family: get("sans"), size: 13, color: get("ink") },
        },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: get("muted"), activecolor: get("accent") },
        dragmode: touch.matches ? false : "zoom",
      },
      data: { heatmap: [{ colorbar: bar }] },
    };
  }

  function merge(base, over) {
    const result = { ...base };
    for (const [key, value] of Object.entries(over ?? {})) {
      const both = [base?.[key], value].every((v) => v && typeof v === "object" && !Array.isArray(v));
      result[key] = both ? merge(base[key], value) : value;
    }
    return result;
  }

  function layoutFor(box, spec) {
    const layout = merge(spec.layout, narrow.matches ? spec.layout.meta?.narrow : {});
    const height = narrow.matches && spec.layout.meta?.narrow?.height;
    box.style.height = height ? `${height}px` : "";
    return {
      ...layout, template: theme(), autosize: false, transition: { duration: 0 },
      width: box.clientWidth, height: box.clientHeight,
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

  function fail(box, file, error) {
    const textContent = `This figure cannot be drawn: ${file} ${error.message}. `
      + "The numbers may still be in the table below.";
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
      const preview = box.querySelector(".am-preview");
      box.replaceChildren(...[preview, plot].filter(Boolean));
      drawn.set(box, { plot, spec, name });
      await render(box);
      preview?.remove();
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

  function recolour() {
    for (const { plot } of drawn.values()) Plotly.relayout(plot, { template: theme() });
  }
  new MutationObserver(recolour)
    .observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });

  // On paper: light colours and the paper's width. Material unfolds the tables.
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
    document.body.dataset.mdColorScheme = scheme; // its observer recolours
    for (const [box, { plot }] of drawn) Plotly.relayout(plot, { width: box.clientWidth });
  });

  document$.subscribe(() => {
    for (const [box, { plot }] of drawn) {
      if (box.isConnected) continue;
      resized.unobserve(box);
      Plotly.purge(plot);
      drawn.delete(box);
    }
  });
  whenNear(".am-plot:not(.am-drawn)", draw);

  window.amFigures = { PLOTLY, loadJson, loadPlotly, make, theme, widget }; // for the widgets
})();
