/* The editor: CodeMirror 6, vendored as one module, in the colors of the listings. */
const VENDORED = new URL("../../vendor/codemirror-6.43.15.min.js", import.meta.url);
const COLORS = {
  keyword: "var(--md-code-hl-keyword-color)",
  string: "var(--md-code-hl-string-color)",
  number: "var(--md-code-hl-number-color)",
  comment: "var(--md-code-hl-comment-color)",
  call: "var(--md-code-hl-function-color)",
  special: "var(--md-code-hl-special-color)",
  quiet: "var(--md-code-hl-operator-color)",
};
const MARKS = { fault: "am-line-fault", mistake: "am-line-mistake", step: "am-line-step" };

export const loadEditor = () => import(VENDORED.href);

export const NARROW = "(max-width: 44.98em)";

/* {box, text(), replace(text), focus(), reveal(line, last?), mark([{line, kind}]), fold(lines)}.
   unfolded(): all lines show. */
export async function makeEditor({ text, label, run, unfolded }) {
  const cm = await loadEditor();
  const { Decoration, EditorState, EditorView, StateEffect, StateField, tags } = cm;

  const setMarks = StateEffect.define();
  const marks = StateField.define({
    create: () => Decoration.none,
    update(found, change) {
      let next = found.map(change.changes);
      for (const effect of change.effects) {
        if (!effect.is(setMarks)) continue;
        const { lines } = change.state.doc;
        const wanted = effect.value.filter(({ line }) => line >= 1 && line <= lines);
        next = Decoration.set(wanted.map(({ line, kind }) => (
          Decoration.line({ class: MARKS[kind] }).range(change.state.doc.line(line).from)
        )), true);
      }
      return next;
    },
    provide: (field) => EditorView.decorations.from(field),
  });

  /* All lines but some are folded. What is folded is still there, runs, and unfolds when it is selected or changed. */
  const setFolds = StateEffect.define();
  const folds = StateField.define({
    create: () => Decoration.none,
    update(found, change) {
      for (const effect of change.effects) if (effect.is(setFolds)) return effect.value;
      const now = found.map(change.changes);
      const { from, to } = change.newSelection.main;
      let touched = false;
      if (change.selection || change.docChanged) now.between(from, to, () => { touched = true; });
      return touched ? Decoration.none : now;
    },
    provide: (field) => EditorView.decorations.from(field),
  });

  /* Select all takes what shows, and a second time all. A whole kernel that is pasted over what shows replaces all. */
  const shownOf = (state) => {
    let [from, to] = [0, state.doc.length];
    state.field(folds).between(from, to, (first, last) => { [from, to] = first ? [from, first - 1] : [last + 1, to]; });
    return { from, to, chosen: state.selection.main.from === from && state.selection.main.to === to };
  };
  function selectShown({ state, dispatch }) {
    const { from, to, chosen } = shownOf(state);
    if (!chosen) dispatch(state.update({ selection: { anchor: from, head: to } }));
    return !chosen;
  }
  const wholeKernel = EditorState.transactionFilter.of((change) => {
    const { from, to, chosen } = shownOf(change.startState);
    if (!chosen || !change.docChanged) return change;
    const { length } = change.startState.doc;
    const insert = change.newDoc.sliceString(from, change.newDoc.length + to - length);
    if (!/^def /m.test(insert)) return change;
    return { changes: { from: 0, to: length, insert }, selection: { anchor: insert.length } };
  });

  const python = cm.LRLanguage.define({
    name: "python",
    parser: cm.parser.configure({
      props: [cm.indentNodeProp.add({
        "ArgList ParamList ParenthesizedExpression ArrayExpression TupleExpression": cm.delimitedIndent({ closing: ")" }),
        Body: (context) => context.baseIndent + context.unit,
      })],
    }),
    languageData: { commentTokens: { line: "#" } },
  });
  const colors = cm.HighlightStyle.define([
    { tag: [tags.keyword, tags.modifier, tags.bool, tags.null, tags.self], color: COLORS.keyword },
    { tag: [tags.string, tags.special(tags.string)], color: COLORS.string },
    { tag: tags.number, color: COLORS.number },
    { tag: tags.comment, color: COLORS.comment },
    { tag: [tags.function(tags.variableName), tags.function(tags.definition(tags.variableName))], color: COLORS.call },
    { tag: tags.meta, color: COLORS.special },
    { tag: [tags.operator, tags.punctuation], color: COLORS.quiet },
  ]);

  const view = new EditorView({
    state: EditorState.create({
      doc: text,
      extensions: [
        cm.lineNumbers(), cm.history(), cm.drawSelection(), cm.highlightActiveLine(), cm.bracketMatching(),
        cm.indentOnInput(), cm.indentUnit.of("    "), EditorState.tabSize.of(4),
        python, cm.syntaxHighlighting(colors), marks, folds, wholeKernel,
        ...(matchMedia(NARROW).matches ? [EditorView.lineWrapping] : []),
        EditorView.contentAttributes.of({
          "aria-label": label, tabindex: "0", spellcheck: "false", autocapitalize: "off", autocorrect: "off",
        }),
        EditorView.updateListener.of((update) => {
          if (!update.state.field(folds).size) unfolded();
        }),
        cm.keymap.of([
          { key: "Mod-a", run: selectShown },
          { key: "Mod-Enter", run: () => (run(), true), preventDefault: true },
          // Escape, then Tab, leaves the editor: CodeMirror sees to it.
          { key: "Tab", run: cm.indentMore, shift: cm.indentLess },
          ...cm.historyKeymap, ...cm.defaultKeymap,
        ]),
      ],
    }),
  });

  const lineAt = (line) => view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
  return {
    box: view.dom,
    text: () => view.state.doc.toString(),
    size: () => view.state.doc.length,
    replace(other) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: other } });
    },
    focus: () => view.focus(),
    // Scrolls the editor and not the page.
    reveal(line, { select = false, top = false } = {}) {
      const { from } = lineAt(line);
      if (select) view.dispatch({ selection: { anchor: from } });
      const { top: above, height } = view.lineBlockAt(from);
      const { clientHeight } = view.scrollDOM;
      view.scrollDOM.scrollTop = top ? above : above - (clientHeight - height) / 2;
    },
    // Fold what stands before and after the lines from `first` to `last`; without them unfold.
    fold([first, last] = []) {
      const { doc } = view.state;
      const hidden = first ? [[1, first - 1], [last + 1, doc.lines]].filter(([from, to]) => from <= to) : [];
      const ranges = hidden.map(([from, to]) => Decoration.replace({ block: true }).range(doc.line(from).from, doc.line(to).to));
      view.dispatch({ effects: setFolds.of(Decoration.set(ranges)) });
    },
    mark(wanted) {
      view.dispatch({ effects: setMarks.of(wanted) });
      view.scrollDOM.scrollLeft = 0; // where its lines begin
    },
    remove: () => view.destroy(),
  };
}
