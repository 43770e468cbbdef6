/* Which elements one program touches, memory instruction by memory instruction, and where that differs from the
   page's kernel: the buffers as rows of cells, with a slider through the instructions. */
import { button, make } from "../site/dom.js";

const COLUMNS = 32;
const MOST = 2048; // cells of a buffer that are drawn
const CELL = 9;

/* Instruction -> {line, kind, tensor, touched: Set of elements}, of one program. */
function stepsOf(accesses, program) {
  return accesses.filter((access) => String(access.program) === String(program)).map((access) => ({
    line: access.line, kind: access.kind, tensor: access.tensor,
    touched: new Set([...access.offsets].filter((at) => at >= 0)),
  }));
}

function cellsOf(size, mine, theirs) {
  const canvas = make("canvas", { className: "am-play-cells" });
  const rows = Math.ceil(Math.min(size, MOST) / COLUMNS);
  const ratio = devicePixelRatio || 1;
  canvas.width = COLUMNS * CELL * ratio;
  canvas.height = rows * CELL * ratio;
  canvas.style.width = `${COLUMNS * CELL}px`;
  canvas.style.aspectRatio = `${COLUMNS} / ${rows}`;
  requestAnimationFrame(() => {
    const style = getComputedStyle(canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    for (let at = 0; at < Math.min(size, MOST); at += 1) {
      const [x, y] = [(at % COLUMNS) * CELL, Math.floor(at / COLUMNS) * CELL];
      const [here, there] = [mine.has(at), theirs.has(at)];
      if (here && there) pen.fillStyle = color("--am-accent");
      else if (here) pen.fillStyle = color("--am-bad");
      else pen.fillStyle = color("--am-grid");
      pen.fillRect(x, y, CELL - 1, CELL - 1);
      if (!there || here) continue;
      pen.strokeStyle = color("--am-bad"); // the page's kernel touches it, and yours does not
      pen.strokeRect(x + 1, y + 1, CELL - 3, CELL - 3);
    }
  });
  return canvas;
}

/* own and page: results of a run with trace. */
export function addresses(own, page, goTo) {
  const programs = [...new Set(own.accesses.map((access) => String(access.program)))];
  const box = make("div", { className: "am-play-addresses" });
  if (!programs.length) {
    box.textContent = "This kernel has read and written nothing.";
    return box;
  }
  const select = make("select", {}, ...programs.map((value) => make("option", { value, textContent: value })));
  const slider = make("input", { type: "range", min: 0, value: 0, ariaLabel: "Memory instruction" });
  const words = make("p", { className: "am-play-words", role: "status" });
  const place = make("div");
  let lineHere;
  const line = button("", () => goTo(lineHere), { className: "am-play-line" });

  function show() {
    const [mine, theirs] = [stepsOf(own.accesses, select.value), stepsOf(page.accesses, select.value)];
    slider.max = Math.max(mine.length - 1, 0);
    const at = Number(slider.value);
    const here = mine[at];
    const there = theirs[at]?.tensor === here.tensor ? theirs[at].touched : new Set();
    const added = [...here.touched].filter((x) => !there.has(x)).length;
    const missing = [...there].filter((x) => !here.touched.has(x)).length;
    const difference = added || missing
      ? `${added} that the page’s kernel does not touch here, ${missing} that only it touches.`
      : "The page’s kernel touches the same.";
    words.textContent = `Instruction ${at + 1} of ${mine.length} ${here.kind}s ${here.touched.size} elements of `
      + `${here.tensor}. ${difference}`;
    line.textContent = `line ${here.line}`;
    lineHere = here.line;
    const size = Math.max(-1, ...here.touched, ...there) + 1;
    place.replaceChildren(cellsOf(Math.max(size, COLUMNS), here.touched, there));
    if (size > MOST) place.append(make("p", { textContent: `The first ${MOST} elements are drawn.` }));
  }

  slider.addEventListener("input", show);
  select.addEventListener("change", () => { slider.value = 0; show(); });
  box.append(make("p", {}, make("label", {}, "Program ", select), " ", slider, " ", line), words, place);
  show();
  return box;
}
