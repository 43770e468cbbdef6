"""The site's three fonts, cut to the characters that it uses: text, code and formulas.

`make fonts` fetches IBM Plex from npm and writes `docs/assets/fonts`; a build only reads it. A file
is named after its content, so that a cache may keep it for ever. The license reserves the name
"Plex" for the fonts as IBM made them, so that ours have other names.

A page shows a font of the machine until ours has come. `FALLBACKS` gives that font the widths of
ours, so that no line breaks elsewhere when they change places.
"""

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from snippets._lab.rooms import ROOT

FOLDER = ROOT / "docs/assets/fonts"
LIMIT = 80_000  # bytes of all files together

ASCII = "".join(map(chr, range(0x20, 0x7F)))
LATIN = "\u00a0§©«°±²³µ¶·¹»¼½¾ÄÖ×Øßàäåçèéëíïñóöøüı÷–—‘’“”„†•…‹›€™"
GREEK = "ΓΔΘΛΣΦΨΩαβγδεζηθκλμνξπρστφχψω"
SIGNS = "←↑→↓−√∞≈≠≤≥∂⁄′″⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉"
SHAPES = "■□▲△▶▼▽◀◆◇○●★☆⬡⬢✓⎿"
# What a formula may hold. A browser shows a variable of one letter in the italics of mathematics,
# which are characters of their own; one of them, h, was there before.
ITALICS = "".join(chr(code) for code in [*range(0x1D434, 0x1D468), 0x210E] if code != 0x1D455)
GREEK_ITALICS = "".join(chr(0x1D6FC + ord(letter) - ord("α")) for letter in "αβγδεηθλμπρσφψω")
OPERATORS = "±·×÷∂∇∈∉∏∑−∗√∝∞∣‖∫∼≈≠≡≤≥≪≫⊂⊆⊙⊤⋅⋮⋯⌈⌉⌊⌋⟨⟩⇒ℓℝ′″⏟"


class Cut(NamedTuple):
    """One font of the site: what it is cut from and what is kept of it."""

    family: str  # the name under which style sheets know it
    package: str  # of npm, with its version
    file: str  # in that package
    characters: str
    features: tuple[str, ...] = ("kern",)
    axes: tuple[tuple[str, Any], ...] = ()  # of a variable font: the range or the one value kept
    raised: str = ""  # letters of which it gets a small raised form, as IBM Plex has none


CUTS = {
    "text": Cut(
        "Measured Text",
        "@ibm/plex-sans-variable@0.2.0",
        "fonts/complete/ttf/IBM Plex Sans Var-Roman.ttf",
        ASCII + LATIN + GREEK + SIGNS,
        axes=(("wght", (400, 700)), ("wdth", 100)),
        raised="T",
    ),
    "code": Cut(
        "Measured Code",
        "@ibm/plex-mono@2.5.0",
        "fonts/complete/woff2/IBMPlexMono-Regular.woff2",
        ASCII + LATIN + SIGNS + "─│┌┐└┘├┤┬┴┼┄",
        features=(),
        raised="T",
    ),
    "math": Cut(
        "Measured Math",
        "@ibm/plex-math@1.1.0",
        "fonts/complete/woff2/IBMPlexMath-Regular.woff2",
        ASCII + "\u00a0…′" + GREEK + ITALICS + GREEK_ITALICS + OPERATORS + "←↑→↓" + SHAPES,
        features=("ssty",),
    ),
}
MODIFIER_CAPITALS = {"T": 0x1D40}  # MODIFIER LETTER CAPITAL T: the transpose, as in QKᵀ
# Text and code take from the formulas' font the signs they lack: Greek in code, ∈, ⌈⌉, ■, ◆.
SIGNS_FAMILY = "Measured Signs"
SIGNS_RANGE = "U+370-3FF,U+2200-22FF,U+2308-230B,U+25A0-25FF,U+2605,U+2606,U+2713,U+2B21,U+2B22"
SERIAL = re.compile(r"^(\w+)-([0-9a-f]{8})\.woff2$")


class FontError(Exception):
    """The fonts in docs/assets are not what they should be."""


def stored(folder: Path = FOLDER) -> dict[str, Path]:
    """The files of the site's fonts, by their short name."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.woff2")):
        match = SERIAL.match(path.name)
        if not match or match[1] not in CUTS or match[1] in found:
            raise FontError(f"{path.name} is no font of this site: make fonts")
        if hashlib.sha256(path.read_bytes()).hexdigest()[:8] != match[2]:
            raise FontError(f"{path.name} is not named after its content: make fonts")
        found[match[1]] = path
    if missing := sorted(CUTS.keys() - found):
        raise FontError(f"no font for {', '.join(missing)}: make fonts")
    return found


def faces(prefix: str, folder: Path = FOLDER) -> str:
    """The rules that name the files; `prefix` leads from a page to the root of the site."""
    return "".join(
        f'@font-face{{font-family:"{family}";'
        f'src:url("{prefix}assets/fonts/{stored(folder)[name].name}") format("woff2");'
        f"font-weight:{weight};font-display:swap{range_}}}"
        for family, name, weight, range_ in (
            (CUTS["text"].family, "text", "400 700", ""),
            (CUTS["code"].family, "code", "400", ""),
            (CUTS["math"].family, "math", "400", ""),
            (SIGNS_FAMILY, "math", "400 700", f";unicode-range:{SIGNS_RANGE}"),
        )
    )


def renew(folder: Path = FOLDER) -> list[Path]:
    """Cut the fonts again from the packages named above; needs npm and fontTools."""
    made = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, cut in CUTS.items():
            package = _fetched(cut.package, Path(scratch))
            made[name] = subset(cut, package / cut.file)
            license_text = (package / "LICENSE.txt").read_bytes()
    if (total := sum(map(len, made.values()))) > LIMIT:
        raise FontError(f"{total:,} bytes of fonts, more than {LIMIT:,}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "LICENSE.txt").write_bytes(license_text)
    paths = []
    for name, data in made.items():
        paths.append(folder / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}.woff2")
        paths[-1].write_bytes(data)
    return paths


def _fetched(package: str, folder: Path) -> Path:
    """A package of npm, unpacked."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), package]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FontError(f"npm cannot fetch {package}: {done.stderr.strip()}")
    archive = folder / done.stdout.strip().splitlines()[-1]
    target = folder / archive.stem
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="data")
    return target / "package"


