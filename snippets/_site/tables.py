"""Tables fold on a phone, because each cell knows its column, and scroll in a box of their own.

The theme's script would make that box for each table while the page starts. A head without a word
is no head: where all are empty the first column names its rows, and a single one is a plain cell.
"""

import re

FOLDS_FROM = 4  # columns: fewer fit a phone
WORDY = 90  # characters of a row: with so many, three columns are too narrow there
FLOWS_FROM = 9  # rows: with a line for each cell so many would be screens long
HEAD = re.compile(r"<thead>\s*<tr>(.*?)</tr>\s*</thead>\s*", re.DOTALL)
EMPTY = re.compile(r"<th\b([^>]*)>(\s*)</th>")
FIRST_CELL = re.compile(r"(<tr>\s*)<td\b([^>]*)>(.*?)</td>", re.DOTALL)
TAG = re.compile(r"(<!--.*?-->|<[^>]+>)", re.DOTALL)


def folded(content: str) -> str:
    """A page's HTML with every table named and boxed."""
    return re.sub(
        r"<table>.*?</table>", lambda m: boxed(fold(headed(m[0]))), content, flags=re.DOTALL
    )


def headed(table: str) -> str:
    """A table none of whose heads is empty."""
    head = HEAD.search(table)
    if head is None:
        return table
    if TAG.sub("", head[1]).strip():
        return table.replace(head[0], EMPTY.sub(r"<td\1>\2</td>", head[0]), 1)
    return FIRST_CELL.sub(r'\1<th scope="row"\2>\3</th>', table.replace(head[0], "", 1))


def fold(table: str) -> str:
    """Name each cell of a wide table after its column, so that a phone can show a row as a list."""
    head = HEAD.search(table)
    cells = re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", head[1], re.DOTALL) if head else []
    heads = [TAG.sub("", cell).strip() for cell in cells]
    rows = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
    longest = max((len(" ".join(TAG.sub("", row).split())) for row in rows), default=0)
    if len(heads) < FOLDS_FROM - (longest > WORDY):
        return table

    def row(match: re.Match[str]) -> str:
        names = iter(heads)
        return re.sub(r"<td\b", lambda _: f'<td data-label="{next(names)}"', match[0])

    before, _, body = table.partition("<tbody>")
    body = re.sub(r"<tr>.*?</tr>", row, body, flags=re.DOTALL)
    flows = " data-fold"
    if len(heads) < FOLDS_FROM:
        flows = ' data-fold="words"'
    elif body.count("<tr>") >= FLOWS_FROM:  # rows of numbers, of little use in a search
        flows = ' data-fold="flow" data-search-exclude'
    return before.replace("<table>", f"<table{flows}>", 1) + "<tbody>" + body


def boxed(table: str) -> str:
    """A table in the two boxes of the theme; one that has a class its script leaves alone."""
    table = table.replace("<table", '<table class="am-table"', 1)
    box = '<div class="md-typeset__scrollwrap"><div class="md-typeset__table">'
    return f"{box}{table}</div></div>"
