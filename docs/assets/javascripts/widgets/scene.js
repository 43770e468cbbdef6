/* The kernel at work: a box that holds a link to what was recorded of a kernel becomes a stage, the kernel's lines
   and controls. Without a script, or where the recording cannot be had, what stands in the box stays.

   mount(box, recording) does the same with a recording from elsewhere, and leaves the page's address alone:

     { source: "snippets/…/kernel.py", listing: [line, …], examples: [example, …] }

   An example has a name, `through` ("registers" or "shared memory": where a load goes), `all_queries`, `q` [rows][D],
   `k` and `v` [N][D], `result` [rows][D], `bytes` {q, out}, and `begin` and `end`: the statements that ran before
   and after its loop, each [first, last] line of the listing. Then one of three:

     a running softmax: `base` "e" or "2", `queries`, `keys`, `tile`, `columns` and `tiles`, each {start, scores, p
       [queries][tile], m_before, m, alpha, l_before, l [queries], acc_before, acc [queries][columns], share [queries]
       [keys]: what each key would weigh if this tile were the last, lines: three lists of statements (scores,
       correction, addition), bytes {k, v}}; -∞, and so a hidden score, is null;
     a row at once: `query`, `weights` [slots], `softmax` (statements) and `keys`, each {score, weight, acc [D],
       lines: two lists of statements, bytes {k, v}}.

     parts side by side: `consumers`, `queries`, `keys`, `D`, `tile`, `stages`, `spans` {part, kind, tile, start, end},
       `stays` {stays: which part, lines: a statement, since, works_from, until}, `sends` {sent_to, sender, time},
       `fetches` {fetched, start, bytes}, `pace`, milliseconds of a unit of time, and `ends`: the trouble that it ends
       with; nothing of the fields above but its name.

   running.js, row.js and roles.js make steps of them. A step is {name, phase, keys: [first, end] or null, scores, p, hidden,
   weights [rows][N]: what each key weighs so far, state {m, l, acc}, moves: [{what, bytes, out}], read, written: bytes
   so far, lines, formula, words(query), tables()}: the state once the step is over. */
import { asked, rememberLater } from "../site/address.js";
import { anotherTask, button, make, partsOf } from "../site/dom.js";
import { fromData } from "../site/from_data.js";
import { player } from "../site/player.js";
import { listing } from "../scene/listing.js";
import { isOfRoles, rolesScript } from "../scene/roles.js";
import { isOneRow, rowScript } from "../scene/row.js";
import { isRunning, runningScript } from "../scene/running.js";
import { stage } from "../scene/stage.js";
import { tablesFor } from "../scene/tables.js";

const MOVE_MS = { scores: 2600, rescale: 1500, add: 2400, start: 1400, end: 1800, score: 1000, softmax: 1800, value: 900 };
const REST_MS = { running: 500, row: 120, roles: 0 }; // after a step, while it plays
const STILL_MS = 1600; // a step's turn where nothing is to move
const QUICK = 0.45; // of its time a step takes that the reader asks for
const reduced = matchMedia("(prefers-reduced-motion: reduce)");

const FRAME = `
  <div class="am-scene-view">
    <div class="am-scene-board" data-part="board" tabindex="0" role="group">
      <canvas data-part="canvas" role="img"></canvas>
      <canvas data-part="still" aria-hidden="true"></canvas>
    </div>
    <div class="am-scene-side" data-part="side"></div>
  </div>
  <div class="am-scene-controls" data-part="controls">
    <div class="am-scene-choices">
      <fieldset data-part="rows"><legend>Query</legend><span data-part="queries"></span></fieldset>
      <fieldset data-part="choice"><legend data-part="legend">Mask</legend><span data-part="examples"></span></fieldset>
    </div>
  </div>
  <p class="am-scene-formula" data-part="formula"></p>
  <p class="am-scene-words" data-part="words" role="status"></p>
  <div class="am-scene-tables" data-part="tables"></div>`;

const scripts = new WeakMap(); // example → its steps, worked out once

function scriptOf(example) {
  if (!scripts.has(example)) scripts.set(example, workedOut(example));
  return scripts.get(example);
}

function workedOut(example) {
  if (isRunning(example)) return runningScript(example);
  if (isOneRow(example)) return rowScript(example);
  if (isOfRoles(example)) return rolesScript(example);
  throw new Error("is not a recording of a kernel at work");
}

function checked(data) {
  if (!data?.examples?.length || !Array.isArray(data.listing)) throw new Error("is not a recording of a kernel at work");
  data.examples.forEach(scriptOf);
  return data;
}

