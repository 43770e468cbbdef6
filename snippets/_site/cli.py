"""The command line of the site: run its notebooks, check what was built. `make` calls it."""

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from snippets._lab.results import origin, store
from snippets._lab.rooms import ROOT, UnknownName
from snippets._site.checks import TooLittle

console = Console()


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code is 0 when all went well, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m snippets._site", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("notebooks", help="run every notebook that is not up to date")
    commands.add_parser("fonts", help="cut the site's fonts again (asks npm)")
    command = commands.add_parser("check-html", help="check a built site's HTML and its own links")
    command.add_argument("site", type=Path, help="folder of the built site")
    command = commands.add_parser("links", help="follow a built site's links to elsewhere")
    command.add_argument("site", type=Path, help="folder of the built site")
    commands.add_parser("spelling", help="look up every word of the pages")
    command = commands.add_parser("style", help="look for phrases and terms that stop a reader")
    command.add_argument("--report", action="store_true", help="also: long sentences, passives")
    command = commands.add_parser("page-speed", help="measure how quick each page of the site is")
    command.add_argument("page", nargs="*", type=_page, help="like posts/coalescing/; default: all")
    commands.add_parser("mistakes", help="ask the playground about typical mistakes (chromium)")
    command = commands.add_parser("screenshots", help="render each page in four ways")
    command.add_argument("page", nargs="*", type=_page, help="like posts/coalescing/; default: all")
    command.add_argument("--out", type=Path, default=ROOT / ".cache" / "screenshots")
    command = commands.add_parser("offline", help="pack a built site to be read without a server")
    command.add_argument("site", type=Path, help="folder of the built site")
    command.add_argument("out", type=Path, help="the zip to write")
    command = commands.add_parser("pdf", help="print all pages of a built site into one PDF")
    command.add_argument("site", type=Path, help="folder of the built site")
    command.add_argument("out", type=Path, help="the PDF to write")
    options = parser.parse_args(arguments)
    try:
        return globals()[f"_{options.command.replace('-', '_')}"](options)
    except KeyboardInterrupt:
        console.print("\nstopped; nothing was stored")
        return 130
    except (UnknownName, store.DataError, TooLittle, OSError) as error:
        console.print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 2


def _page(address: str) -> str:
    """An address as the checks name pages: without the slash in front; "/" is the front page."""
    return address.lstrip("/")


def _notebooks(options: argparse.Namespace) -> int:
    from snippets._site import notebooks

    return notebooks.run_all()


def _check_html(options: argparse.Namespace) -> int:
    from snippets._site.checks.markup import faults

    found = faults(options.site).whole()
    read = f"{found.elements:,} elements and {found.links:,} links of {found.pages} pages"
    return _verdict(read, found.wrong)


def _fonts(options: argparse.Namespace) -> int:
    from snippets._site import fonts

    for path in fonts.renew():
        console.print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes", highlight=False)
    return 0


def _links(options: argparse.Namespace) -> int:
    from snippets._site.checks.markup import faults, unreachable

    outside = faults(options.site).whole().outside
    if not outside:
        raise TooLittle(f"{options.site} has no link to elsewhere: nothing was followed")
    for link in outside:
        console.print(link, highlight=False, soft_wrap=True)
    return _verdict(f"{len(outside)} links to elsewhere", unreachable(outside))


def _verdict(what: str, wrong: list[str]) -> int:
    for text in wrong:
        console.print(f"[red]{escape(text)}[/]", highlight=False, soft_wrap=True)
    console.print(f"{what}: {len(wrong)} faults", highlight=False)
    return 1 if wrong else 0


def _spelling(options: argparse.Namespace) -> int:
    from snippets._site.checks import spelling

    texts = spelling.written()
    unknown, read = spelling.misspelled(texts, spelling.project_words())
    if len(texts) < spelling.TEXTS or read < spelling.ALL_WORDS:
        raise TooLittle(f"only {read:,} words in {len(texts)} texts were read")
    for word in unknown:
        console.print(f"unknown word: {escape(word)}", highlight=False)
    console.print(f"{read:,} words in {len(texts)} texts: {len(unknown)} unknown", highlight=False)
    if unknown:
        where = spelling.WORDS.relative_to(ROOT)
        console.print(f"[red]misspelled, or a word of this project: then add it to {where}[/]")
    return 1 if unknown else 0


def _style(options: argparse.Namespace) -> int:
    from snippets._site.checks import spelling, style

    found, texts = style.faults()
    if texts < style.TEXTS:
        raise TooLittle(f"only {texts} texts were read")
    if options.report:
        for page in style.in_order():
            sentences, long, passive = style.report(spelling.text_of(page))
            told = f"{long} of {sentences} sentences are long, {passive} have a passive"
            console.print(f"{page.stem}: {told}", highlight=False)
    return _verdict(f"{texts} texts", [str(fault) for fault in found])


def _page_speed(options: argparse.Namespace) -> int:
    from snippets._site import speed_table
    from snippets._site.checks import page_speed

    commit = origin.commit()
    measured = page_speed.pages(
        options.page, advance=lambda page: console.print(f"measured /{page}", highlight=False)
    )
    measured = replace(measured, commit=commit)
    console.print(speed_table.table(measured), markup=False, soft_wrap=True)
    if options.page:
        path = store.path_of(measured.folder, measured.post, measured.result)
        measured = speed_table.renewed(measured, store.read(path))
    store.write(measured)
    return 1 if speed_table.over(measured) else 0


def _mistakes(options: argparse.Namespace) -> int:
    from snippets._site.checks import playground

    found = playground.mistakes(lambda kernel: console.print(kernel, highlight=False))
    path = store.write(found)
    console.print(f"{path.relative_to(ROOT)}: {len(found.rows)} mistakes", highlight=False)
    return 0


def _offline(options: argparse.Namespace) -> int:
    from snippets._site import offline

    options.out.write_bytes(offline.archive(options.site))
    console.print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB", highlight=False)
    return 0


def _pdf(options: argparse.Namespace) -> int:
    from snippets._site import book

    pages = book.pdf(options.site, options.out)
    size = options.out.stat().st_size / 1e6
    console.print(f"{options.out}: {pages} pages of the site, {size:.1f} MB", highlight=False)
    return 0


def _screenshots(options: argparse.Namespace) -> int:
    from snippets._site.checks.screenshots import screenshots

    made = screenshots(options.out, options.page)
    console.print(f"{len(made)} pictures in {options.out}", highlight=False)
    return 0
