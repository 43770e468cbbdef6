/* A prediction before a chart: the choices of a list become buttons, choosing one marks the right one and opens the
   answer below. The choice is kept in this browser only. Without a script the list is a list, and the answer a fold. */

import { keep, kept } from "../site/kept.js";

export const atOnce = true; // the answer of a choice made before is open

const keyOf = (box) =>
  `am-predict:${location.pathname}:${[...document.querySelectorAll('[data-widget="predict"]')].indexOf(box)}`;

export function start(box) {
  const key = keyOf(box);
  const answer = box.querySelector("details");
  const buttons = [...box.querySelectorAll(":scope > ul > li")].map((item) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...item.childNodes);
    item.append(button);
    return button;
  });
  const choose = (chosen) => {
    for (const [i, button] of buttons.entries()) button.setAttribute("aria-pressed", String(i === chosen));
    box.classList.add("am-guessed");
    answer.open = true;
  };
  for (const [i, button] of buttons.entries()) {
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      keep(key, String(i));
      choose(i);
    });
  }
  const before = kept(key);
  if (before !== null && buttons[Number(before)]) choose(Number(before));
}
