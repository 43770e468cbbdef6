"""What coalescing's figure says of distance and of lanes, from made-up times."""

import pytest

from snippets.coalescing import figures
from tests.made_up import result, timed

DEVICE = {"name": "Some GPU", "l2_bytes": 60 << 20, "power_limit_w": 700.0}
COPY = {1: 1.0, 2: 1.5, 4: 2.5, 8: 4.0, 16: 8.0, 32: 9.0, 64: 12.0}  # stride → milliseconds


def strides(ms, wide=1.0):
    rows = [
        timed(
            time * (wide if name == "coalescing:wide" else 1),
            implementation=name,
            dtype=dtype,
            stride=stride,
            elements=2**26,
            element_bytes=size,
            sector_bytes=32,
            bytes_useful=2 * 2**26 * size,
        )
        for dtype, size in (("float32", 4), ("float16", 2))
        for stride, time in ms.items()
        for name in ("coalescing", "coalescing:wide", "torch:clone")
    ]
    return figures.strides([result("coalescing", "strides", rows, device=DEVICE)])


@pytest.mark.parametrize(
    ("copy", "growth", "doubles", "slows"),
    [
        (COPY, "2.0×", True, True),
        (COPY | {32: 16.0, 64: 17.0}, "2.0×", True, False),
        (COPY | {16: 4.2, 32: 4.4, 64: 4.6}, "1.05×", False, True),
    ],
)
def test_memory_hands_out_so_much_that_the_time_stops_doubling(copy, growth, doubles, slows):
    figure = strides(copy)
    assert figure.numbers["growth_64"] == growth
    assert figure.claims[f"{figures.PAGE}: the time nearly doubles again"] == doubles
    assert figure.claims[f"{figures.PAGE}: Farther apart it keeps growing, more slowly"] == slows


def test_several_elements_a_lane_are_compared_at_each_stride():
    figure = strides(COPY, wide=1.5)
    assert figure.numbers["wide"] == "1.50×"
