/* The panel that "Edit and run" and "Start" open: an editor with a kernel's text, a verdict for each problem, and
   what was seen on the way. One panel at a time; what runs runs in a worker. */
import { replace } from "../site/address.js";
import { button, make, withCode } from "../site/dom.js";
import { loadJson } from "../site/json.js";
import { onPage } from "../site/pages.js";
import { nextRung, solve } from "../site/progress.js";
import { addresses } from "./addresses.js";
import { NARROW, loadEditor, makeEditor } from "./editor.js";
import { Stopped, engineRoom } from "./engine_room.js";
import { problemsOf } from "./engine/recorded.js";
import { changedLine } from "./engine/verdict.js";
import { LONGEST, fromHash, toHash } from "./link.js";
import { faults, outputs, sentenceOf, work } from "./outcome.js";
import { stepping } from "./stepping.js";
import { alikeTo, tried, whole } from "./trial.js";

const STYLE = new URL("./panel.css", import.meta.url);
const SCENE_STYLE = new URL("../widgets/scene.css", import.meta.url);
const TEXTS = new URL("../../playground/", import.meta.url);
const FIGURES = new URL("../../../figures/", import.meta.url);
const PROBLEMS = new URL("../../../data/interpreter/", import.meta.url);
const KEYS = "Tab indents; Escape, then Tab, leaves the editor. ";
const HELP = "An interpreter runs the kernel and counts its work; each load and store "
  + "counts the 32-byte sectors that it touches, once. It does not measure time, and knows no races and no tensor-core rounding.";

const styled = new Map(); // address -> {link, there: promise of its style}
let opened; // the panel that is on the page
const drafts = new Map(); // what a reader has written and closed: subject's id -> text

function style({ href } = STYLE) {
  if (!styled.get(href)?.link.isConnected) { // another page's head came without it
    const link = make("link", { rel: "stylesheet", href });
    const there = new Promise((resolve) => {
      for (const event of ["load", "error"]) link.addEventListener(event, resolve, { once: true });
    });
    document.head.append(link);
    styled.set(href, { link, there });
  }
  return styled.get(href).there;
}

/* What was fetched, by address. */
const known = new Map();
function fetched(url) {
  if (!known.has(url.href)) {
    const value = loadJson(url);
    known.set(url.href, value);
    value.catch(() => known.delete(url.href)); // the next click tries again
  }
  return known.get(url.href);
}

/* A room's kernels and exercises. */
function roomOf(name) {
  if (!/^[a-z_]+$/.test(name)) throw new Error(`There is no room ${name}.`);
  return fetched(new URL(`${name}.json`, TEXTS));
}

/* What a kernel is tried on, {problems, file}. It is not there yet when the editor is. */
async function recordedOf(room, kernel, { problems }) {
  const file = await fetched(new URL(`${room}/${problems}.json`, PROBLEMS));
  return { file, problems: problemsOf(file).filter((problem) => problem.kernels.includes(kernel)) };
}

/* What a button is for: {name, text, rest} of the page's kernel, what the reader starts with, and what judges it. */
async function subjectOf({ kernel, exercise }) {
  if (kernel?.startsWith("pasted")) {
    return (await import("./paste.js")).pasted(kernel, {
      problems: () => fetched(new URL("flash_attention/pasted.json", PROBLEMS)),
      example: async () => (await roomOf("tiled_attention")).exercises.rescale.stub,
    });
  }
  const [name] = (exercise ?? kernel).split(/[/:]/);
  const room = await roomOf(name);
  const task = exercise && room.exercises[exercise.split(":")[1]];
  if (exercise && !task) throw new Error(`There is no exercise ${exercise}.`);
  const path = task ? task.kernel : kernel.slice(name.length + 1);
  const found = Object.hasOwn(room.kernels, path) ? room.kernels[path] : undefined;
  if (!found) throw new Error(`There is no kernel ${path} in ${name}.`);
  return {
    ...found, name: path.split(":")[1], id: `${name}/${path}`, draft: exercise ?? kernel, exercise, task,
    start: task ? task.stub : found.text, room: name,
    recorded: () => recordedOf(name, path.split(":")[1], found),
  };
}

