/* Numbers as the scene writes them. */
export const number = (x, digits = 2) => (
  x === null ? "−∞" : x.toFixed(digits).replace(/^-(?=0\.0+$)/, "").replace("-", "−")
);
export const bracketed = (x) => (x !== null && x < 0 ? `(${number(x)})` : number(x));
export const list = (numbers) => numbers.map((x) => number(x)).join(", ");
export const many = (n, one, more = `${one}s`) => `${n} ${n === 1 ? one : more}`;
// Drawn in every frame, and a number's first toLocaleString takes a phone a tenth of a second.
const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
export const bytes = (n) => (n < 10_000 ? `${grouped(n)} B` : `${(n / 1000).toFixed(0)} kB`);
