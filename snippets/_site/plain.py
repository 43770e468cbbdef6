"""The HTML in a page's Markdown as plain text, for readers without a browser."""

from html import unescape
from html.parser import HTMLParser

VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "source", "wbr"})
INLINE = frozenset({"a", "b", "code", "em", "i", "small", "span", "strong"})
CELLS = frozenset({"td", "th"})
LEFT_OUT = frozenset({"button", "canvas", "label", "script", "style", "svg", "template"})
CHANGED = {"del": ("[-", "-]"), "ins": ("{+", "+}")}  # as wdiff marks removed and added words
CLOSING = tuple(" \t\n.,;:!?)]}&")


def without_html(text: str) -> str:
    """Text in which a table has a row a line, a list an entry a line, a drawing its label."""
    parser = _Plain()
    parser.feed(text)
    parser.close()
    return parser.text


class _Plain(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.text = ""
        self.hidden = ""  # the tag of an element that is left out, while it is open
        self.depth = 0  # how many elements of that tag are open
        self.cells = 0  # of this row so far
        self.code = ""  # the outermost open one of `pre` and `code`
        self.one_line = False  # in a cell or an entry of a list
        self.fenced = False  # the code has lines of its own
        self.touches = False  # an inline element has just ended

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if self.hidden:
            self.depth += tag == self.hidden
        elif tag in LEFT_OUT or attributes.get("aria-hidden") == "true":
            if tag == "svg" and attributes.get("aria-label"):
                self.handle_data(f"*Diagram: {attributes['aria-label']}*")
            if tag not in VOID:
                self.hidden, self.depth = tag, 1
        elif tag in CELLS:
            self.text += "" if self.cells else "| "
            self.cells, self.one_line = self.cells + 1, True
        elif tag in CHANGED:
            self.text += CHANGED[tag][0]
        elif tag == "br":
            self._space()
        elif self.code:
            if tag == "span" and self.fenced and not self.text.endswith("\n"):
                self.text += "\n"  # each line is drawn as an element of its own
        elif tag in {"pre", "code"}:
            self._begin_code(tag)
        elif tag not in INLINE | VOID:
            self._new_line("- " if tag == "li" else "")
            self.cells, self.one_line = 0, self.one_line or tag == "li"

    def handle_endtag(self, tag: str) -> None:
        if self.hidden:
            self.depth -= tag == self.hidden
            self.hidden = self.hidden if self.depth else ""
        elif tag in CELLS:
            self.text, self.one_line = self.text.rstrip() + " | ", False
        elif tag == "thead":
            self._new_line("|" + " --- |" * self.cells)
        elif tag == self.code:
            self.text, self.code = self.text + ("\n```\n" if self.fenced else "`"), ""
        elif tag in CHANGED:
            self.text += CHANGED[tag][1]
        elif tag not in INLINE | VOID | {"pre"}:
            self.one_line = self.one_line and tag != "li"
            self._new_line()
        self.touches = tag in INLINE

    def handle_data(self, data: str) -> None:
        if self.hidden:
            return
        if self.one_line or (self.code and not self.fenced):
            data = data.replace("\n", " ")
        if self.touches and not self.code and not data.startswith(CLOSING):
            self._space()
        self.text, self.touches = self.text + data, False

    def handle_entityref(self, name: str) -> None:
        self.handle_data(unescape(f"&{name};") if self.code else f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(unescape(f"&#{name};") if self.code else f"&#{name};")

    def _begin_code(self, tag: str) -> None:
        self.code, self.fenced = tag, tag == "pre" and not self.one_line
        if self.fenced:
            self._new_line("```\n")
        else:
            self._space()
            self.text += "`"

    def _space(self) -> None:
        self.text += " " if self.text and not self.text[-1].isspace() else ""

    def _new_line(self, begin: str = "") -> None:
        """Begin a line as deep as the last one, unless there is one; a space where one must do."""
        line = self.text.rpartition("\n")[2]
        if self.one_line:
            self._space()
        elif line.strip():
            indent = line[: len(line) - len(line.lstrip())]
            self.text = self.text.rstrip(" ") + "\n" + indent
        self.text += begin
