/* What the search box answers: sections of the site, the best first, each with a line of its text. The index lists every
   section (snippets/_site/search.py); MiniSearch finds words in it, misspelled and unfinished ones too. */
import { button, make } from "../site/dom.js";
import { loadJson } from "../site/json.js";
import { alsoSaid, askedFor, wordsOf } from "./words.js";

const LIBRARY = "../../vendor/minisearch-7.2.0.js";
const FIELDS = { title: 5, anchor: 3, tags: 3, page: 2.5, text: 1, rest: 0.6, code: 0.5 };
const TOPICS = new Set(["title", "anchor", "tags"]);
const MOST = 12; // results
const OF_A_PAGE = 3;
const LINE = 24; // words
const EXAMPLES = ["out of memory", "sliding window mask", "logsumexp"];
const FIRST_WINS = 0.2; // how much more a section counts at the series' beginning, where words are explained
const NAMED = 1.8; // how much more one counts whose whole title is the question
const IN_ORDER = 0.4; // how much more one counts that has the question's words in their order
const MENTIONED = 0.5; // how much what is not covered counts if its title has no word of the question

/* How many letters may be wrong, beside two that changed places. */
const wrongLetters = (word) => (/\d/.test(word) || word.length < 5 ? 0 : word.length < 8 ? 1 : 2);
const swapped = (word) => [...word].slice(1).map((letter, at) => word.slice(0, at) + letter + word[at] + word.slice(at + 2));

function indexed(MiniSearch, sections) {
  const index = new MiniSearch({ fields: Object.keys(FIELDS), tokenize: wordsOf, processTerm: (term) => term });
  index.addAll(sections.map((section, id) => ({ id, anchor: section.location.split("#")[1] ?? "", ...section })));
  return index;
}

/* Where a word is, and how well it is met there: as it is, as pages say it, as the beginning of another; where it is not,
   as what it may be a misspelling of. */
function met(index, word, also) {
  const best = new Map();
  const take = (terms, weight, options = {}) => {
    for (const term of terms) {
      for (const hit of index.search(term, { tokenize: (text) => [text], boost: FIELDS, ...options })) {
        const score = hit.score * weight;
        if (!(best.get(hit.id)?.score >= score)) best.set(hit.id, { ...hit, score });
      }
    }
    return best.size;
  };
  const itself = take([word], 1);
  const known = take([...alsoSaid(word), ...also], 0.7);
  if (word.length > 2) take([word], known ? 0.4 : 1, { prefix: true });
  take([word], known ? 0.25 : 1, { fuzzy: wrongLetters(word) });
  if (!known) take(swapped(word), 1);
  const isTopic = [...best.values()].some(({ match }) => Object.values(match).flat().some((field) => TOPICS.has(field)));
  const top = Math.max(...[...best.values()].map(({ score }) => score));
  return { best, top, rare: (isTopic ? 1 : 0.3) * Math.log(1 + index.documentCount / (itself || best.size)) };
}

/* Of the pairs of neighbors in a question, the share that a section has. */
const saying = new WeakMap();
function inOrder(section, words) {
  if (!saying.has(section)) saying.set(section, ` ${[...wordsOf(section.title), ...wordsOf(section.text)].join(" ")} `);
  const pairs = words.slice(1).map((word, at) => ` ${words[at]} ${word} `);
  return pairs.filter((pair) => saying.get(section).includes(pair)).length / (pairs.length || 1);
}

/* Sections that answer, the best first: those that meet more of the question, where a rarer word is more of it, and less
   what no title has; the forms of a name share what it counts. A word that is elsewhere on its page helps a section, and
   so do neighbors that it has as neighbors; what is not covered has to be asked for by name. And what no section has. */
function found(index, sections, question) {
  const words = askedFor(question);
  const asked = words.map((word, at) => ({ word, ...met(index, word, [words[at - 1] + word, word + words[at + 1]]) }))
    .filter(({ best }) => best.size);
  const names = question.split(/\s+/).map(wordsOf);
  const isNamed = ({ title }) => title.split(", ").some((name) => `${askedFor(name)}` === `${words}`);
  const score = new Map();
  let whole = 0;
  for (const id of asked.flatMap(({ best }) => [...best.keys()])) score.set(id, { score: 0, share: 0, named: 0, terms: new Set() });
  for (const { word, best, top, rare } of asked) {
    const name = names.find((forms) => forms.includes(word));
    const forms = asked.filter((other) => name.includes(other.word)).length;
    const counts = (word.length === 1 ? 0.3 : 1) * rare / forms; // a letter tells little
    const pages = new Set([...best.keys()].map((id) => sections[id].page));
    whole += counts;
    for (const [id, sum] of score) {
      const hit = best.get(id);
      if (!hit && !pages.has(sections[id].page)) continue;
      sum.score += counts * (hit ? 0.2 + 0.8 * (hit.score / top) : 0.2);
      sum.share += counts * (hit ? 1 : 0.7);
      if (Object.values(hit?.match ?? {}).flat().includes("title")) sum.named += counts;
      for (const term of hit?.terms ?? []) sum.terms.add(term);
    }
  }
  const hits = [...score].map(([id, { score: sum, share, named, terms }]) => ({
    section: sections[id], terms, score: sum * (share / whole) ** 2 * (1 + FIRST_WINS * (1 - id / sections.length))
      * Math.sqrt(sections[id].boost ?? 1) * (isNamed(sections[id]) ? NAMED : 1) * (1 + IN_ORDER * inOrder(sections[id], words))
      * (sections[id].nearest ? MENTIONED + (1 - MENTIONED) * (named / whole) : 1),
  })).toSorted((one, other) => other.score - one.score);
  const somewhere = new Set(asked.map(({ word }) => word));
  const isUnknown = (word) => words.includes(wordsOf(word)[0]) && !wordsOf(word).some((part) => somewhere.has(part));
  return { hits, unknown: question.split(/\s+/).filter(isUnknown) };
}

