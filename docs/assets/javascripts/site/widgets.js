/* Widgets: an element with data-widget="name" becomes what start(element) of widgets/name.js makes of it, when
   it comes near the screen; `atOnce` starts a widget that changes its own height before a reader is there. */
import { nearby, onPage } from "./pages.js";

const started = new WeakSet();

function start(box, widget) {
  if (started.has(box) || !box.isConnected) return;
  started.add(box);
  widget.start(box);
}

const loaded = new Map(); // name → promise of its module
const near = nearby(async (box) => start(box, await loaded.get(box.dataset.widget)));

async function find(box) {
  const name = box.dataset.widget;
  if (!loaded.has(name)) loaded.set(name, import(`../widgets/${name}.js`));
  try {
    const widget = await loaded.get(name);
    if (widget.atOnce) start(box, widget);
    else near.observe(box);
  } catch (error) {
    loaded.delete(name); // the next page that has it tries again
    console.warn(`The widget ${name} could not be loaded: ${error.message}`);
  }
}

onPage(() => {
  near.disconnect();
  document.querySelectorAll("[data-widget]").forEach(find);
});