const lastOf = (view) => view.script.steps.length - 1;
const stepOf = (view) => view.script.steps[view.step];

/* What stands still while a step moves: words, numbers, controls. */
function settle(view) {
  const { parts, step } = view;
  const last = lastOf(view);
  const now = stepOf(view);
  view.player.show({ step, last, said: `step ${step} of ${last}: ${now.name}`, playing: view.playing });
  for (const one of parts.queries.children) one.setAttribute("aria-pressed", Number(one.textContent) === view.query);
  for (const one of parts.examples.children) one.setAttribute("aria-pressed", one.textContent === view.script.name);
  const ends = view.script.name === view.data.examples[0].name && view.script.steps[last].at;
  view.picture?.style.setProperty("--am-now", ends ? now.at / ends : -1);
  parts.formula.textContent = now.formula;
  parts.words.textContent = now.words(view.query);
  parts.tables.replaceChildren(...tablesFor(now, view.query));
}

/* What moves. In this order the listing is scrolled before anything on the page has changed: that is quick. */
function* moving(view) {
  yield* view.stage.moving(view.step, view.moment, view.chosen ? view.query : Infinity);
  if (view.script.kind === "roles") view.listing.stand(stepOf(view).who);
  else view.listing.show(stepOf(view).lines, view.moment);
}

const paint = (view) => Array.from(moving(view));

function* still(view) {
  view.stage.measure();
  yield;
  yield* view.stage.still();
}

const paintStill = (view) => Array.from(still(view));

function paintAll(view) {
  paintStill(view);
  paint(view);
  paintAgainWithFonts(view);
}

const fontsAreComing = () => document.fonts.status === "loading"; // letters drawn meanwhile are stand-ins

async function paintAgainWithFonts(view) {
  if (!fontsAreComing()) return;
  await document.fonts.ready;
  paint(view);
  await anotherTask();
  paintStill(view);
  paintAgainWithFonts(view);
}

/* What a slow phone takes a tenth of a second for, in tasks that no reader has to wait for. */
async function paintInTurn(view) {
  let standIns = false;
  for (const parts of [still, moving]) {
    for (const _ of parts(view)) {
      standIns ||= fontsAreComing();
      await anotherTask();
    }
    await anotherTask();
  }
  if (fontsAreComing()) paintAgainWithFonts(view);
  else if (standIns) await paintInTurn(view); // they came in between
}

/* A movement, then a rest; while it plays the next step follows. */
function frame(view, time) {
  view.frame = undefined;
  if (!view.box.isConnected) return; // the reader has left the page
  const passed = Math.min(100, time - (view.before ?? time)); // a tab that slept goes on where it was
  view.before = time;
  if (view.moment < 1) {
    const now = stepOf(view);
    const takes = MOVE_MS[now.phase] ?? view.script.pace * (now.at - (view.script.steps[view.step - 1]?.at ?? now.at) || 1);
    const whole = takes * (view.playing ? 1 : QUICK);
    view.moment = Math.min(1, view.moment + passed / whole);
    paint(view);
  } else if (view.playing) {
    view.rested += passed;
    const ended = view.step === lastOf(view);
    if (ended) play(view, false);
    else if (view.rested >= (reduced.matches ? STILL_MS : REST_MS[view.script.kind])) go(view, view.step + 1);
  }
  wake(view);
}

function wake(view) {
  const busy = view.moment < 1 || (view.playing && view.seen);
  if (busy && view.frame === undefined) view.frame = requestAnimationFrame((time) => frame(view, time));
  if (!busy) view.before = undefined;
}

/* Go to a step. One step forward moves; any other way its end is shown at once. */
function go(view, step, who = "player") {
  const to = Math.max(0, Math.min(step, lastOf(view)));
  const forward = to === view.step + 1 || (who === "player" && to === 0);
  view.moment = forward && !reduced.matches ? 0 : 1;
  view.step = to;
  view.rested = 0;
  paint(view);
  settle(view);
  wake(view);
  if (who === "reader") keep(view);
}

function play(view, on) {
  view.playing = on;
  if (on && view.step === lastOf(view)) go(view, 0);
  view.rested = on ? REST_MS.running : 0;
  settle(view);
  wake(view);
}

// A link leads to the same step.
function keep({ linked, data, script, query, remember, step }) {
  if (linked) remember({ step, query, ...(data.examples.length > 1 && { mask: script.name }) });
}

