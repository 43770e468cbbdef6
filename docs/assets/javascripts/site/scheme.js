/* The color scheme: the header's three radio buttons (as the system, light, dark) in place of the theme's
   script for them. That one announces the scheme in ways that make a browser style the whole document
   four times while the page starts: more than all else it does. */
const inputs = [...document.querySelectorAll("input[name='__palette']")];
const light = matchMedia("(prefers-color-scheme: light)");
const bar = Object.assign(document.createElement("meta"), { name: "theme-color" });
const ATTRIBUTES = {
  scheme: "data-md-color-scheme", primary: "data-md-color-primary", accent: "data-md-color-accent",
};
const mediaOf = (input) => input.getAttribute("data-md-color-media");

function show(index, store) {
  const chosen = inputs[index];
  const asSystem = mediaOf(chosen) === "(prefers-color-scheme)";
  const wanted = `(prefers-color-scheme: ${light.matches ? "light" : "dark"})`;
  const shown = asSystem ? inputs.find((input) => mediaOf(input) === wanted) : chosen;
  const color = { media: mediaOf(chosen) };
  for (const [key, name] of Object.entries(ATTRIBUTES)) {
    color[key] = shown.getAttribute(name);
    if (document.body.getAttribute(name) !== color[key]) document.body.setAttribute(name, color[key]);
  }
  const root = color.scheme === "slate" ? "dark" : "";
  if (document.documentElement.style.colorScheme !== root) document.documentElement.style.colorScheme = root;
  for (const input of inputs) input.nextElementSibling.hidden = input !== chosen;
  chosen.checked = true;
  if (store) __md_set("__palette", { index, color });
  setTimeout(() => { // when the style is computed anyway
    const header = document.querySelector(".md-header");
    bar.content = getComputedStyle(header).backgroundColor;
  }, 500);
}

document.head.append(bar);
const first = __md_get("__palette")?.index ?? 0;
show(Math.min(Math.max(first, 0), inputs.length - 1), false);
light.addEventListener("change", () => show(inputs.findIndex((input) => input.checked), false));
// Paper is white: dark colors would not be read on it.
addEventListener("beforeprint", () => document.body.setAttribute(ATTRIBUTES.scheme, "default"));
addEventListener("afterprint", () => show(inputs.findIndex((input) => input.checked), false));
inputs.forEach((input, index) => {
  input.addEventListener("change", () => show(index, true));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    const next = (index + 1) % inputs.length;
    show(next, true);
    inputs[next].focus();
  });
});
