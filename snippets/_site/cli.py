"""The command line of the site: run its notebooks, check what was built. `make` calls it."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from snippets._lab.results import store
from snippets._lab.rooms import ROOT, UnknownName
from snippets._site.markup import TooLittle

console = Console()


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code is 0 when all went well, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m snippets._site", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    built = argparse.ArgumentParser(add_help=False)
    built.add_argument("site", type=Path, help="folder of the built site")
    commands.add_parser("notebooks", help="run every notebook that is not up to date")
    commands.add_parser("check-html", parents=[built], help="check a built site's HTML and links")
    commands.add_parser("links", parents=[built], help="follow a built site's links to elsewhere")
    commands.add_parser("mistakes", help="ask the playground about typical mistakes (chromium)")
    command = commands.add_parser("offline", parents=[built], help="pack it to be read from a file")
    command.add_argument("out", type=Path, help="the zip to write")
    command = commands.add_parser("your-kernel", help="fold a kernel to what is asked for")
    command.add_argument("ticks", nargs="*", help="like CAUSAL D=128 GPU=sm_90")
    options = parser.parse_args(arguments)
    try:
        return globals()[f"_{options.command.replace('-', '_')}"](options)
    except KeyboardInterrupt:
        console.print("\nstopped; nothing was stored")
        return 130
    except (UnknownName, store.DataError, TooLittle, OSError) as error:
        console.print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 2


def _notebooks(options: argparse.Namespace) -> int:
    from snippets._site import notebooks

    return notebooks.run_all()


def _check_html(options: argparse.Namespace) -> int:
    from snippets._site.markup import faults

    found = faults(options.site).whole()
    read = f"{found.elements:,} elements and {found.links:,} links of {found.pages} pages"
    return _verdict(read, found.wrong)


def _links(options: argparse.Namespace) -> int:
    from snippets._site.markup import faults, unreachable

    outside = faults(options.site).whole().outside
    for link in outside:
        console.print(link, highlight=False, soft_wrap=True)
    return _verdict(f"{len(outside)} links to elsewhere", unreachable(outside))


def _verdict(what: str, wrong: list[str]) -> int:
    for text in wrong:
        console.print(f"[red]{escape(text)}[/]", highlight=False, soft_wrap=True)
    console.print(f"{what}: {len(wrong)} faults", highlight=False)
    return 1 if wrong else 0


def _mistakes(options: argparse.Namespace) -> int:
    from snippets._site import mistakes

    found = mistakes.mistakes(lambda kernel: console.print(kernel, highlight=False))
    path = store.write(found)
    console.print(f"{path.relative_to(ROOT)}: {len(found.rows)} mistakes", highlight=False)
    return 0


def _your_kernel(options: argparse.Namespace) -> int:
    from snippets._site import your_kernel

    ticks = your_kernel.asked(options.ticks)
    path = ROOT / f"my_{ticks.name}.py"
    path.write_text(your_kernel.made(ticks), "utf-8")
    lines, rate = your_kernel.code_lines(path.read_text("utf-8")), your_kernel.rate(ticks)[0]
    console.print(f"{path.name}: {lines} lines of code, {rate}", highlight=False)
    return 0


def _offline(options: argparse.Namespace) -> int:
    from snippets._site import offline

    options.out.write_bytes(offline.archive(options.site))
    console.print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB", highlight=False)
    return 0
