/* The barriers of one channel, to be played by hand. Its box links to all states that the simulation of the kernel
   found (reachable.py) and to what leads from one to the next, so nothing here knows how a barrier works: a press
   of a button follows a way. */
import { make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";
import { player } from "../site/player.js";

const FRAME = `
  <label class="am-barriers-choice">Take out <select data-part="removed"></select></label>
  <pre class="am-barriers-change" data-part="box"><code data-part="change"></code></pre>
  <div class="am-barriers-board" data-part="board"></div>
  <ul class="am-barriers-actors" data-part="actors"></ul>
  <p class="am-barriers-words" data-part="words" role="status"></p>
  <div data-part="bar">
    <button type="button" data-part="trouble">Show how it fails</button>
    <span data-part="count"></span>
  </div>`;

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const range = (n) => Array.from({ length: n }, (_, i) => i);

// A state's numbers, by name. The order is that of _numbers in reachable.py.
function read(walk, index) {
  const numbers = walk.states[index].values();
  const next = () => numbers.next().value;
  const at = Object.fromEntries(walk.parts.map((part) => [part, next()]));
  const buffers = range(walk.buffers).map(() => ({ held: next(), coming: next() }));
  const reads = Object.fromEntries(walk.parts.slice(1).map((part) => [part, next()]));
  const barriers = Object.entries(walk.arrivals).map(([name, all]) => ({
    name, over: next(), here: all - next(), all, bytes: next(),
  }));
  return { at, buffers, reads, barriers };
}

const stepOf = (walk, state, part) => walk.steps[part][state.at[part]];

// Everybody who can do something some day: their event, name, and what they would do or wait for now.
function actors(walk, state) {
  const parts = walk.parts.map((part) => {
    const step = stepOf(walk, state, part);
    const wait = step?.asks && `waits for ${step.asks}`;
    return { event: part, name: capital(part), wait, does: step ? step.does.join(", ") : "has done all its work" };
  });
  const copies = state.buffers.map(({ coming }, i) => ({
    event: `buffer ${i}`, name: `TMA, buffer ${i}`,
    does: coming < 0 ? "has nothing to copy" : `delivers the last byte of tile ${coming}`,
  }));
  const products = Object.entries(state.reads).map(([part, buffer]) => ({
    event: `${part} product`, name: `Tensor cores, ${part}`,
    does: buffer < 0 ? "have nothing to multiply" : `finish the product with buffer ${buffer}`,
  }));
  return [parts[0], ...copies, ...parts.slice(1), ...products];
}

function bufferOf(state, i) {
  const { held, coming } = state.buffers[i];
  const readers = Object.entries(state.reads).filter(([, buffer]) => buffer === i).map(([part]) => part);
  const tile = coming >= 0 ? `tile ${coming} is on its way` : held >= 0 ? `tile ${held}` : "nothing yet";
  const box = make("section", { className: coming >= 0 ? "am-barriers-coming" : held >= 0 ? "am-barriers-held" : "" });
  box.append(
    make("h3", { textContent: `Buffer ${i}` }), make("b", { textContent: tile }),
    make("small", { textContent: readers.length ? `read for ${readers.join(" and ")}` : "\u00a0" }),
  );
  for (const barrier of state.barriers.filter(({ name }) => name.endsWith(`[${i}]`))) {
    const { name, over, here, all, bytes } = barrier;
    const line = make("p", {}, make("code", { textContent: name }));
    line.append(
      make("span", { textContent: `phase ${over}, parity ${over % 2}` }),
      make("span", {
        className: "am-barriers-dots", role: "img", ariaLabel: `${here} of ${all} arrivals${bytes ? ", waits for bytes" : ""}`,
        textContent: "●".repeat(here) + "○".repeat(all - here) + (bytes ? " + bytes" : ""),
      }),
    );
    box.append(line);
  }
  return box;
}

// How things stand: { end, text }, end being "fault", "stuck", "done" or nothing.
function verdict(walk, state, at, fault) {
  if (fault) return { end: "fault", text: `${capital(fault)}.` };
  if (walk.ways[at].length) return {};
  const left = walk.parts.filter((part) => stepOf(walk, state, part));
  if (!left.length) return { end: "done", text: "All tiles went through, and everybody is done." };
  const waits = left.map((part) => `${part} waits for ${stepOf(walk, state, part).asks}`);
  return { end: "stuck", text: `Deadlock: nobody can go on. ${capital(waits.join("; "))}.` };
}

function show(view) {
  const { parts, walk } = view;
  const { at, fault, said } = view.past.at(-1);
  const state = read(walk, at);
  const { end, text } = verdict(walk, state, at, fault);
  parts.board.replaceChildren(...range(walk.buffers).map((i) => bufferOf(state, i)));
  const ready = walk.ways[at].map(([event]) => event);
  for (const [i, { event, name, wait, does }] of actors(walk, state).entries()) {
    const [button, words] = parts.actors.children[i].children;
    const can = ready.includes(event);
    button.dataset.event = event;
    button.textContent = name;
    button.setAttribute("aria-disabled", !can || Boolean(fault));
    words.textContent = !can && wait ? wait : does;
    words.classList.toggle("am-barriers-waits", !can);
  }
  const why = end === "fault" || end === "stuck" ? ` ${walk.diagnosis}` : "";
  parts.words.textContent = ([said, text].filter(Boolean).join(" ") || "Press whoever is to act next.") + why;
  parts.words.dataset.end = end ?? "";
  parts.count.textContent = `${view.seen.size} of ${walk.states.length} states seen`;
  parts.trouble.hidden = !walk.trouble;
  view.player.show({ step: view.past.length - 1, last: end ? view.past.length - 1 : Infinity });
}

// Follow a way; `said` is what happened, in words.
function go(view, event) {
  const { at, fault } = view.past.at(-1);
  const way = !fault && view.walk.ways[at].find(([name]) => name === event);
  if (!way) return;
  const { name, does } = actors(view.walk, read(view.walk, at)).find((actor) => actor.event === event);
  const said = `${name} ${does}.`;
  view.past.push(way[1] < 0 ? { at, fault: view.walk.faults[~way[1]], said } : { at: way[1], said });
  view.seen.add(view.past.at(-1).at);
  show(view);
}

// Go back to a step; or on, where what is to fail says who acts, and otherwise chance does.
function goTo(view, step) {
  if (step < view.past.length) {
    view.coming = [];
    view.past.length = step + 1;
    show(view);
    return;
  }
  const ways = view.walk.ways[view.past.at(-1).at];
  const [event] = ways[view.coming.length ? view.coming.shift() : Math.floor(Math.random() * ways.length)];
  go(view, event);
}

function choose(view, index) {
  const walk = view.data.walks[index];
  view.walk = walk;
  view.seen = new Set([0]);
  const [old, now] = walk.change;
  view.parts.box.hidden = !old;
  view.parts.change.replaceChildren(make("del", { textContent: old }), make("ins", { textContent: now }));
  view.past = [{ at: 0, said: "" }];
  goTo(view, 0);
}

function build(box, data) {
  for (const walk of data.walks) {
    walk.ways = walk.ways.map((ways) => ways.map(([event, to]) => [walk.events[event], to]));
    walk.parts = Object.keys(walk.steps);
    walk.buffers = Object.keys(walk.arrivals).length / 2;
  }
  const frame = make("div", { innerHTML: FRAME });
  const view = { box, data, parts: partsOf(frame) };
  view.player = player({ go: (step) => goTo(view, step) });
  view.player.bar.append(view.parts.trouble, view.parts.count);
  view.parts.bar.replaceWith(view.player.bar);
  view.parts.removed.append(...data.walks.map(({ removed }, i) => new Option(removed, i)));
  const first = data.walks[0];
  view.parts.actors.append(...actors(first, read(first, 0)).map(() => make(
    "li", {}, make("button", { type: "button" }), make("span"),
  )));
  view.parts.removed.addEventListener("change", ({ target }) => {
    view.player.stop();
    choose(view, target.value);
  });
  view.parts.trouble.addEventListener("click", () => {
    goTo(view, 0);
    view.coming = [...view.walk.trouble];
    view.player.start();
  });
  view.parts.actors.addEventListener("click", ({ target }) => {
    if (!target.dataset.event) return;
    view.player.stop();
    view.coming = [];
    go(view, target.dataset.event);
  });
  box.replaceChildren(frame);
  choose(view, 0);
}

function checked(data) {
  const valid = data?.walks?.length && data.walks.every((walk) => walk.states?.length
    && walk.ways?.length === walk.states.length && walk.steps && walk.arrivals
    && walk.ways.flat().every(([event, to]) => walk.events[event] && (to < 0 ? walk.faults[~to] : walk.states[to])));
  if (!valid) throw new Error("is not a walk through states");
  return data;
}

export const start = fromData({
  checked, build,
  fails: "The barriers cannot be played",
  instead: "What goes wrong is in the table below.",
});