function pressed(view, event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const { target, key } = event;
  if (target.classList.contains("am-scene-code")) return; // scrolls
  if (key === " " && target.tagName !== "BUTTON") play(view, !view.playing);
  else if (target.tagName === "INPUT") return; // the slider knows the other keys itself
  else {
    const step = { ArrowLeft: view.step - 1, ArrowRight: view.step + 1, Home: 0, End: lastOf(view) }[key];
    if (step === undefined) return;
    play(view, false);
    go(view, step, "reader");
  }
  event.preventDefault();
}

function choose(view, example) {
  view.script = scriptOf(example);
  view.query = Math.min(view.query, view.script.block - 1);
  view.stage = stage(view.parts.canvas, view.parts.still, view.script);
  view.parts.board.style.setProperty("--am-ratio", view.stage.ratio);
  view.parts.canvas.ariaLabel = `A program of ${view.script.about}. Its steps are told below.`;
  view.parts.rows.hidden = view.script.block < 2;
  view.parts.queries.replaceChildren(...Array.from({ length: view.script.block }, (_, query) => (
    button(query, () => pick(view, query), { ariaLabel: `Query ${query}` }))));
}

function pick(view, query) {
  if (query === undefined || query >= view.script.block) return;
  Object.assign(view, { query, chosen: true });
  paint(view);
  settle(view);
  keep(view);
}

const whole = (name) => (/^\d{1,4}$/.test(asked(name) ?? "") ? Number(asked(name)) : 0);

function build(box, data, linked = true) {
  const node = make("div", { className: "am-scene-frame", innerHTML: FRAME });
  const parts = partsOf(node);
  const view = {
    box, parts, data, remember: rememberLater(box), playing: false, seen: false, rested: 0, moment: 1,
    linked, step: linked ? whole("step") : 0, query: linked ? whole("query") : 0,
    chosen: linked && asked("query") !== null,
    picture: box.parentElement?.querySelector(".am-scene-over-time"), // whose line moves
  };
  parts.board.ariaLabel = "The kernel at work; arrow keys step, space plays";
  view.listing = listing(data.listing, `${data.source}, the lines of this step`);
  view.listing.element.classList.toggle("am-scene-dense", scriptOf(data.examples[0]).dense ?? false);
  parts.side.append(view.listing.element);
  const by = (act) => () => {
    play(view, false);
    act();
  };
  view.player = player({
    play: () => play(view, !view.playing),
    go(step) {
      play(view, false);
      go(view, step, "reader");
    },
  });
  parts.controls.prepend(view.player.bar);
  for (const example of data.examples) {
    parts.examples.append(button(example.name, by(() => {
      choose(view, example);
      view.step = Math.min(view.step, lastOf(view));
      paintStill(view); // what moves is painted by the step
      go(view, view.step, "reader");
    })));
  }
  if (scriptOf(data.examples[0]).kind === "roles") parts.legend.textContent = "Take out";
  parts.choice.hidden = data.examples.length < 2;
  parts.canvas.addEventListener("click", (event) => pick(view, view.stage.queryAt(event)));
  node.addEventListener("keydown", (event) => pressed(view, event));
  choose(view, data.examples.find((e) => linked && e.name === asked("mask")) ?? data.examples[0]);
  view.step = Math.min(view.step, lastOf(view));
  settle(view);
  raise(view, node);
  return view;
}

/* Resolves in a task of its own after the browser has laid out what was changed: to read a size there is quick, and
   what is done there is no part of that frame. */
const laidOut = (element) => new Promise((resolve) => {
  new IntersectionObserver((_, observer) => {
    observer.disconnect();
    resolve();
  }).observe(element);
});

/* The frame is painted out of sight, and takes the place of what stands in the box when it is done. */
async function raise(view, node) {
  const { box, parts: { board } } = view;
  await anotherTask();
  box.append(node);
  await laidOut(board);
  await paintInTurn(view);
  const poster = box.querySelector(".am-scene-poster"); // what is printed
  while (node.previousSibling) node.previousSibling.remove();
  if (poster) box.append(poster);
  box.classList.add("am-scene-live");
  await laidOut(board);
  watch(view);
}

/* Painted anew when its size or the colors change; at rest while nobody can see it. */
function watch(view) {
  new ResizeObserver(() => view.stage.fits() || paintAll(view)).observe(view.parts.board);
  const scheme = new MutationObserver(() => (view.box.isConnected ? paintAll(view) : scheme.disconnect()));
  scheme.observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
  new IntersectionObserver(([{ isIntersecting }]) => {
    view.seen = isIntersecting;
    wake(view);
  }).observe(view.parts.board);
}

export function mount(box, recording) {
  return build(box, checked(recording), false);
}

export const start = fromData({
  checked,
  build: (box, data) => build(box, data),
  fails: "The scene cannot be played",
  instead: "A picture and a table show it, too.",
});
