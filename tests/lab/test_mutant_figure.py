"""The picture of wrong kernels: what was changed, how far off the numbers are, who noticed."""

import math

import pytest

from snippets._lab.draw.mutant_figure import Kill, change, distance, picture


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("mask = offs < n  # whole", "mask = offs < n - 1", "mask = offs &lt; n<ins> - 1</ins>"),
        ("    a = b * scale", "    a = b", "a = b<del> * scale</del>"),
        ("x = f(a)", "x = f(b)", "x = f(<del>a</del><ins>b</ins>)"),
        ("p = exp(s)", "q = 1", "<del>p = exp(s)</del>\n<ins>q = 1</ins>"),
        ("keep()\na = b + 1", "keep()\na = b + 2", "a = b + <del>1</del><ins>2</ins>"),
        ("a()\nb()", "a()", "<del>b()</del>"),
    ],
)
def test_what_was_changed_is_marked_and_nothing_else(old, new, shown):
    assert change(old, new) == shown


@pytest.mark.parametrize(
    ("message", "times", "short"),
    [
        ("largest difference 2.00e+00 from float64, allowed 1.00e-03 at q", 2000, "2000×"),
        ("largest difference 5.00e-01 from float64, 3.0e+06 times what is allowed", 3e6, "3.0e6×"),
        ("largest difference inf from float64, allowed 1.00e-03", math.inf, "∞"),
        ("31 of 32 elements differ, first [1]", None, "31 of 32 elements differ, first [1]"),
        ("difference 4 bytes from the 28 counted, allowed 0", None, "difference 4 bytes"),
    ],
)
def test_a_message_becomes_a_distance(message, times, short):
    far = distance(message)
    assert far.times == (times if times is None else pytest.approx(times))
    assert far.short.startswith(short)


def test_what_is_no_number_has_a_bar_of_its_own():
    far = distance("largest difference nan from float64, allowed 1.00e-03")
    assert math.isnan(far.times)
    html = picture([Kill("m", "d", "largest difference nan from float64, allowed 1e-3")], "off")
    assert 'class="am-off-any"' in html
    assert "NaN" in html


def test_bars_share_one_logarithmic_scale():
    kills = [
        Kill(str(n), "d", f"difference {n}e+00 from float64, allowed 1.0e+00", test="test_a[1-x]")
        for n in (1, 10, 100)
    ]
    html = picture(kills, "error ÷ allowed")
    assert [f"--off:{n}%" in html for n in (2, 50, 100)] == [True] * 3
    assert "test_<wbr>a[1-<wbr>x]" in html


def test_names_and_code_are_no_markup():
    html = picture([Kill("a < b", "`x` & <b>", "31 of 32 differ", "a < b", "a > b")], "off")
    assert "a &lt; b</th>" in html
    assert "<code>x</code> &amp; &lt;b&gt;" in html
