"""What coalescing's figure says of distance and of lanes, from made-up times."""

from snippets.coalescing import figures
from tests.made_up import result, timed

DEVICE = {"name": "Some GPU", "l2_bytes": 60 << 20, "power_limit_w": 700.0}
COPY = {1: 1.0, 2: 1.5, 4: 2.5, 8: 4.0, 16: 8.0, 32: 9.0, 64: 12.0}  # stride → milliseconds


def sentences(ms, wide=1.0):
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
    return figures.strides([result("coalescing", "strides", rows, device=DEVICE)]).sentences


def test_what_memory_hands_out_at_a_time_is_where_the_time_stops_doubling():
    beyond = sentences(COPY)["beyond"]
    assert "from 32 to 64 bytes apart the time nearly doubles" in beyond
    assert "64 bytes at a time, 2 sectors" in beyond
    assert "1.12× to 128 bytes and 1.33× to 256 bytes" in beyond
    assert "128 bytes at a time, 4 sectors" in sentences(COPY | {32: 16.0, 64: 17.0})["beyond"]
    flat = sentences(COPY | {16: 4.2, 32: 4.4, 64: 4.6})["beyond"]
    assert "not with the distance" in flat


def test_several_elements_a_lane_are_compared_at_each_stride():
    said, empty, heads, _, *rows = sentences(COPY, wide=1.5)["wide"].splitlines()
    assert "takes 1.50× the time" in said
    assert empty == ""
    assert heads == "| stride | 1 | 2 | 4 | 8 | 16 | 32 | 64 |"
    assert rows == [f"| {dtype} |" + " 1.50× |" * 7 for dtype in ("float32", "float16")]
