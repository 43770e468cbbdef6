/* A kernel from elsewhere: how it is launched is worked out in a worker of its own, shown as fields that a reader may
   change, and kept in the link with the code. */
import { make, withCode } from "../site/dom.js";
import { problemsOf } from "./engine/recorded.js";

const WORKER = new URL("./paste/worker.js", import.meta.url);
const START = "# Paste a @triton.jit kernel here, with the functions that it calls, and press Run.\n";
const HELP = "A field is an expression of `B`, `H`, `Hkv`, `M` queries, `N` keys, `D`, `scale` and `causal`, with `cdiv(M, 16)`, `pow2(D)` "
  + "or `stride(q, 2)`; a pointer is `q`, `k`, `v`, `out`, `scratch` or `None`. Press Run after a change.";

const labeled = ({ name, label = name, text, options }, changed) => {
  const field = options
    ? make("select", {}, ...options.map((option) => new Option(option, option, option === text, option === text)))
    : make("input", { type: "text", value: text, spellcheck: false, autocapitalize: "off", autocomplete: "off" });
  field.setAttribute("aria-label", label); // the words of a label around a select are its options, too
  field.addEventListener("input", () => changed(name, field.value));
  if (!text) field.setAttribute("aria-invalid", "true");
  return make("label", {}, label === name ? make("code", { textContent: name }) : label, field);
};

/* id: "pasted", with what a link says of the launch; loads: {problems, example}, promises of what the site has. */
export function pasted(id, loads) {
  const given = new Map(new URLSearchParams(id.split("?")[1]));
  const fields = make("div");
  const send = make("button", { textContent: "Run", hidden: true }); // so that Enter in a field runs
  const form = make("form", {}, make("p", {}, ...withCode(HELP)), fields, send);
  const launch = make("details", { className: "am-launch", hidden: true }, make("summary", { textContent: "How it is launched" }), form);
  const change = (name, text) => (text ? given.set(name, text) : given.delete(name));

  async function recorded(source, room) {
    if (source === START) throw new Error("Paste a kernel first, or press Example.");
    const file = await loads.problems();
    const planned = () => room.plan(source, problemsOf(file), given);
    let plan = await planned();
    if (given.size && subject.kernel && plan.kernel !== subject.kernel && !given.has(":kernel")) {
      given.clear(); // they were of another kernel
      plan = await planned();
    }
    subject.kernel = plan.kernel;
    subject.name = plan.kernel ?? "";
    subject.note = plan.note ?? "";
    const empty = plan.fields.filter(({ text }) => !text);
    fields.replaceChildren(...plan.fields.toSorted((a, b) => Boolean(a.text) - Boolean(b.text)).map((field) => labeled(field, change)));
    launch.hidden = !plan.fields.length;
    launch.open ||= Boolean(empty.length || plan.unsure);
    if (plan.reason) throw new Error(`This page cannot judge it. ${plan.reason}`);
    const asked = empty.filter(({ name }) => name !== ":grid").map(({ name }) => `\`${name}\``);
    if (asked.length) {
      throw new Error(`This page cannot judge it yet: it does not know ${asked.length > 1 ? "the arguments" : "the argument"} ${asked.join(", ")}. `
        + "Say below what your launcher passes, and press Run again.");
    }
    return { file, problems: plan.problems };
  }

  const subject = {
    name: "Pasted kernel", draft: "pasted", start: START, text: "", sections: {}, worker: WORKER, launch, form, recorded,
    get id() {
      return given.size ? `pasted?${new URLSearchParams([...given])}` : "pasted";
    },
    example: loads.example,
    /* What to say of what was found: a limit of the page's is no mistake of the reader's. */
    says({ says, results }) {
      const limit = results.some(({ error }) => error?.kind === "limit");
      const wrong = results.some(({ right }) => !right);
      const ended = /[.?!]$/.test(says) ? says : `${says}.`; // an error's message has no period of its own
      return `${limit ? "This page cannot judge it. " : ""}${ended} ${subject.note}${wrong && !limit ? "See below how it was launched." : ""}`;
    },
  };
  return subject;
}
