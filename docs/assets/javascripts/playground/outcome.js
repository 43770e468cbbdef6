/* What one problem came to: output beside what is expected, faults, and the work beside that of the page's kernel. */
import { button, make, withCode } from "../site/dom.js";
import { largest, picture, placeOf, written } from "./pictures.js";

const SHOWN = 6; // wrong numbers that are written out
const WIDTH = 180; // of a picture: two stand side by side

const table = (heads, rows, label) => {
  const head = make("tr", {}, ...heads.map((textContent) => make("th", { textContent, scope: "col" })));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((textContent) => make("td", { textContent }))));
  return make("table", { className: "am-play-table", ariaLabel: label }, make("thead", {}, head), make("tbody", {}, ...body));
};

const wrongCells = ({ wrong }) => wrong.reduce((sum, one) => sum + (one ? 1 : 0), 0);

/* One sentence: what is wrong with a problem's result. */
export function sentenceOf(result) {
  if (result.error) return placed(result.error);
  if (result.right) return "Right.";
  const bad = result.outputs.map((output) => [output, wrongCells(output)]).filter(([, cells]) => cells);
  const [first] = bad;
  if (!first) return `The numbers are right, but: ${result.faults[0].message}`;
  const [output, cells] = first;
  const what = output.name === "result" ? "the result" : output.name;
  return `${cells} of ${output.got.length} numbers of ${what} ${cells === 1 ? "is" : "are"} wrong.`;
}

export const placed = ({ line, message }) => (line ? `Line ${line}: ${message}` : message);

export function outputs(result) {
  return result.outputs.map((output) => {
    const { name, shape, got, expected, wrong } = output;
    const scale = largest(expected) || 1;
    const pair = make("div", { className: "am-play-pair" },
      picture({ label: `${name}: yours`, shape, data: got, framed: wrong, scale, width: WIDTH }),
      picture({ label: `${name}: expected`, shape, data: expected, scale, width: WIDTH }));
    const rows = [];
    for (let at = 0; at < wrong.length && rows.length < SHOWN; at += 1) {
      if (wrong[at]) rows.push([placeOf(at, shape), written(got[at]), written(expected[at])]);
    }
    const list = rows.length ? [table(["element", "yours", "expected"], rows, `First wrong numbers of ${name}`)] : [];
    return make("div", {}, pair, ...list);
  });
}

/* goTo(line): shows the line in the editor. */
export function faults(result, goTo) {
  const all = [...(result.error ? [result.error] : []), ...result.faults];
  return make("ul", { className: "am-play-faults" }, ...all.map((fault) => {
    const text = make("span", {}, ...withCode(fault.message.replace(/,? line \d+\.?$/, "")));
    if (!fault.line) return make("li", {}, text);
    return make("li", {}, button(`line ${fault.line}`, () => goTo(fault.line), { className: "am-play-line" }), " ", text);
  }));
}

const KINDS = [
  ["loads", "loads"], ["bytesLoaded", "bytes loaded"], ["sectorsLoaded", "sectors loaded"], ["stores", "stores"],
  ["bytesStored", "bytes stored"], ["sectorsStored", "sectors stored"], ["flops", "FLOPs"],
  ["chosen", "elements of tl.where"], ["largest", "elements of the largest tile"],
];
const number = (x) => (x === undefined ? "–" : x.toLocaleString("en-US"));

function beside(mine, theirs) {
  if (mine === theirs) return "the same";
  if (!mine || !theirs) return "";
  const ratio = (mine / theirs).toFixed(2);
  if (ratio !== "1.00") return `× ${ratio}`;
  return mine > theirs ? `${number(mine - theirs)} more` : `${number(theirs - mine)} fewer`;
}

/* own and page: counts of the reader's kernel and of the page's, of the program that does most. */
export function work(own, page) {
  const heads = ["per program", "yours", ...(page ? ["the page’s", "compared"] : [])];
  const counts = KINDS.map(([key, title]) => [title, own?.perProgram[key], page?.perProgram[key]]);
  const rows = [...counts.filter(([, mine, theirs]) => mine || theirs), ["programs", own?.programs, page?.programs]]
    .map(([title, mine, theirs]) => [title, number(mine), number(theirs), beside(mine, theirs)].slice(0, heads.length));
  return table(heads, rows, "Work of one program");
}
