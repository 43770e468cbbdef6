/* Links to a view of a widget: those in the text, and the one that a reader takes along. */
import { replace } from "./address.js";

/* A link in the text to another view of this page changes the view in place; instant navigation would load
   the page again. `show` takes the link's parameters and says whether one of them was meant for it. */
export function onLinkToView(show) {
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href*='?']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { origin, pathname, searchParams } = new URL(link.href);
    if (origin + pathname !== location.origin + location.pathname || !show(searchParams)) return;
    event.preventDefault();
    event.stopPropagation();
    replace(link.href);
  }, true);
}

/* A button that copies the address of what is shown; `update` brings the address up to date before. */
export function copiesLink(button, box, update) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    update();
    const url = new URL(location.href);
    url.hash = box.closest("[id^='figure-']")?.id ?? "";
    const done = await navigator.clipboard.writeText(url).then(() => true, () => false);
    button.textContent = done ? "Copied" : "The link is in the address bar";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}
