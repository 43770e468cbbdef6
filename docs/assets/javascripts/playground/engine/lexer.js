/* Python's tokens, with its rules of indentation. Messages are Python's own. */
import { KernelError } from "./errors.js";

const TOKEN =
  /(?<space>[ \t\f]+|\\\r?\n)|(?<comment>#[^\n]*)|(?<newline>\r?\n)|(?<string>(?:[rR][bBfF]?|[bBfF][rR]?|[uU])?(?:"""(?:[^\\]|\\[^])*?"""|'''(?:[^\\]|\\[^])*?'''|"(?:[^"\\\n]|\\[^])*"|'(?:[^'\\\n]|\\[^])*'))|(?<number>0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?[jJ]?)|(?<name>[\p{L}_][\p{L}\p{N}_]*)|(?<op>->|:=|\.\.\.|!=|(?:\*\*|\/\/|>>|<<|[-+*/%&|^@=<>])=?|[~()[\]{},:;.])/uy;
const CLOSES = { ")": "(", "]": "[", "}": "{" };
const TAB = 8; // columns

/* [{kind, text, line, column}], kind one of name, number, string, op, newline, indent, dedent, end. */
export function tokens(source) {
  const found = [];
  const open = []; // brackets
  const indents = [0];
  let line = 1;
  let lineStart = 0;
  let fresh = true; // nothing of this logical line has come yet
  let at = 0;
  let width = 0;
  const fail = (message, column) => {
    throw new KernelError(message, "syntax", line, column);
  };
  while (at < source.length) {
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(source);
    const column = at - lineStart;
    if (!match) {
      const rest = source.slice(at);
      if (/^(?:[rbuf]{0,2})("""|''')/i.test(rest)) fail("unterminated triple-quoted string literal", column);
      if (/^(?:[rbuf]{0,2})["']/i.test(rest)) fail("unterminated string literal", column);
      fail(`invalid character '${String.fromCodePoint(rest.codePointAt(0))}'`, column);
    }
    const { space, comment, newline, string, number, name, op } = match.groups;
    const text = match[0];
    at += text.length;
    if (newline !== undefined) {
      if (!open.length && !fresh) {
        found.push({ kind: "newline", text, line, column });
        fresh = true;
      }
      width = 0;
    } else if (space !== undefined) {
      if (fresh && !text.startsWith("\\")) {
        for (const letter of text) width += letter === "\t" ? TAB - (width % TAB) : 1;
      }
    } else if (comment === undefined) {
      if (fresh && !open.length) {
        fresh = false;
        if (width > indents.at(-1)) {
          indents.push(width);
          found.push({ kind: "indent", text: "", line, column });
        }
        while (width < indents.at(-1)) {
          indents.pop();
          if (width > indents.at(-1)) fail("unindent does not match any outer indentation level", column);
          found.push({ kind: "dedent", text: "", line, column });
        }
      }
      if (op !== undefined) {
        if ("([{".includes(op)) open.push({ op, line, column });
        if (op in CLOSES) {
          const last = open.pop();
          if (!last) fail(`unmatched '${op}'`, column);
          if (last.op !== CLOSES[op]) {
            fail(`closing parenthesis '${op}' does not match opening parenthesis '${last.op}'`, column);
          }
        }
      }
      const kind = string !== undefined ? "string" : number !== undefined ? "number" : name !== undefined ? "name" : "op";
      if (kind === "number" && /[\p{L}_]/u.test(source[at] ?? "")) fail("invalid decimal literal", column);
      found.push({ kind, text, line, column });
    }
    for (let i = text.indexOf("\n"); i >= 0; i = text.indexOf("\n", i + 1)) {
      line += 1;
      lineStart = at - text.length + i + 1;
    }
  }
  if (open.length) {
    const { op, line: where, column } = open.at(-1);
    throw new KernelError(`'${op}' was never closed`, "syntax", where, column);
  }
  if (!fresh) found.push({ kind: "newline", text: "", line, column: at - lineStart });
  for (; indents.length > 1; indents.pop()) found.push({ kind: "dedent", text: "", line, column: 0 });
  found.push({ kind: "end", text: "", line, column: 0 });
  return found;
}
