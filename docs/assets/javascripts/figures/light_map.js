/* The light map: the first head of an attention map, written into the page by `make figures`, so that a word can be
   chosen before the widget and its data have come. The widget takes its place, and keeps what was chosen. */
const DIGITS = "₀₁₂₃₄₅₆₇₈₉";
const VISIBLE = 0.05; // smaller weights show their number on hover and focus only
const LISTED = 0.005; // smaller ones are 0.00

/* Tokens with a number where one occurs again: the₁, the₂. */
export function namesOf(tokens) {
  const times = (token, end) => tokens.slice(0, end).filter((other) => other === token).length;
  const digits = (n) => String(n).replace(/\d/g, (digit) => DIGITS[digit]);
  return tokens.map((t, j) => (times(t) > 1 ? t + digits(times(t, j + 1)) : t));
}

/* What a token attends to, or what attends to it, as a sentence. */
export function summaryOf(names, { token, direction }, line) {
  const order = [...line.keys()].sort((a, b) => line[b] - line[a]);
  const sum = (list) => list.reduce((total, j) => total + line[j], 0).toFixed(2);
  const most = order.slice(0, 3).filter((j, place) => !place || line[j] >= LISTED);
  const top = most.map((j) => `${names[j]} ${line[j].toFixed(2)}`).join(", ");
  const rest = sum(order.slice(most.length)).replace("0.00", "less than 0.01");
  const said = direction === "row"
    ? `attends to ${top}; the other ${order.length - most.length} share ${rest}.`
    : `is attended to by ${top}; in all it receives ${sum(order)}.`;
  return `“${names[token]}” ${said}`;
}

function choose(light, token) {
  const { tokens, weights } = JSON.parse(light.dataset.first);
  [...light.querySelectorAll(".am-map-tokens button")].forEach((button, j) => {
    const weight = weights[token][j];
    button.style.setProperty("--weight", weight);
    button.ariaPressed = String(j === token);
    button.classList.toggle("am-map-slight", weight < VISIBLE);
    button.lastElementChild.textContent = weight.toFixed(2);
  });
  const said = summaryOf(namesOf(tokens), { token, direction: "row" }, weights[token]);
  light.querySelector(".am-map-summary").textContent = said;
  light.parentElement.dataset.chosen = token;
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest?.(".am-map-light .am-map-tokens button");
  if (button) choose(button.closest(".am-map-light"), [...button.parentElement.children].indexOf(button));
});