def subset(cut: Cut, source: Path) -> bytes:
    """A font cut to its characters, under the site's name for it, as WOFF2."""
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont
    from fontTools.varLib.instancer import instantiateVariableFont

    font = TTFont(source, recalcTimestamp=False)
    options = Options(
        layout_features=list(cut.features),
        hinting=False,
        desubroutinize=True,
        name_IDs=[0, 1, 2, 3, 4, 6, 13, 14],
        notdef_outline=True,
        drop_tables=[*Options._drop_tables_default, "meta", "VDMX"],
    )
    if "MATH" in font:
        _fewer_sizes(font)
    cutter = Subsetter(options)
    cutter.populate(unicodes=map(ord, cut.characters))
    cutter.subset(font)
    if cut.axes:
        font = instantiateVariableFont(font, dict(cut.axes))
    for letter in cut.raised:
        _raise(font, letter)
    _rename(font, cut.family)
    font.flavor = "woff2"
    written = BytesIO()
    font.save(written)
    return written.getvalue()


def _fewer_sizes(font: Any) -> None:
    """Of a sign that grows, keep the sizes no wider than the pieces that make the largest ones.

    Chromium gives a formula in a line room for the widest size that a sign could have, and Plex
    has thirteen: a root would be followed by a gap of a third of an em.
    """
    for construction in font["MATH"].table.MathVariants.VertGlyphConstruction:
        if construction.GlyphAssembly:
            pieces = (part.glyph for part in construction.GlyphAssembly.PartRecords)
            widest = max(font["hmtx"][piece][0] for piece in pieces)
            sizes = construction.MathGlyphVariantRecord
            kept = [size for size in sizes if font["hmtx"][size.VariantGlyph][0] <= widest]
            construction.MathGlyphVariantRecord = kept
            construction.VariantCount = len(kept)


def _raise(font: Any, letter: str) -> None:
    """Add the small raised form of a capital: the capital itself, scaled, its top where it was.

    As a composite, so that it grows bolder with its capital where the font is variable.
    """
    from fontTools.ttLib.tables._g_l_y_f import Glyph, GlyphComponent

    scale = 0.66
    base = font.getBestCmap()[ord(letter)]
    name = f"{base}.raised"
    advance, bearing = font["hmtx"][base]
    fixed = font["post"].isFixedPitch or font["OS/2"].panose.bProportion == 9
    width = advance if fixed else round(advance * scale)
    part = GlyphComponent()
    part.glyphName, part.flags = base, 0
    part.transform = [[scale, 0], [0, scale]]
    part.x = round((width - advance * scale) / 2)
    part.y = round(font["OS/2"].sCapHeight * (1.06 - scale))
    glyph = Glyph()
    glyph.numberOfContours, glyph.components = -1, [part]
    font.setGlyphOrder([*font.getGlyphOrder(), name])
    font["glyf"].glyphs[name] = glyph
    font["glyf"].glyphOrder = font.getGlyphOrder()
    font["hmtx"].metrics[name] = (width, round(bearing * scale) + part.x)
    if "gvar" in font:
        font["gvar"].variations[name] = []
        if "HVAR" in font:
            del font["HVAR"]  # it lists every glyph; "gvar" says the same
    glyph.recalcBounds(font["glyf"])
    for table in font["cmap"].tables:
        if table.isUnicode():
            table.cmap[MODIFIER_CAPITALS[letter]] = name


def _rename(font: Any, family: str) -> None:
    """Give a font another name: the license reserves that of the original."""
    plain = family.replace(" ", "")
    texts = {1: family, 2: "Regular", 3: f"{plain}-subset", 4: family, 6: plain}
    names = font["name"]
    for record in list(names.names):
        if record.nameID in texts:
            names.setName(texts[record.nameID], record.nameID, 3, 1, 0x409)
        if (record.platformID, record.langID) != (3, 0x409):
            names.removeNames(record.nameID, record.platformID, record.platEncID, record.langID)


def characters(path: Path) -> set[str]:
    """What a font can show."""
    from fontTools.ttLib import TTFont

    return set(map(chr, TTFont(path, lazy=True).getBestCmap()))


def missing(text: Iterable[str], fonts: Iterable[set[str]]) -> Iterator[str]:
    """The characters of a text that none of these fonts has."""
    there = set().union(*fonts) | set("\n\t\r\u200b\u2009\u202f\u00ad")
    yield from sorted({*text} - there)
