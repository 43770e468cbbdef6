/* What the search box answers: sections of the site, the best first, each with a line of its text. The index lists every
   section (snippets/_site/search.py); MiniSearch finds words in it, misspelled and unfinished ones too. */
import { make } from "../site/dom.js";
import { loadJson } from "../site/json.js";
import { alsoSaid, askedFor, wordsOf } from "./words.js";

const LIBRARY = "../../vendor/minisearch-7.2.0.js";
const FIELDS = { title: 7, page: 2.5, text: 1, rest: 0.6, code: 0.5 };
const MOST = 12; // results
const OF_A_PAGE = 3;
const LINE = 24; // words
const FIRST_WINS = 0.35; // how much more a section counts on the series' first page, where words are explained

/* How many letters may be wrong. */
const wrongLetters = (word) => (/\d/.test(word) || word.length < 5 ? 0 : word.length < 8 ? 1 : 2);

function indexed(MiniSearch, sections) {
  const index = new MiniSearch({ fields: Object.keys(FIELDS), tokenize: wordsOf, processTerm: (term) => term });
  index.addAll(sections.map((section, id) => ({ id, ...section })));
  return index;
}

/* Sections and the words in them that answer: one that has all that was asked for before one that has a part. */
function found(index, sections, question) {
  const asked = askedFor(question);
  const score = new Map();
  for (const word of asked) {
    const best = new Map();
    for (const [term, weight] of [[word, 1], ...alsoSaid(word).map((other) => [other, 0.5])]) {
      const hits = index.search(term, {
        tokenize: (text) => [text],
        boost: FIELDS,
        prefix: term.length > 2,
        fuzzy: wrongLetters(term),
        weights: { fuzzy: 0.25, prefix: 0.4 },
      });
      for (const hit of hits) {
        const known = best.get(hit.id);
        if (known && known.score >= hit.score * weight) continue;
        best.set(hit.id, { score: hit.score * weight, terms: hit.terms });
      }
    }
    const top = Math.max(...[...best.values()].map((hit) => hit.score), 1e-9);
    const counts = word.length === 1 ? 0.3 : 1; // a letter tells little
    for (const [id, hit] of best) {
      const sum = score.get(id) ?? { score: 0, share: 0, terms: new Set() };
      sum.score += counts * (0.35 + 0.65 * (hit.score / top)) * Math.log(2 + sections.length / best.size);
      sum.share += counts;
      for (const term of hit.terms) sum.terms.add(term);
      score.set(id, sum);
    }
  }
  const whole = asked.reduce((sum, word) => sum + (word.length === 1 ? 0.3 : 1), 0) || 1;
  return [...score].map(([id, { score: sum, share, terms }]) => ({
    section: sections[id], terms, score: sum * (share / whole) ** 2 * (1 + FIRST_WINS * (1 - id / sections.length))
      * Math.sqrt(sections[id].boost ?? 1),
  })).toSorted((one, other) => other.score - one.score);
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
  const starts = right.map((is, at) => (is ? Math.max(0, at - 4) : -1)).filter((at) => at >= 0);
  const first = starts.reduce((best, at) => (inReach(at) > inReach(best) ? at : best), starts[0] ?? 0);
  const shown = words.slice(first, first + LINE).map((word, n) => (right[first + n] ? make("mark", {}, word) : word));
  return [first ? "… " : "", ...shown.flatMap((word) => [word, " "]), first + LINE < words.length ? "…" : ""];
}

function result({ section, terms }, root) {
  const marked = section.title.split(/(\s+)/).map((word) => (
    wordsOf(word).some((part) => terms.has(part)) ? make("mark", {}, word) : word));
  const parts = [make("strong", {}, ...marked)];
  if (section.page !== section.title) parts.unshift(make("small", {}, section.page));
  parts.push(make("span", {}, ...line(section.text || section.page, terms)));
  return make("li", { className: "am-hit" }, make("a", { href: new URL(section.location, root).href }, ...parts));
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
    const every = question ? found(index, sections, question) : [];
    const hits = notTooManyOfAPage(every);
    list.replaceChildren(...hits.map((hit) => result(hit, root)));
    list.dataset.question = question;
    if (!question) status.textContent = "Type to search";
    else if (!hits.length) status.textContent = "Nothing found. Try fewer or other words.";
    else status.textContent = hits.length === 1 ? "1 section" : `The best ${hits.length} of ${every.length} sections`;
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
