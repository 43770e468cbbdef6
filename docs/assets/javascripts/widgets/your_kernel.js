/* The kernel chooser: its box links to the list of published files. Ticks lead to the file that holds just them, or to
   the nearest one and the command that folds what was asked for. Without a script the table of popular files stays. */
import { asked, remember } from "../site/address.js";
import { make } from "../site/dom.js";
import { fromData } from "../site/from_data.js";

const CHOICE = "kernel"; // the parameter in the address: use, ticks, head dimension, GPU
const FIRST = "causal.grouped.128.sm_90";

function checked(data) {
  const valid = data?.features?.causal && data.uses?.length === 2 && Array.isArray(data.excluded)
    && Array.isArray(data.D) && data.gpus && Array.isArray(data.files) && data.files.length
    && data.files.every((file) => file.name && Array.isArray(file.on) && file.D && file.gpu && file.lines && file.rate);
  if (!valid) throw new Error("is not a list of kernels");
  return data;
}

const MASKS = ["causal", "window", "packed"];

/* How a file differs from a choice. */
function differences(file, choice) {
  const lacks = [...choice.on].filter((name) => !file.on.includes(name));
  const has = file.on.filter((name) => !choice.on.has(name));
  return { lacks, has, D: file.D !== choice.D, gpu: file.gpu !== choice.gpu };
}

/* One for each tick; another mask, width or GPU counts as much more, and another use as most. */
function distance(file, choice) {
  const { lacks, has, D, gpu } = differences(file, choice);
  const weight = (name) => (name === "decode" ? 100 : MASKS.includes(name) ? 5 : 1);
  return [...lacks, ...has].reduce((sum, name) => sum + weight(name), 5 * D + 5 * gpu);
}

/* As html_fixes.py marks a long line. */
function wrapping(parts) {
  const line = make("span", { className: "am-long" }, ...parts, "\n");
  line.style.setProperty("--am-in", `${line.textContent.search(/\S|$/)}ch`);
  return line;
}

function build(box, data) {
  const base = new URL(box.querySelector(".am-source").href);
  const labels = data.features;
  const uses = { "": "training, prefill", decode: "decoding" };
  const link = asked(CHOICE) ?? "";
  const parts = (link.split(".").at(-1) in data.gpus ? link : FIRST).split(".");
  const choice = { D: data.D.find((width) => parts.includes(String(width))) ?? 128, gpu: parts.at(-1) };
  const offers = (use) => data.uses[Number(use === "decode")];
  const ticked = new Set(parts); // those of the other use, too: who goes back finds them
  const fit = (use) => Object.assign(choice, {
    use, on: new Set([...offers(use).filter((name) => ticked.has(name)), ...use ? [use] : []]),
  });
  fit(parts.includes("decode") ? "decode" : "");
  const said = make("p", { className: "am-kernel-said", role: "status" });
  const links = make("p");
  const listing = make("code");
  const command = make("code");
  const curl = make("code");
  const frame = make("pre", { tabIndex: 0, role: "region", ariaLabel: "The file" }, listing);
  let latest = 0;

  async function list(address) {
    const turn = ++latest;
    try {
      const response = await fetch(address);
      if (!response.ok) throw new Error(response.status);
      const pieces = await response.json();
      if (turn !== latest) return;
      const lines = [[]];
      for (const [className, text] of pieces) {
        text.split("\n").forEach((textContent, at) => {
          if (at) lines.push([]);
          lines.at(-1).push(make("span", { className, textContent }));
        });
      }
      listing.replaceChildren(...lines.map(wrapping));
    } catch (error) {
      if (turn === latest) listing.textContent = `The file could not be loaded (${error.message}).`;
    }
  }

  function show() {
    const file = data.files.toSorted((a, b) => distance(a, choice) - distance(b, choice))[0];
    const exact = distance(file, choice) === 0;
    const address = new URL(`${file.name}.py`, base).href;
    const both = data.excluded.find((pair) => pair.every((name) => choice.on.has(name) || name === choice.gpu));
    const [one, other] = (both ?? []).map((name) => labels[name] ?? data.gpus[name]);
    const found = `${file.name}.py: ${file.lines} lines of code, ${file.rate}.`;
    const { lacks, has, D, gpu } = differences(file, choice);
    const named = (word, names) => (names.length ? [`${word} ${names.map((name) => labels[name]).join(", ")}`] : []);
    const differs = [...named("lacks", lacks), ...named("adds", has), ...D ? [`is for heads of ${file.D}`] : [],
      ...gpu ? [`is for ${data.gpus[file.gpu]}`] : []];
    const made = ["make your-kernel", ...[...choice.on].map((name) => `${name.toUpperCase()}=1`),
      `D=${choice.D}`, `GPU=${choice.gpu}`].join(" ");
    command.textContent = made;
    command.parentElement.hidden = Boolean(both);
    curl.textContent = `curl -O ${address}`;
    const primary = "md-button md-button--primary am-copy";
    const copy = make("a", { className: exact ? primary : "am-copy", href: address, textContent: "Copy" });
    const download = make("a", { href: address, download: `${file.name}.py`, textContent: "Download" });
    const share = make("a", { href: location.href, textContent: "Link to this choice" });
    const ask = make("button", { type: "button", className: primary, textContent: "Copy the command" });
    ask.dataset.text = made;
    const below = `Below is the nearest, which ${new Intl.ListFormat("en").format(differs)}: `;
    said.textContent = exact ? found : both ? `No file has ${one} with ${other}.` : "Not published: a command makes it.";
    links.replaceChildren(...exact
      ? [copy, " \u2002", download, " · ", share]
      : [...both ? [] : [ask, " \u2002", share, make("br")], below, copy, " · ", download]);
    list(new URL(`${file.name}.json`, base).href);
  }

  function changed() {
    fit(choice.use);
    const text = [...choice.on, choice.D, choice.gpu].join(".");
    remember({ [CHOICE]: text === FIRST ? "" : text });
    show();
  }

  function option(type, name, value, label, set) {
    const input = make("input", { type, name, value });
    input.checked = type === "checkbox" ? choice.on.has(value) : choice[name.slice(3)] === value;
    input.addEventListener("change", () => {
      set(input);
      changed();
    });
    return make("label", {}, input, make("span", { textContent: label }));
  }

  const group = (legend, options) => (
    make("fieldset", { className: "am-cards-choice" }, make("legend", { textContent: legend }), ...options));
  const radios = (legend, key, values, set = (value) => { choice[key] = value; }) => group(legend, values.map(
    ([value, label]) => option("radio", `am-${key}`, value, label, () => set(value))));
  const offered = make("div");
  function offer() {
    offered.replaceChildren(group("What it does", offers(choice.use).map((name) => (
      option("checkbox", "am-on", name, labels[name], (input) => ticked[input.checked ? "add" : "delete"](name))
    ))));
  }
  offer();
  box.replaceChildren(
    radios("What it is for", "use", Object.entries(uses), (use) => {
      fit(use);
      offer();
    }),
    offered,
    radios("Head dimension", "D", data.D.map((width) => [width, String(width)])),
    radios("GPU", "gpu", Object.entries(data.gpus)),
    make("div", { className: "am-kernel-take" }, said, links), make("p", {}, "Make exactly this: ", command), make("div", { className: "highlight" }, frame),
    make("p", {}, "Get it: ", curl),
    make("p", {}, "Cite it: ", make("q", { textContent: "Attention, Measured, your kernel" }), ", with its link."),
  );
  show();
}

export const start = fromData({
  checked, build, fails: "The kernels cannot be chosen", instead: "The table below has the popular ones",
});
