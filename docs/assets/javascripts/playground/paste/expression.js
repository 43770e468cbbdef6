/* What a field of the launch says, as a number: Python's arithmetic over the sizes of a problem and other fields. */
import { tokens } from "../engine/lexer.js";
import { parseExpression } from "../engine/parser.js";

const FUNCTIONS = {
  cdiv: (a, b) => Math.ceil(a / b),
  pow2: (a) => 2 ** Math.ceil(Math.log2(a)),
  min: Math.min,
  max: Math.max,
  stride: ({ strides }, axis) => strides[axis],
};
const BINARY = {
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b,
  "//": (a, b) => Math.floor(a / b), "%": (a, b) => a - b * Math.floor(a / b), "**": (a, b) => a ** b,
};
const own = (table, name, what) => {
  if (!Object.hasOwn(table, name)) throw new Error(`${what} ${name} is not known here`);
  return table[name];
};

/* names: what a name stands for, in the order in which later ones may use earlier ones. Throws an Error with a sentence. */
export function valueOf(text, names) {
  const value = (node) => {
    switch (node.type) {
      case "Constant":
        return node.value;
      case "Name":
        return own(names, node.id, "the name");
      case "Tuple":
        return node.items.map(value);
      case "IfExp":
        return value(value(node.test) ? node.body : node.orelse);
      case "Unary":
        if (node.operator === "not") return !value(node.operand);
        return node.operator === "-" ? -value(node.operand) : value(node.operand);
      case "Binary":
        return own(BINARY, node.operator, "the operator")(value(node.left), value(node.right));
      case "Call":
        return own(FUNCTIONS, node.callee.id ?? node.callee.name, "the function")(...node.args.map(value));
      default:
        throw new Error(`only arithmetic is known here, not ${node.type}`);
    }
  };
  return value(parseExpression(tokens(text)));
}