/* Opens below what the button belongs to; pressed again, closes. */
export async function open(from, text) {
  if (from.dataset.question) return ask(from);
  if (opened?.button === from && text === undefined) return close();
  loadEditor().catch(() => {}); // by far the longest on its way, so it sets out first; making it tells of a failure
  const [subject] = await Promise.all([subjectOf(from.dataset), style()]);
  if (!from.isConnected) return undefined;
  close();
  return show(from, subject, text);
}

function complain(textContent) {
  document.querySelector(".md-content__inner")?.prepend(make("p", { className: "am-missing", textContent }));
}

/* Opens the editor with what a link holds, at the top of the page where its listing is no longer shown. */
export async function openLink(hash) {
  const line = make("p");
  try {
    const { kernel, text } = await fromHash(hash);
    let from = [...document.querySelectorAll(".am-edit[data-kernel]")].find((b) => b.dataset.kernel === kernel.split("?")[0]);
    if (from) from.dataset.kernel = kernel;
    else {
      from = make("button", { type: "button", className: "am-edit", textContent: "Edit and run" });
      from.dataset.kernel = kernel;
      line.append(from);
      document.querySelector(".md-content__inner").prepend(line);
    }
    await open(from, text);
  } catch (error) {
    line.remove();
    complain(error.message);
  }
}

function close() {
  if (!opened) return;
  const { button: from, box, end } = opened;
  const inside = box.contains(document.activeElement);
  opened = undefined;
  end();
  box.remove();
  from.setAttribute("aria-expanded", "false");
  if (inside) from.focus();
}
onPage(close); // another page: the worker ends with its panel

const nameOf = ({ name }) => name.replaceAll("_", " ");

