export const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};

/* A button that does something when it is pressed. */
export function button(textContent, act, properties = {}) {
  const made = make("button", { type: "button", textContent, ...properties });
  made.addEventListener("click", act);
  return made;
}

/* An element of a drawing, with its attributes. */
export function shape(tag, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

/* Text as nodes: what stands in `…` is code. */
export const withCode = (text) => text.split(/`([^`]+)`/).map((part, at) => (
  at % 2 ? make("code", { textContent: part }) : part));

/* The named parts of a widget's frame: {name: element} of its [data-part] elements. */
export const partsOf = (frame) => Object.fromEntries(
  [...frame.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]),
);

/* Resolves in a new task, so that a reader's touch is answered in between. */
export const anotherTask = () => new Promise((resolve) => { setTimeout(resolve); });
