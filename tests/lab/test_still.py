"""The labeled picture that stands for a chart until its library has come."""

import re

from snippets._lab.draw.chart import Axis, Chart, Mark, Panel, Rule
from snippets._lab.draw.still import still

LOG = Axis("N", log=True, low=1, high=100, ticks=((1, "1"), (10, "10"), (100, "100")))
TEN = Axis("time, ms", low=0, high=10, ticks=((0, "0"), (10, "10")))
NAMES = Axis(low=1.5, high=-0.5, names=("a long name", "b"))
FOUR = Axis("ms", low=0, high=4, ticks=((0, "0"), (4, "4")))


def line(*values, **fields):
    return Mark("line", "ours", (1, 10, 100), values, ("#123456",), **fields)


def bars(*values, upright=True, **fields):
    at = tuple(range(len(values)))
    across, up = (at, values) if upright else (values, at)
    return Mark("bars", "", across, up, ("#123456",), upright=upright, **fields)


def drawn(mark, x=LOG, y=TEN, **fields):
    return still(Chart((Panel("", x, y, (mark,), **fields),)))


def test_a_line_lies_where_it_will_be_drawn():
    assert 'stroke="#123456" d="M0 400L400 0"/>' in drawn(line(0, None, 10))
    assert 'd="M0 400L200 200L400 0"/>' in drawn(line(0, 5, 10))
    assert 'stroke-dasharray="7 4"' in drawn(line(0, 5, 10, dash="dash"))


def test_bars_stand_beside_or_upon_each_other():
    upright = Axis(low=-0.5, high=1.5, names=("a", "b"))
    assert 'd="M20 400V300H180V400ZM220 400V100H380V400Z"' in drawn(
        bars(1, 3, thickness=0.8), upright, FOUR
    )
    upon = bars(2, 1, thickness=0.8, base=(1.0, 3.0))
    assert 'd="M20 300V100H180V300ZM220 100V0H380V100Z"' in drawn(upon, upright, FOUR)


def test_lying_bars_leave_room_for_their_names():
    html = drawn(bars(1, 2, upright=False, thickness=0.8), FOUR, NAMES)
    assert "--l:91px" in html
    assert 'd="M0 20H100V180H0Z' in html
    assert ">a long name</text>" in html


def test_panels_have_a_place_on_a_laptop_and_on_a_phone():
    panels = tuple(Panel(title, LOG, TEN, (line(0, 5, 10),)) for title in ("one", "two"))
    html = still(Chart(panels))
    places = re.findall(r'<svg style="([^"]*)">', html)
    assert len(places) == 2
    assert "--x:0%;" in places[0]
    assert "--x:0%;" not in places[1]
    assert all("--nx:0%;" in place and "--nw:100%;" in place for place in places)
    assert "--ny:0%;" in places[1]


def test_what_both_screens_show_is_written_once():
    html = drawn(line(0, 5, 10))
    assert html.count(">time, ms</text>") == 1
    assert html.count(">100</text>") == 1


def test_a_mark_that_is_no_disc_is_a_letter_of_its_symbol():
    html = drawn(Mark("dots", "", (10,), (5,), ("#123456",), symbols=("diamond-open",), size=20))
    assert '<text x="50%" y="50%" fill="#123456">◇</text>' in html
    assert "font-size:30px" in html
    disc = drawn(Mark("dots", "", (10,), (5,), ("#123456",), size=9))
    assert 'd="M200 200h0"' in disc
    assert "am-symbols" not in disc


def test_a_rule_is_drawn_and_named():
    html = drawn(line(0, 5, 10), rules=(Rule(10, "here", "x"), Rule(5, "at most")))
    assert 'd="M200 0V400"' in html
    assert ">here</text>" in html
    assert 'd="M0 200H400"' in html
    assert "┄</tspan> at most</text>" in html
