/* "Edit and run" beside a listing, "Start" below an exercise, and links that hold an edit. The playground is
   fetched after such a click and not before. */
import { onPage } from "./pages.js";

const load = () => import("../playground/panel.js");

async function whileBusy(button, act) {
  button.setAttribute("aria-busy", "true");
  try {
    await act(await load());
  } catch (error) {
    button.textContent = "Could not be loaded: try again";
    console.warn(`The playground: ${error.message}`);
  }
  button.removeAttribute("aria-busy");
}

addEventListener("click", (event) => {
  const button = event.target.closest?.(".am-edit");
  if (button && !button.hasAttribute("aria-busy")) whileBusy(button, (panel) => panel.open(button));
});

// A link to an edit, followed to this page or within it. It opens the editor; only a reader runs what it holds.
async function follow() {
  if (location.hash.startsWith("#edit=")) (await load()).openLink(location.hash);
}
onPage(() => follow().catch((error) => console.warn(`The link: ${error.message}`)));
addEventListener("hashchange", () => follow().catch((error) => console.warn(`The link: ${error.message}`)));
