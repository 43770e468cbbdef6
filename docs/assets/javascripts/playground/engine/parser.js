/* The kernels of a Python file as syntax trees.

   A parser of its own, 5 kB with its lexer. Lezer's Python grammar and runtime, which the editor has, are 33 kB
   (@lezer/python 1.1.19, bundled and minified alone; both gzipped): nearly all that the engine may weigh. The
   worker would have to load them a second time, and they recover from errors instead of naming them; their tree
   would still have to be made into one of statements and operators. The rest of a file, its launcher for one, is
   passed over: what is no kernel may use all of Python. */
import { KernelError } from "./errors.js";
import { tokens } from "./lexer.js";

const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from " +
    "global if import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" "),
);
const DEEPEST = 200; // brackets, as in Python
const COMPARE = new Set(["==", "!=", "<", "<=", ">", ">="]);
const BINARY = [["|"], ["^"], ["&"], ["<<", ">>"], ["+", "-"], ["*", "/", "//", "%", "@"]]; // loosest first
const AUGMENTED = /^(?:\*\*|\/\/|>>|<<|[-+*/%&|^@])=$/;
const STATEMENTS = {
  break: "Break", continue: "Continue", import: "Import", from: "ImportFrom", del: "Delete", raise: "Raise",
  global: "Global", nonlocal: "Nonlocal", try: "Try", with: "With", class: "ClassDef", async: "AsyncFunctionDef",
  yield: "Yield",
};

class Parser {
  constructor(list) {
    this.list = list;
    this.at = 0;
    this.depth = 0; // expressions within each other
  }
  get token() {
    return this.list[this.at];
  }
  fail(message = "invalid syntax", token = this.token) {
    throw new KernelError(message, "syntax", token.line, token.column);
  }
  is(text) {
    const { kind } = this.token;
    return this.token.text === text && (kind === "op" || kind === "name");
  }
  take(text) {
    if (!this.is(text)) return false;
    this.at += 1;
    return true;
  }
  need(text) {
    if (!this.take(text)) this.fail(text === ":" ? "expected ':'" : undefined);
  }
  named() {
    return this.token.kind === "name" && !KEYWORDS.has(this.token.text);
  }
  name() {
    if (!this.named()) this.fail();
    return this.list[this.at++].text;
  }
  node(type, fields, token) {
    return { type, line: token.line, column: token.column, ...fields };
  }

  // Files.

