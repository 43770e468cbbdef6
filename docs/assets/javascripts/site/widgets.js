/* Widgets: an element with data-widget="name" becomes what start(element) of widgets/name.js makes of it, when it
   comes near the screen. The script is fetched then, or before, at the first sign of a reader: a link in the text
   may lead to a widget's view. `atOnce` starts a widget as soon as it is there, because it changes its height. */
import { nearby, onPage } from "./pages.js";

const boxes = () => document.querySelectorAll("[data-widget]");
const loaded = new Map(); // name → promise of its module, or of nothing where it cannot be had
const started = new WeakSet();
const asked = new Set(); // addresses of data

function load(name) {
  if (!loaded.has(name)) {
    loaded.set(name, import(`../widgets/${name}.js`).catch((error) => {
      loaded.delete(name); // the next page that has it tries again
      console.warn(`The widget ${name} could not be loaded: ${error.message}`);
    }));
  }
  return loaded.get(name);
}

/* The widget's data, asked for beside its script and not after it: on a slow network that is half the wait. */
function fetchAhead(box) {
  const source = box.querySelector("a[href$='.json']");
  if (!source || asked.has(source.href)) return;
  asked.add(source.href);
  const link = Object.assign(document.createElement("link"), { rel: "preload", href: source.href });
  link.as = "fetch";
  link.crossOrigin = "anonymous";
  document.head.append(link);
}

async function start(box) {
  fetchAhead(box);
  const widget = await load(box.dataset.widget);
  if (!widget || started.has(box) || !box.isConnected) return;
  started.add(box);
  widget.start(box);
}

async function prepare(box) {
  const widget = await load(box.dataset.widget);
  if (widget?.atOnce) start(box);
}

const near = nearby(start);
let read = false; // whether a reader is there

onPage(() => {
  near.disconnect();
  for (const box of boxes()) near.observe(box);
  if (read) boxes().forEach(prepare);
});

for (const sign of ["keydown", "pointermove", "scroll", "touchstart"]) {
  addEventListener(sign, () => {
    if (!read) boxes().forEach(prepare);
    read = true;
  }, { once: true, passive: true });
}
