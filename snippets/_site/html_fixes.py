"""What Markdown and the theme's templates have too much or too little of, put right.

- In an indented block, such as a folded answer, Markdown takes HTML for a part of a paragraph.
  Browsers forgive the result, validators do not.
- Links away from the site are marked. A heading's link to itself has a name and no title: the theme
  makes a tooltip for each title while the page starts.
- Code is most of a page's elements. A span whose color is the text's own is taken away, operators
  and punctuation have the shortest tag there is, and a block says how many lines it has, so that a
  browser can leave it aside until it comes near, and how many columns, so that a script knows which
  blocks scroll without looking at them. A chart says how high the text around it is, for the same.
  A long line says how far in it begins: where it wraps, the rest stands a little further in.
- The theme asks the host of a repository for its number of stars from the reader's browser.
- The bar has room for a title up to its colon.
- Templates indent their lines. Where spaces do not show they are left out: 1.4 kB of a packed page.
"""

import html
import math
import re

MARKUP = re.compile(r"<[^>]+>")

# Names and spaces have no color of their own (--md-code-hl-name-color is the ink).
PLAIN_SPAN = re.compile(r'<span class="(?:n|w)">([^<]*)</span>')
QUIET_SPAN = re.compile(r'<span class="[op]">([^<]*)</span>')
CODE_BLOCK = re.compile(r'<div class="([^"]*\bhighlight\b[^"]*)">(?=(.*?)</code></pre>)', re.DOTALL)
TOKEN = re.compile(r'<span class="(\w+)">([^<]*\n[^<]*)</span>')  # of several lines
LISTING = re.compile(  # whose lines are not marked yet
    r"(<pre\b[^>]*>(?:<span></span>)?<code[^>]*>)(?!<span class=.am-)(.*?)(?=</code></pre>)",
    re.DOTALL,
)
LONG = 40  # letters that have room on any phone
CHART = re.compile(
    r'(<div class="am-figure am-chart" .*?style=")'
    r'(?=.*?am-finding">(.*?)</p>.*?<figcaption>(.*?)</figcaption>)',
    re.DOTALL,
)
# A chart's margins in px; then a line's height and its usual letters, of the sentence above the
# chart and of the text below it: on a wide screen, and on a phone.
TEXT = {"am-text": (20, (25.8, 93), (21.4, 115)), "am-narrow-text": (20, (23.5, 43), (21.4, 54))}

SESSION = re.compile(r"\blanguage-(?:console|pycon)\b")
PROMPT = re.compile(r"(?:\$|>>>|\.\.\.)(?: |$)")

# What Markdown leaves of HTML in an indented block.
BLOCK = "(?:div|figure|figcaption|details|summary)"
STRAY = re.compile(
    rf"<p>(?=\s*</?{BLOCK}\b)|(?P<block></?{BLOCK}\b[^<>]*>\s*)</p>"
    r"|(?P<tag><[a-z]+\b[^<>]*) markdown>"
)

MADE_BY = re.compile(r"<!-- made by [^<>]*-->\n?")  # what a figure's file says of itself

TWICE = re.compile(r"(</p>\s*)</p>")  # a paragraph that Markdown ends, and its own end

# A link away from the site. A style sheet cannot tell: instant navigation makes every link whole.
OUTWARD = re.compile(r'<a (?=[^>]*\bhref="https?://)(?![^>]*\brel=)')

HEADERLINK = re.compile(r'(<a class="headerlink" href="[^"]*" )title(?==)')

# Long and of little use in a search: tables of numbers, tests' names, code that stands elsewhere.
UNSEARCHED = (
    '<div class="am-cards"',
    '<div class="am-coverage"',
    '<div class="am-backends"',
    '<details class="example"',
)

UNSEARCHED_LINES = 24  # of code: whole functions, which stand in their files

# What keeps its spaces, or a line's indent.
INDENT = re.compile(r"(<(pre|code|script|style|textarea)\b.*?</\2>)|(?<=\n)[ \t]+", re.DOTALL)

# The page's title in the bar, which cuts a long one.
BAR = re.compile(r'(data-md-component="header-topic">\s*<span class="md-ellipsis">[^:<]*):[^<]*')