  file() {
    const functions = [];
    const classes = []; // of named tuples
    const constants = new Map(); // name → expression
    const imports = new Map(); // name → what it is, "triton.language"
    while (this.token.kind !== "end") {
      if (this.token.kind === "indent") this.fail("unexpected indent");
      if (this.is("@")) {
        const kernel = this.decorated();
        if (kernel) functions.push(kernel);
        continue;
      }
      if (STATEMENTS[this.token.text]?.startsWith("Import")) this.imported(imports);
      else if (this.is("class")) classes.push(...this.namedTuple());
      else for (const { name, value } of this.declared()) if (value) constants.set(name, value);
    }
    return { functions, classes, constants, imports };
  }
  /* `name = value` or `name: type = value`, with the value's tokens; all else is passed over. */
  declared() {
    const { at, token } = this;
    const named = this.named();
    this.pass();
    const line = this.list.slice(at, this.at);
    if (!named || !["=", ":"].includes(line[1].text)) return [];
    const sign = line.findIndex(({ text }) => text === "=");
    return [{ name: token.text, value: sign > 0 ? line.slice(sign + 1) : null }];
  }
  /* A class of named tuples: its parameters are its fields. Other classes, and methods, are passed over. */
  namedTuple() {
    const { at, token } = this;
    this.pass();
    const [, { text: name }, ...rest] = this.list.slice(at, this.at);
    if (!/^\(([\w.]+\.)?NamedTuple\)/.test(rest.map(({ text }) => text).join(""))) return [];
    this.at = at + rest.findIndex(({ text }) => text === ")") + 3;
    this.need(":");
    const fields = this.block("class definition", token, () => this.declared());
    return [{ name, params: fields.map((field) => ({ name: field.name, default: field.value })), body: [] }];
  }
  /* `import a.b as c, d` and `from a.b import c as d, e`. */
  imported(imports) {
    const start = this.at;
    this.pass();
    const text = this.list.slice(start, this.at).map((token) => token.text).join(" ").replace(/ ?\. ?/g, ".");
    const [, from, list] = /^(?:from (\S+) )?import\s+(.*)$/.exec(text.trim()) ?? [];
    if (!list) return;
    for (const part of list.replace(/[()]/g, "").split(",")) {
      const [path, name] = part.trim().split(" as ");
      if (from) imports.set(name ?? path, `${from}.${path}`);
      else imports.set(name ?? path.split(".")[0], name ? path : path.split(".")[0]);
    }
  }
  /* A function with its decorators, if triton.jit is one of them. */
  decorated() {
    let [jit, noinline] = [false, false];
    const start = this.token.line;
    while (this.take("@")) {
      const from = this.at;
      while (this.token.kind !== "newline") this.at += 1;
      const text = this.list.slice(from, this.at).map((token) => token.text).join("");
      jit ||= /^(triton\.)?jit(\(|$)/.test(text);
      noinline ||= text.includes("noinline=True");
      this.at += 1;
    }
    if (!jit) return void this.pass();
    if (!this.is("def")) this.fail();
    return { ...this.function(), start, noinline };
  }
  /* Pass over a statement with all that is indented below it, unless it is a kernel's line that lost its place. */
  pass() {
    while (this.token.kind !== "newline" && this.token.kind !== "end") {
      if (!this.take(")")) this.at += 1;
      else if (this.named()) this.fail();
    }
    if (this.token.kind === "newline") this.at += 1;
    if (this.token.kind !== "indent") return;
    if (this.list[this.at - 2].text !== ":") this.fail("unexpected indent");
    let depth = 0;
    do {
      depth += this.token.kind === "indent" ? 1 : this.token.kind === "dedent" ? -1 : 0;
      this.at += 1;
    } while (depth);
  }
  function() {
    const token = this.token;
    this.need("def");
    const name = this.name();
    this.need("(");
    const params = [];
    let keywordOnly = false;
    while (!this.take(")")) {
      if (this.is("*") || this.is("/")) {
        if (keywordOnly || this.is("/") || this.list[this.at + 1].text !== ",") this.fail("a kernel has no *args, **kwargs or /");
        keywordOnly = true;
        this.at += 2;
        continue;
      }
      const place = this.token;
      const param = { name: this.name(), annotation: null, default: null, keywordOnly, line: place.line, column: place.column };
      if (params.some((other) => other.name === param.name)) {
        this.fail(`duplicate argument '${param.name}' in function definition`, place);
      }
      if (this.take(":")) param.annotation = this.expression();
      if (this.take("=")) param.default = this.expression();
      params.push(param);
      if (!this.is(")")) this.need(",");
    }
    if (this.take("->")) this.expression();
    this.need(":");
    const body = this.block("function definition", token);
    return this.node("FunctionDef", { name, params, body, end: this.list[this.at - 1].line }, token);
  }

  // Statements.

  block(what, token, one) {
    if (this.token.kind !== "newline") return one ? one() : this.simple();
    this.at += 1;
    if (this.token.kind !== "indent") {
      this.fail(`expected an indented block after ${what} on line ${token.line}`);
    }
    this.at += 1;
    const body = [];
    while (this.token.kind !== "dedent") {
      if (this.token.kind === "indent") this.fail("unexpected indent");
      body.push(...(one ? one() : this.statement()));
    }
    this.at += 1;
    return body;
  }
  statement() {
    const token = this.token;
    if (token.kind === "name") {
      switch (token.text) {
        case "if":
          return [this.if()];
        case "for": {
          this.at += 1;
          const target = this.targets();
          if (!this.take("in")) this.fail();
          const iterator = this.expressions();
          this.need(":");
          const body = this.block("'for' statement", token);
          return [this.node("For", { target, iterator, body, orelse: this.else() }, token)];
        }
        case "while": {
          this.at += 1;
          const test = this.expression();
          this.need(":");
          const body = this.block("'while' statement", token);
          return [this.node("While", { test, body, orelse: this.else() }, token)];
        }
        case "def":
          return [this.function()];
        case "try":
        case "with":
        case "class":
        case "async":
          this.pass();
          return [this.node("Other", { name: STATEMENTS[token.text] }, token)];
      }
    }
    return this.simple();
  }
  if() {
    const token = this.token;
    this.at += 1;
    const test = this.expression();
    this.need(":");
    const body = this.block(`'${token.text}' statement`, token);
    const orelse = this.is("elif") ? [this.if()] : this.else();
    return this.node("If", { test, body, orelse }, token);
  }
  else() {
    const token = this.token;
    if (!this.take("else")) return [];
    this.need(":");
    return this.block("'else' statement", token);
  }
  simple() {
    const body = [];
    do {
      if (this.token.kind === "newline") break;
      body.push(this.small());
    } while (this.take(";"));
    if (this.token.kind !== "newline") this.fail();
    this.at += 1;
    return body;
  }
  small() {
    const token = this.token;
    if (token.kind === "name") {
      if (this.take("pass")) return this.node("Pass", {}, token);
      if (this.take("return")) {
        const value = this.token.kind === "newline" || this.is(";") ? null : this.expressions();
        return this.node("Return", { value }, token);
      }
      if (this.take("assert")) {
        const test = this.expression();
        return this.node("Assert", { test, message: this.take(",") ? this.expression() : null }, token);
      }
      if (token.text in STATEMENTS) {
        while (this.token.kind !== "newline" && !this.is(";")) this.at += 1;
        return this.node("Other", { name: STATEMENTS[token.text] }, token);
      }
    }
    const first = this.expressions();
    if (this.token.kind === "op" && AUGMENTED.test(this.token.text)) {
      this.assignable(first);
      const operator = this.token.text.slice(0, -1);
      this.at += 1;
      return this.node("AugAssign", { target: first, operator, value: this.expressions() }, token);
    }
    if (this.take(":")) {
      this.assignable(first);
      const annotation = this.expression();
      return this.node("AnnAssign", { target: first, annotation, value: this.take("=") ? this.expressions() : null }, token);
    }
    const parts = [first];
    while (this.take("=")) parts.push(this.expressions());
    if (parts.length === 1) return this.node("Expr", { value: first }, token);
    const value = parts.pop();
    for (const target of parts) this.assignable(target);
    return this.node("Assign", { targets: parts, value }, token);
  }
  assignable(target) {
    if (target.type === "Tuple" || target.type === "List") return target.items.forEach((item) => this.assignable(item));
    const what = { Call: "function call", Constant: "literal", Binary: "expression", Compare: "comparison" };
    if (!["Name", "Subscript", "Attribute"].includes(target.type)) {
      this.fail(`cannot assign to ${what[target.type] ?? "expression"}`, target);
    }
  }
  targets() {
    const token = this.token;
    const items = [this.unary()];
    while (this.take(",")) items.push(this.unary());
    return items.length === 1 ? items[0] : this.node("Tuple", { items }, token);
  }

  // Expressions, from what binds loosest to what binds tightest.

  expressions() {
    const token = this.token;
    const first = this.starred();
    if (!this.is(",")) return first;
    const items = [first];
    while (this.take(",")) {
      if (this.token.kind === "newline" || this.is("=") || this.is(")") || this.is("]")) break;
      items.push(this.starred());
    }
    return this.node("Tuple", { items }, token);
  }
  starred() {
    const token = this.token;
    if (this.take("*")) return this.node("Starred", { value: this.binary(0) }, token);
    return this.expression();
  }
  expression() {
    const token = this.token;
    if (this.is("lambda")) this.fail("unsupported AST node type: Lambda");
    const body = this.or();
    if (!this.take("if")) return body;
    const test = this.or();
    if (!this.take("else")) this.fail("expected 'else' after 'if' expression");
    return this.node("IfExp", { test, body, orelse: this.expression() }, token);
  }
  or() {
    return this.boolean("or", () => this.boolean("and", () => this.not()));
  }
  boolean(operator, next) {
    const token = this.token;
    const values = [next()];
    while (this.take(operator)) values.push(next());
    return values.length === 1 ? values[0] : this.node("Boolean", { operator, values }, token);
  }
  not() {
    const token = this.token;
    if (this.take("not")) return this.node("Unary", { operator: "not", operand: this.not() }, token);
    return this.comparison();
  }
  comparison() {
    const token = this.token;
    const left = this.binary(0);
    const operators = [];
    const rest = [];
    for (;;) {
      let operator = this.token.text;
      if (this.token.kind === "op" && COMPARE.has(operator)) this.at += 1;
      else if (this.take("is")) operator = this.take("not") ? "is not" : "is";
      else if (this.is("in") || (this.is("not") && this.list[this.at + 1].text === "in")) {
        operator = this.take("not") ? "not in" : "in";
        this.at += 1;
      } else break;
      operators.push(operator);
      rest.push(this.binary(0));
    }
    if (!rest.length) return left;
    return this.node("Compare", { left, operators, rest }, token);
  }
  binary(level) {
    // One call for all levels, not a call within a call for each: brackets within brackets need the stack.
    const token = this.token;
    let left = this.unary();
    for (;;) {
      const operator = this.token.text;
      const found = this.token.kind === "op" ? BINARY.findIndex((same) => same.includes(operator)) : -1;
      if (found < level) return left;
      this.at += 1;
      left = this.node("Binary", { operator, left, right: this.binary(found + 1) }, token);
    }
  }
  unary() {
    const token = this.token;
    this.depth += 1;
    if (this.depth > DEEPEST) this.fail("too many nested parentheses");
    const found = this.signed(token);
    this.depth -= 1;
    return found;
  }
  signed(token) {
    for (const operator of ["-", "+", "~"]) {
      if (this.take(operator)) return this.node("Unary", { operator, operand: this.unary() }, token);
    }
    const base = this.postfix();
    if (!this.take("**")) return base;
    return this.node("Binary", { operator: "**", left: base, right: this.unary() }, token);
  }
  postfix() {
    const token = this.token;
    let value = this.atom();
    for (;;) {
      const place = this.token;
      if (this.take(".")) value = this.node("Attribute", { value, name: this.name() }, place);
      else if (this.take("(")) value = this.call(value, token);
      else if (this.take("[")) {
        const index = this.slices();
        this.need("]");
        value = this.node("Subscript", { value, index }, token);
      } else return value;
    }
  }
  call(callee, token) {
    const args = [];
    const keywords = [];
    while (!this.take(")")) {
      const next = this.list[this.at + 1];
      if (this.token.kind === "name" && next.text === "=" && next.kind === "op") {
        const place = this.token;
        const name = this.name();
        if (keywords.some((keyword) => keyword.name === name)) this.fail(`keyword argument repeated: ${name}`, place);
        this.at += 1;
        keywords.push({ name, value: this.expression() });
      } else {
        if (keywords.length) this.fail("positional argument follows keyword argument");
        args.push(this.starred());
      }
      if (!this.is(")") && !this.take(",")) this.fail("invalid syntax. Perhaps you forgot a comma?");
    }
    return this.node("Call", { callee, args, keywords }, token);
  }
  slices() {
    const token = this.token;
    const items = [this.slice()];
    let several = false;
    while (this.take(",")) {
      several = true;
      if (this.is("]")) break;
      items.push(this.slice());
    }
    return several ? this.node("Tuple", { items }, token) : items[0];
  }
  slice() {
    const token = this.token;
    const part = () => (this.is(":") || this.is("]") || this.is(",") ? null : this.expression());
    const lower = part();
    if (!this.take(":")) return lower ?? this.fail();
    const upper = part();
    const step = this.take(":") ? part() : null;
    return this.node("Slice", { lower, upper, step }, token);
  }
  /* f"{a} and {b}": texts and expressions. */
  formatted(token) {
    const [, inner] = /^\w*(?:"{3}|'{3}|["'])([^]*?)(?:"{3}|'{3}|["'])$/.exec(token.text);
    const values = inner.split(/\{([^{}]*)\}/).map((part, i) => {
      if (i % 2 === 0) return this.node("Constant", { value: part, kind: "str" }, token);
      if (/[!:=]/.test(part)) throw new KernelError(`{${part}} in an f-string: this page's engine does not know it; Triton does`, "limit", token.line);
      return parseExpression(tokens(part));
    });
    this.at += 1;
    return this.node("JoinedStr", { values }, token);
  }
  atom() {
    const token = this.token;
    const constant = (value, kind) => {
      this.at += 1;
      return this.node("Constant", { value, kind }, token);
    };
    if (token.kind === "number") {
      const text = token.text.replaceAll("_", "").toLowerCase();
      if (text.endsWith("j")) this.fail("unsupported constant: complex");
      const whole = /^(0[xbo]|\d+$)/.test(text);
      if (/^0\d/.test(text) && whole && Number(text)) {
        this.fail("leading zeros in decimal integer literals are not permitted");
      }
      return constant(Number(text), whole ? "int" : "float");
    }
    if (token.kind === "string") {
      if (/^\w*f/i.test(token.text)) return this.formatted(token);
      let value = "";
      while (this.token.kind === "string") {
        const [, prefix, quote] = /^(\w*)("""|'''|"|')/.exec(this.token.text);
        const inner = this.token.text.slice(prefix.length + quote.length, -quote.length);
        value += /r/i.test(prefix) ? inner : inner.replace(/\\(["'\\])/g, "$1").replaceAll("\\n", "\n");
        this.at += 1;
      }
      return this.node("Constant", { value, kind: "str" }, token);
    }
    if (token.kind === "name") {
      if (token.text === "True" || token.text === "False") return constant(token.text === "True", "bool");
      if (token.text === "None") return constant(null, "none");
      return this.node("Name", { id: this.name() }, token);
    }
    if (this.take("(")) {
      if (this.take(")")) return this.node("Tuple", { items: [] }, token);
      const value = this.expressions();
      if (this.is("for")) this.fail("unsupported AST node type: GeneratorExp");
      this.need(")");
      return value;
    }
    if (this.take("[")) {
      const items = [];
      while (!this.take("]")) {
        items.push(this.starred());
        if (this.take("for")) {
          const target = this.name();
          if (!this.take("in")) this.fail();
          const iterator = this.or();
          if (!this.take("]")) this.fail("a comprehension with conditions is not known here");
          return this.node("ListComp", { item: items[0], target, iterator }, token);
        }
        if (!this.is("]")) this.need(",");
      }
      return this.node("List", { items }, token);
    }
    if (this.is("{")) this.fail("unsupported AST node type: Dict");
    if (this.take("...")) return this.node("Constant", { value: null, kind: "ellipsis" }, token);
    return this.fail();
  }
}

/* {functions: [FunctionDef], constants: Map of name → tokens}. Throws KernelError. */
export function parseFile(source) {
  return new Parser(tokens(source)).file();
}

/* The expression that these tokens are, the last of them being the end of its line. */
export function parseExpression(list) {
  return new Parser(list).expressions();
}
