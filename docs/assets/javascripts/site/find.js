/* The search box. What answers in it, ../search/answers.js, comes with its index when a reader first turns to it. */
const box = document.querySelector(".md-search__input");
const shown = document.querySelector("#__search");
const KEYS = new Set(["/", "f", "s"]);
const TYPING = "input, select, textarea, [contenteditable], .cm-editor";

let answers;

function prepare() {
  answers ??= import("../search/answers.js").then(({ start }) => start(box)).catch((error) => {
    answers = undefined; // the next time tries again
    document.querySelector(".md-search-result__meta").textContent = `The search could not be loaded: ${error.message}`;
  });
}

function show(open) {
  shown.checked = open;
  shown.dispatchEvent(new Event("change"));
}

box.addEventListener("focus", () => {
  show(true);
  prepare();
});
shown.addEventListener("change", () => {
  if (shown.checked) box.focus();
  else box.blur();
});
/* Tab leads out of the box and its results: then nothing lies over the page any more. */
box.closest(".md-search").addEventListener("focusout", ({ currentTarget, relatedTarget }) => {
  if (shown.checked && relatedTarget && !currentTarget.contains(relatedTarget)) show(false);
});
/* On a phone the theme holds the page still under the open box and, after a hit, would put it back where it was. */
box.closest(".md-search").addEventListener("click", ({ target }) => {
  if (!target.closest("a")) return;
  document.body.removeAttribute("data-md-scrolllock");
  document.body.style.top = "";
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && shown.checked) show(false);
  const free = !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest?.(TYPING);
  if (!KEYS.has(event.key) || !free || shown.checked) return;
  event.preventDefault();
  box.focus();
  box.select();
});