# In the theme's templates: the repository link, which would ask its host for stars; the color
# scheme, for which scheme.js stands in. The scheme of a first visit is the system's, which the
# theme knows only after its script has come; that there are scripts it says then too, and all is
# styled anew.
TEMPLATE = {
    'class="md-source" data-md-component="source"': 'class="md-source"',
    'class="md-header__option" data-md-component="palette"': 'class="md-header__option"',
    "<script>__md_scope=": '<script>document.documentElement.className="js",__md_scope=',
    'var palette=__md_get("__palette");': (
        'var palette=__md_get("__palette")||{color:{media:"(prefers-color-scheme)"}};'
    ),
}


def fixed(content: str) -> str:
    """A page's HTML, fixed as this module's docstring says."""
    content = STRAY.sub(
        lambda m: (m["block"] or "") + (f"{m['tag']}>" if m["tag"] else ""), content
    )
    content = TWICE.sub(r"\1", MADE_BY.sub("", content))
    content = OUTWARD.sub('<a rel="external" ', content)
    content = HEADERLINK.sub(r"\1aria-label", content)
    content = PLAIN_SPAN.sub(r"\1", content)
    content = QUIET_SPAN.sub(r"<i>\1</i>", content)
    content = CODE_BLOCK.sub(_code_block, content)
    content = LISTING.sub(_long_lines, content)
    content = CHART.sub(_chart, content)
    for quiet in UNSEARCHED:
        content = content.replace(quiet, quiet.replace(" ", " data-search-exclude ", 1))
    return content


def _code_block(match: re.Match[str]) -> str:
    lines = match[2].count("\n")
    text = html.unescape(MARKUP.sub("", match[2].partition("<code>")[2]))
    columns = max(map(len, text.splitlines()), default=0)
    quiet = " data-search-exclude" if lines >= UNSEARCHED_LINES else ""
    if SESSION.search(match[1]) and (commands := typed(text)):
        escaped = html.escape(commands).replace("\n", "&#10;")
        quiet += f' data-copy="{escaped}"'  # the theme's button copies that
    return f'<div class="{match[1]}"{quiet} style="--am-lines: {lines}; --am-columns: {columns}">'


def _long_lines(match: re.Match[str]) -> str:
    code = TOKEN.sub(_token_of_each_line, match[2])
    return match[1] + "".join(map(_marked_if_long, code.splitlines(keepends=True)))


def _token_of_each_line(match: re.Match[str]) -> str:
    return "\n".join(
        f'<span class="{match[1]}">{line}</span>' if line else "" for line in match[2].split("\n")
    )


def _marked_if_long(line: str) -> str:
    text = html.unescape(MARKUP.sub("", line)).rstrip()
    whole = line.count("</") * 2 == line.count("<")  # no tag goes on in another line
    if len(text) <= LONG or not whole:
        return line
    indent = len(text) - len(text.lstrip())
    return f'<span class="am-long" style="--am-in:{indent}ch">{line}</span>'


def _chart(match: re.Match[str]) -> str:
    above, below = (len(html.unescape(MARKUP.sub("", text))) for text in match.groups()[1:])
    said = match[1]
    for name, (margins, (high, usual), (low, more)) in TEXT.items():
        height = margins + high * math.ceil(above / usual) + low * math.ceil(below / more)
        said += f"--{name}: {height:.0f}px; "
    return said


def typed(session: str) -> str:
    """What was typed in a session: its lines after a prompt, without the prompt and the answers."""
    commands: list[str] = []
    goes_on = False
    for line in session.splitlines():
        prompt = PROMPT.match(line)
        if prompt or goes_on:
            commands.append(line[prompt.end() :] if prompt else line)
        goes_on = bool(prompt or goes_on) and line.endswith("\\")
    return "\n".join(commands)


def fixed_template(page: str) -> str:
    """A whole page of the theme with what it has too much or too little of put right."""
    for mark, other in TEMPLATE.items():
        page = page.replace(mark, other)
    page = BAR.sub(r"\1", page)
    return INDENT.sub(lambda match: match[1] or "", page)