function show(from, subject, text) {
  const room = engineRoom(subject.worker);
  const rung = from.closest(".am-exercise");
  const title = rung ? rung.firstElementChild.firstChild.textContent : subject.task?.title ?? subject.name;
  const draft = drafts.get(subject.draft);
  const box = make("section", { className: "am-play", ariaLabel: `Edit and run: ${title}` });
  const status = make("p", { className: "am-play-status", role: "status" });
  const verdicts = make("ol", { className: "am-play-verdicts" });
  const mistake = make("div", { className: "am-play-mistake" });
  const atWork = make("div", { className: "am-play-at-work" });
  const detail = make("div", { className: "am-play-detail" });
  const place = make("div", { className: "am-play-editor", textContent: "The editor is on its way …" });
  let editor;
  let running = false;
  let recorded; // what the last run was judged on
  let latest = Promise.resolve(); // the run that was asked for last
  const ofPage = new Map(); // number of a problem -> promise of what the page's kernel does there

  const goTo = (line) => {
    editor.reveal(line, { select: true });
    editor.focus();
  };
  const say = (words) => status.replaceChildren(...withCode(words));

  function run() {
    if (running || !editor) return;
    const source = editor.text();
    for (const part of [verdicts, mistake, atWork, detail]) part.replaceChildren();
    editor.mark([]);
    if (source.length > LONGEST) {
      say(`${source.length.toLocaleString("en-US")} characters are more than a kernel has: it is not run.`);
      return;
    }
    busy(true);
    latest = judged(source).catch((error) => say(error instanceof Stopped ? "Stopped." : error.message)).finally(() => busy(false));
  }

  async function judged(source) {
    say("The problems are on their way …");
    recorded = await subject.recorded(source, room);
    const found = await tried(room, source, {
      kernel: subject,
      recorded,
      begins: (problem, at) => say(`Problem ${at + 1} of ${recorded.problems.length}: ${nameOf(problem)}`),
      ends: addVerdict,
    });
    say(subject.says?.(found) ?? found.says);
    if (found.results.length) conclude(found);
    else point(found.error);
    const isLow = status.getBoundingClientRect().top > 0.7 * innerHeight; // below hints, on a phone below a whole kernel
    if (isLow) status.scrollIntoView({ block: "center" });
  }

  function busy(is) {
    running = is;
    parts.run.hidden = is;
    parts.stop.hidden = !is;
    box.setAttribute("aria-busy", String(is));
  }

  function point({ line }) {
    if (!line) return;
    editor.mark([{ line, kind: "fault" }]);
    editor.reveal(line);
  }

  function addVerdict(result, at) {
    const [className, sign, word] = result.right ? ["am-right", "✓", "right"] : ["am-wrong", "✗", "wrong"];
    const choose = button("", () => detailOf(result, at), { className, ariaLabel: `${nameOf(result)}: ${word}` });
    choose.append(make("b", { textContent: sign }), ` ${nameOf(result)}`);
    verdicts.append(make("li", {}, choose));
    if (verdicts.querySelectorAll(".am-wrong").length === 1 && !result.right) detailOf(result, at);
  }

  function conclude({ results, mistake: named }) {
    const lines = new Map();
    for (const { error, faults: found } of results) {
      for (const { line } of [...(error ? [error] : []), ...found]) if (line) lines.set(line, "fault");
    }
    if (named) nameMistake(named, lines);
    if (subject.scene) atWork.append(later("See it at work, on the input of the page’s scene", () => sceneOf(editor.text())));
    const right = results.every((result) => result.right);
    if (subject.race && right) atWork.append(later("Race it: the least time it can take on a measured GPU", () => raced(editor.text())));
    if (right) detailOf(results[0], 0);
    if (right && subject.exercise) passed();
    else if (subject.exercise) atWork.append(answer("Show a tested answer"));
    editor.mark([...lines].map(([line, kind]) => ({ line, kind })));
  }

  function nameMistake(named, lines) {
    const sentence = make("p", {}, ...withCode(named.sentence));
    if (named.line && (subject.task?.bug ?? true)) { // an exercise's text differs in more lines than the wrong one
      sentence.append(" ", button(`line ${named.line}`, () => goTo(named.line), { className: "am-play-line" }));
      if (!subject.exercise && !lines.has(named.line)) lines.set(named.line, "mistake");
    }
    const alike = alikeTo(named);
    const others = alike.length
      ? [make("p", { textContent: `On these problems it cannot be told from: ${alike.join("; ")}.` })] : [];
    const what = subject.task?.bug // to find it is the task
      ? make("details", {}, make("summary", { textContent: "Name the mistake" }), sentence, ...others)
      : make("div", {}, make("strong", { textContent: `The mistake: ${named.name}` }), sentence, ...others);
    mistake.replaceChildren(what);
  }

  const answer = (textContent) => make("details", {}, make("summary", { textContent }),
    make("pre", {}, make("code", { textContent: subject.text })));

  function passed() {
    solve(subject.exercise);
    mistake.replaceChildren(make("p", { className: "am-play-solved" }, "Solved. ", nextRung()), answer("Compare with the tested answer"));
  }

  /* The page's scene, played by the reader's text. */
  async function sceneOf(source) {
    const at = (file) => fetched(new URL(`${subject.room}/${file}.json`, FIGURES));
    const [page, launches, { mount }, { recordingOf }] = await Promise.all([
      at("scene_steps"), at("scene_launches"), import("../widgets/scene.js"), import("./at_work.js"), style(SCENE_STYLE),
    ]);
    const recording = await recordingOf({
      source, kernel: subject.name, page, launches,
      run: (problem, options) => room.run(whole(subject, source), problem, options),
    });
    const stage = make("div", { className: "am-scene" });
    mount(stage, recording);
    return stage;
  }

  const raced = async (source) => (await import("./race.js")).race({
    source: whole(subject, source), page: whole(subject, subject.text), kernel: subject.name, launch: room.launch,
    races: await fetched(new URL("scoreboard/race_launches.json", FIGURES)),
  });

  /* What a text does on a problem, told in full. */
  const runs = async (source, at, options) => {
    const { problems } = recorded ?? await subject.recorded();
    return room.run(whole(subject, source), problems[at], options);
  };

  function countsOfPage(at) {
    if (!ofPage.has(at)) {
      const counts = runs(subject.text, at).then((result) => result.counts);
      ofPage.set(at, counts.catch(() => { ofPage.delete(at); })); // it was stopped: another time
    }
    return ofPage.get(at);
  }

  /* Run the page's kernel on each problem while the reader reads: its counts stand beside those of the reader's,
     and an engine that has run once is several times as quick. */
  async function warm() {
    const { problems } = await subject.recorded();
    for (const at of problems.keys()) {
      if (running || !box.isConnected) return; // a run goes first
      await countsOfPage(at);
    }
  }

  async function detailOf(result, at) {
    for (const [number, item] of [...verdicts.children].entries()) {
      item.firstChild.setAttribute("aria-pressed", String(number === at));
    }
    const source = editor.text();
    const shown = [make("h3", { textContent: `${nameOf(result)}: ${result.title}` }), make("p", {}, ...withCode(sentenceOf(result)))];
    if (result.error || result.faults.length) shown.push(faults(result, goTo));
    if (!result.error) shown.push(...outputs(result));
    const counts = make("div");
    shown.push(counts, subject.text ? later("Addresses, instruction by instruction", async () => {
      const own = await runs(source, at, { trace: true });
      return addresses(own, await runs(subject.text, at, { trace: true }), goTo);
    }) : "", later("Step through one program", () => stepping({
      programs: result.counts?.programs ?? 1,
      stepsOf: async (program) => (await runs(source, at, { variables: { program: [program, 0, 0] } })).steps,
      at(line) {
        editor.mark([{ line, kind: "step" }]);
        editor.reveal(line);
      },
    })));
    detail.replaceChildren(...shown);
    if (result.error) return;
    await latest; // the other verdicts come first
    const theirs = subject.text ? await countsOfPage(at) : undefined;
    if (counts.isConnected) counts.replaceChildren(work(result.counts, theirs));
  }

  /* A fold whose content is made when it is opened for the first time. */
  function later(textContent, build) {
    const fold = make("details", {}, make("summary", { textContent }));
    fold.addEventListener("toggle", async () => {
      if (!fold.open || fold.dataset.made) return;
      fold.dataset.made = "true";
      try {
        fold.append(await build());
      } catch (error) {
        fold.append(make("p", { textContent: error.message }));
      }
    });
    return fold;
  }

  function unfold() {
    editor.fold();
    editor.focus();
  }

  /* Of an exercise's own text the loop can be all that shows. */
  function foldFrame() {
    editor.fold(subject.task?.shown);
    frame.hidden = !subject.task?.shown;
  }

  function start(source) {
    editor.replace(source);
    foldFrame();
    say("");
    for (const part of [verdicts, mistake, atWork, detail]) part.replaceChildren();
  }

  async function share(event) {
    const address = new URL(location.href);
    address.hash = await toHash(subject.id, editor.text());
    replace(address);
    const done = await navigator.clipboard.writeText(address.href).then(() => true, () => false);
    event.target.textContent = done ? "Copied" : "The link is in the address bar";
    setTimeout(() => { event.target.textContent = "Copy link"; }, 2000);
  }

  /* The exercise's hints, one at a time, below its task. */
  const hints = [...rung?.querySelectorAll(":scope > details") ?? []];
  const task = make("div", { className: "am-play-task", tabIndex: -1 }, rung?.querySelector(".am-task").cloneNode(true) ?? "");
  function hint() {
    const [name, ...words] = hints.shift().cloneNode(true).children;
    const said = make("p", {}, make("strong", { textContent: name.textContent }));
    task.append(said, ...words);
    parts.hint.hidden = !hints.length;
    task.tabIndex = 0; // it may scroll
    task.focus();
    task.scrollTop = said.offsetTop - task.offsetTop;
  }

  const parts = {
    hint: button("Hint", hint, { hidden: !hints.length }),
    run: button(subject.task ? "Check" : "Run", run, { className: "am-play-run", title: "Ctrl or Cmd and Enter" }),
    stop: button("Stop", () => room.stop(), { hidden: true, className: "am-play-run" }),
  };
  const bar = make("div", { className: "am-play-bar" },
    make("strong", { textContent: title }), parts.run, parts.stop, parts.hint,
    subject.example
      ? button("Example", async () => start(await subject.example()))
      : button(subject.task ? "Start over" : "As on the page", () => start(subject.start)),
    ...(subject.task ? [] : [button("Copy link", share)]),
    button("Close", close));
  subject.form?.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  const help = make("p", { className: "am-play-help" }, make("span", { textContent: KEYS }), HELP);
  const top = make("div", { className: "am-play-top" }, bar, task);
  const frame = button("Show the whole kernel", unfold, { className: "am-play-line", hidden: true });
  const seen = make("div", { className: "am-play-seen" }, status, verdicts, mistake, subject.launch ?? "", detail, help);
  box.append(top, make("div", { className: "am-play-beside" }, place, seen), atWork);
  const block = from.closest(".highlight, .am-exercise, .am-file, .am-kernel") ?? from;
  block.after(box);
  from.setAttribute("aria-expanded", "true");
  opened = {
    button: from, box, end() {
      room.end();
      if (!editor) return;
      if (editor.text() === subject.start) drafts.delete(subject.draft);
      else drafts.set(subject.draft, editor.text());
      editor.remove();
    },
  };

  const label = `Source of ${subject.name}. Tab indents; press Escape, then Tab, to leave the editor.`;
  return makeEditor({ text: text ?? draft ?? subject.start, label, run, unfolded() { frame.hidden = true; } }).then((made) => {
    if (!box.isConnected) return made.remove();
    editor = made;
    place.replaceChildren(editor.box, frame);
    if (editor.text() === subject.start) foldFrame();
    const gap = subject.task && !subject.task.bug && changedLine(subject.start, subject.text);
    const first = gap || subject.sections[from.dataset.section]?.[0];
    if (first && text === undefined && draft === undefined) editor.reveal(first, { select: true, top: true });
    else if (text === undefined && draft) say("This is your text from before.");
    if (text !== undefined) say("This kernel came with the link and has not run. Read it, then press Run.");
    editor.focus();
    box.scrollIntoView({ block: matchMedia(NARROW).matches ? "start" : "nearest" });
    if (subject.text) warm().catch(() => {}); // what is missing is told when it is needed
    return undefined;
  }).catch((error) => say(`The editor could not be loaded: ${error.message}`));
}

