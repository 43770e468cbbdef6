/* What the playground's editor is made of. `build` in package.json makes one ES module of it. */
export { history, historyKeymap, defaultKeymap, indentLess, indentMore } from "@codemirror/commands";
export {
  HighlightStyle, LRLanguage, LanguageSupport, bracketMatching, delimitedIndent, flatIndent, indentNodeProp,
  indentOnInput, indentUnit, syntaxHighlighting,
} from "@codemirror/language";
export { Compartment, EditorSelection, EditorState, StateEffect, StateField } from "@codemirror/state";
export {
  Decoration, EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers,
} from "@codemirror/view";
export { tags } from "@lezer/highlight";
export { parser } from "@lezer/python";
