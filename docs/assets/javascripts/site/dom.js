export const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};

/* Text as nodes: what stands in `…` is code. */
export const withCode = (text) => text.split(/`([^`]+)`/).map((part, at) => (
  at % 2 ? make("code", { textContent: part }) : part));

/* The named parts of a widget's frame: {name: element} of its [data-part] elements. */
export const partsOf = (frame) => Object.fromEntries(
  [...frame.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]),
);