/* A question is answered in a line of text; blanks do not count. */
async function ask(from) {
  if (from.nextElementSibling?.matches(".am-play-question")) return;
  await style();
  const { exercises } = await loadJson(new URL(`${from.dataset.exercise.split(":")[0]}.json`, TEXTS));
  const { answers, explanation, format, wrong } = exercises[from.dataset.exercise.split(":")[1]];
  const plain = (text) => text.toLowerCase().replaceAll(/[\s()[\]_]/g, "");
  const field = make("input", { type: "text", autocomplete: "off", placeholder: format ?? "" });
  const words = make("p", { className: "am-play-status", role: "status" });
  const solution = make("details", {}, make("summary", { textContent: "Show the solution" }),
    make("p", {}, ...withCode(`${answers[0]}. ${explanation}`)));
  const form = make("form", { className: "am-play-question" },
    make("label", {}, "Your answer ", field), make("button", { textContent: "Check" }), words);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const among = (list) => list.some((answer) => plain(answer) === plain(field.value));
    const right = among(answers);
    const usual = wrong?.find((one) => among(one.answers));
    const kind = /^[\d.]+$/.test(answers[0]) && !/\d/.test(field.value) ? "The answer is a number." : "";
    words.replaceChildren(...withCode(right ? `Right. ${explanation}` : `Not yet. ${usual?.says ?? kind}`.trim()));
    if (right) solve(from.dataset.exercise);
    else if (!form.querySelector("details")) form.append(solution);
  });
  from.after(form);
  field.focus();
}
