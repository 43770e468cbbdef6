"""Figure numbers: each figure of a page gets one, in order, and it is the figure's permalink."""

import re
from itertools import count

FIGURE = re.compile(r'<div class="am-figure\b[^"]*"[^>]*\bid="(?P<id>figure-[\w-]+)"')
CAPTION = re.compile(r"<figcaption>(?P<paragraph>\s*<p>)?")


def numbered(content: str) -> str:
    """A page's HTML with "Figure 3" as a link to the figure before each figure's caption."""
    numbers = count(1)
    parts, end = [], 0
    for figure in FIGURE.finditer(content):
        caption = CAPTION.search(content, figure.end())
        following = FIGURE.search(content, figure.end())
        if caption is None or (following and following.start() < caption.start()):
            continue  # a figure without a caption has no number
        link = f'<a class="am-number" href="#{figure["id"]}">Figure {next(numbers)}</a> '
        parts += [content[end : caption.end()], link]
        end = caption.end()
    return "".join([*parts, content[end:]])
