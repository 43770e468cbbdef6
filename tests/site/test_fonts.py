"""The fonts that are stored: few, small, named after their content, and of our own names."""

import re
import shutil

import pytest
from fontTools.ttLib import TTFont

from snippets._lab.rooms import ROOT
from snippets._site import fonts
from tests.floors import some

STYLE = (ROOT / "docs/assets/stylesheets/type.css").read_text("utf-8")


@pytest.fixture(scope="module")
def stored():
    return {name: TTFont(path) for name, path in fonts.stored().items()}


def test_three_files_of_eighty_kilobytes():
    sizes = [path.stat().st_size for path in fonts.FOLDER.glob("*.woff2")]
    assert len(sizes) == 3
    assert sum(sizes) <= fonts.LIMIT == 80_000


def test_each_is_named_after_its_content(tmp_path):
    shutil.copytree(fonts.FOLDER, tmp_path / "fonts")
    (path,) = (tmp_path / "fonts").glob("code-*.woff2")
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(fonts.FontError, match="not named after its content"):
        fonts.stored(tmp_path / "fonts")
    path.unlink()
    with pytest.raises(fonts.FontError, match="no font for code"):
        fonts.stored(tmp_path / "fonts")


def test_each_has_a_name_of_ours_and_its_license_is_published(stored):
    """The license reserves the name of the original for the original."""
    for name, font in some(stored.items()):
        names = {n.nameID: n.toUnicode() for n in font["name"].names}
        assert names[1] == fonts.CUTS[name].family
        assert not [
            text for key, text in some(names.items()) if key in (1, 3, 4, 6) and "Plex" in text
        ]
        assert "SIL Open Font License" in names[13]
    text = (fonts.FOLDER / "LICENSE.txt").read_text("utf-8")
    assert "SIL OPEN FONT LICENSE" in text
    assert 'Reserved Font Name "Plex"' in text


def test_the_font_of_formulas_can_still_set_formulas(stored):
    table = stored["math"]["MATH"].table
    assert table.MathConstants.FractionRuleThickness.Value > 0
    root = stored["math"].getBestCmap()[ord("√")]
    pieces = table.MathVariants
    for letter in "()[]⌈⌉√∑":
        glyph = stored["math"].getBestCmap()[ord(letter)]
        sizes = pieces.VertGlyphConstruction[pieces.VertGlyphCoverage.glyphs.index(glyph)]
        assert len(sizes.MathGlyphVariantRecord) > 1, letter
        assert sizes.GlyphAssembly or letter == "∑"
        if glyph == root:  # what Chromium leaves free after a root in a line
            widths = [
                stored["math"]["hmtx"][s.VariantGlyph][0] for s in sizes.MathGlyphVariantRecord
            ]
            assert max(widths) - widths[0] < 0.05 * stored["math"]["head"].unitsPerEm


def test_every_character_that_is_asked_for_is_there(stored):
    for name, font in some(stored.items()):
        wanted = {
            *fonts.CUTS[name].characters,
            *map(chr, map(fonts.MODIFIER_CAPITALS.get, fonts.CUTS[name].raised)),
        }
        assert wanted - set(map(chr, font.getBestCmap())) == set(), name


def test_the_transpose_is_a_small_raised_capital(stored):
    for name in ("text", "code"):
        font = stored[name]
        capital, raised = (font.getBestCmap()[code] for code in (ord("T"), 0x1D40))
        low, high = font["glyf"][raised].yMin, font["glyf"][raised].yMax
        assert 0.2 * font["glyf"][capital].yMax < low < 0.6 * font["glyf"][capital].yMax, name
        assert high > font["glyf"][capital].yMax, name


def test_the_rules_lead_from_each_level_to_the_files_and_block_nothing():
    for prefix in ("", "../../", "/deep/"):
        rules = fonts.faces(prefix)
        assert set(re.findall(r'url\("([^"]+)"\)', rules)) == {
            f"{prefix}assets/fonts/{path.name}" for path in fonts.stored().values()
        }
        assert rules.count("@font-face") == rules.count("font-display:swap") == 4


def test_every_font_has_a_stand_in_of_its_own_widths():
    for family in ("Text Before", "Code Before"):
        rules = re.findall(rf'@font-face \{{\s*font-family: "{family}.*?\}}', STYLE, re.DOTALL)
        assert rules
        for rule in rules:
            assert "url(" not in rule
            for name in ("size-adjust", "ascent-override", "descent-override", "line-gap-override"):
                assert name in rule


def test_what_a_font_lacks_is_told(stored):
    assert list(fonts.missing("aΩ中√\n", map(fonts.characters, fonts.stored().values()))) == ["中"]
