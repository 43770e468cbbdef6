import { anotherTask, make } from "./dom.js";
import { loadJson } from "./json.js";

/* The start of a widget whose box links to its data: the box becomes what build(box, data) makes of them.
   Where that fails what stands in the box stays, and a sentence says so: `fails: …. ${instead}`. */
export function fromData({ checked, build, fails, instead }) {
  return async (box) => {
    const source = box.querySelector(".am-source");
    let file = "the link to its data";
    try {
      if (!source) throw new Error("is missing");
      file = new URL(source.href).pathname;
      const data = checked(await loadJson(source.href));
      await anotherTask(); // so that a page which is being scrolled is not held up twice as long
      if (box.isConnected) build(box, data); // otherwise the reader has left the page meanwhile
    } catch (error) {
      const textContent = `${fails}: ${file} ${error.message}. ${instead}`;
      box.prepend(make("p", { className: "am-missing", textContent }));
      console.warn(textContent);
    }
  };
}