/* What says that the site does not cover something is followed by the section that comes nearest. */
function withNearest([first, ...others], sections) {
  const nearest = first && sections.find(({ location }) => location === first.section.nearest);
  if (!nearest) return first ? [first, ...others] : [];
  return [first, { section: nearest, terms: first.terms, isNearest: true }, ...others.filter(({ section }) => section !== nearest)];
}

function notTooManyOfAPage(hits) {
  const count = new Map();
  return hits.filter(({ section }) => {
    count.set(section.page, (count.get(section.page) ?? 0) + 1);
    return count.get(section.page) <= OF_A_PAGE;
  }).slice(0, MOST);
}

/* The words of a text around most of those that were asked for, which are marked. */
function line(text, terms) {
  const words = text.split(/\s+/);
  const right = words.map((word) => wordsOf(word).some((part) => terms.has(part)));
  const inReach = (at) => new Set(words.slice(at, at + LINE).filter((_, n) => right[at + n]).flatMap(wordsOf)).size;
  const starts = right.flatMap((is, at) => (is ? [Math.max(0, at - 4)] : []));
  const first = starts.reduce((best, at) => (inReach(at) > inReach(best) ? at : best), 0);
  const shown = words.slice(first, first + LINE).map((word, n) => (right[first + n] ? make("mark", {}, word) : word));
  return [first ? "… " : "", ...shown.flatMap((word) => [word, " "]), first + LINE < words.length ? "…" : ""];
}

function result({ section, terms, isNearest }, root) {
  const marked = section.title.split(/(\s+)/).map((word) => (
    wordsOf(word).some((part) => terms.has(part)) ? make("mark", {}, word) : word));
  const parts = [make("strong", {}, ...marked)];
  const above = [isNearest && "Nearest", section.page !== section.title && section.page].filter(Boolean).join(": ");
  if (above) parts.unshift(make("small", {}, above));
  if (section.text) parts.push(make("span", {}, ...line(section.text, terms)));
  return make("li", { className: "am-hit" }, make("a", { href: new URL(section.location, root).href }, ...parts));
}

function said(hits, all, unknown) {
  const missing = unknown.length ? `No page has “${unknown.join("” or “")}”. ` : "";
  if (!hits.length) return `${missing || "Nothing found. "}Try fewer or other words.`;
  if (hits[0].section.nearest) return `${missing}Not covered here; the section that comes nearest is below`;
  if (hits.length === all) return `${missing}${all} ${all === 1 ? "section" : "sections"}`;
  return `${missing}The best ${hits.length} of ${all} sections`;
}

export async function start(box) {
  const list = document.querySelector("#am-hits");
  const status = document.querySelector(".md-search-result__meta");
  const shown = document.querySelector("#__search");
  const address = new URL(box.form.dataset.index, document.baseURI);
  const root = new URL("..", address);
  const [{ default: MiniSearch }, sections] = await Promise.all([import(LIBRARY), loadJson(address)]);
  const index = indexed(MiniSearch, sections);

  function answer() {
    const question = box.value.trim();
    const { hits: every, unknown } = question ? found(index, sections, question) : { hits: [], unknown: [] };
    const hits = notTooManyOfAPage(withNearest(every, sections));
    list.replaceChildren(...(question ? hits.map((hit) => result(hit, root)) : EXAMPLES.map(example)));
    list.dataset.question = question;
    status.textContent = question ? said(hits, every.length, unknown) : status.dataset.asks;
  }

  function example(question) {
    return make("li", { className: "am-hit" }, button(question, () => {
      box.value = question;
      answer();
      box.focus();
    }));
  }

  const links = () => [...list.querySelectorAll("a")];
  function move(event) {
    if (event.key === "Enter" && event.target === box) {
      event.preventDefault();
      links()[0]?.click();
    }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const stops = [box, ...links()];
    const at = stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    stops.at(at % stops.length).focus();
  }

  box.addEventListener("input", answer);
  box.form.addEventListener("submit", (event) => event.preventDefault());
  box.form.addEventListener("reset", () => setTimeout(answer));
  box.closest(".md-search").addEventListener("keydown", move);
  list.addEventListener("click", (event) => {
    if (!event.target.closest("a")) return;
    shown.checked = false;
    shown.dispatchEvent(new Event("change"));
  });
  answer();
}
