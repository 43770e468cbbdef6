/* A number as people write sizes: 4096, 4,096, 1e6, 128k. k is 1,024 and M its square; NaN for anything else. */
const WRITTEN = /^([-−]?)(\d+|\d{1,3}(?:,\d{3})+)(\.\d+)?(e\d{1,3})? ?([km]?)$/i;
const UNITS = { "": 1, k: 1024, m: 1024 ** 2 };

export function quantity(text) {
  const [all, sign, whole, part = "", power = "", unit] = WRITTEN.exec(text.trim()) ?? [];
  if (all === undefined) return NaN;
  return (sign ? -1 : 1) * Number(whole.replaceAll(",", "") + part + power) * UNITS[unit.toLowerCase()];
}

/* In the text fields of a frame, what was read as a number stands there as one once it is entered. */
export function writtenOut(frame) {
  frame.addEventListener("change", ({ target }) => {
    const value = target.type === "text" ? quantity(target.value) : NaN;
    if (Number.isSafeInteger(value) && value > 0) target.value = value;
  });
}
