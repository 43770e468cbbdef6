"""A small drawing for each post of the road, in the colors that its tensors have on every page.

All are 72 by 48, of squares and lines: a picture to recognize, not to read. A post without one gets
the triangle of a causal mask.
"""

from collections.abc import Callable, Iterable

from snippets._lab.draw.identity import MEMORIES, TENSORS

WIDE, TALL = 72, 48
LINE = "var(--am-axis)"
Q, K, V, S, W, O = (TENSORS[n] for n in ("q", "k", "v", "scores", "weights", "output"))  # noqa: E741
HBM, SHARED, REGISTERS = (MEMORIES[n] for n in ("HBM", "shared memory", "registers"))


def _box(x: float, y: float, wide: float, tall: float, color: str, strength: float = 1.0) -> str:
    opacity = f' opacity="{strength:g}"' if strength < 1 else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" fill="{color}"{opacity}/>'


def _grid(
    x: float, y: float, rows: int, columns: int, shade: Callable[[int, int], float], color: str
) -> list[str]:
    """Squares of 5 with gaps of 1, each as strong as `shade` says."""
    return [
        _box(x + 6 * j, y + 6 * i, 5, 5, color, shade(i, j))
        for i in range(rows)
        for j in range(columns)
        if shade(i, j) > 0
    ]


def _line(x: float, y: float, to_x: float, to_y: float, color: str = LINE) -> str:
    return f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" stroke="{color}" stroke-width="1.5"/>'


def _mask() -> list[str]:
    return _grid(15, 3, 7, 7, lambda i, j: 0.95 * 0.72 ** (i - j) if j <= i else 0.0, S)


def _one_row() -> list[str]:
    """One query looks at every key."""
    weights = (0.15, 0.9, 0.3, 0.15, 0.55, 0.2)
    keys = [_box(6 + 11 * j, 4, 8, 8, K) for j in range(6)]
    looks = [
        f'<path d="M36 36L{10 + 11 * j} 13" stroke="{W}" stroke-width="{4 * weight:g}"/>'
        for j, weight in enumerate(weights)
    ]
    return [*looks, *keys, _box(31, 34, 10, 10, Q)]


def _heads() -> list[str]:
    tones = (Q, K, V, O)
    return [
        _box(6 + 16 * j, 6 + 9 * i, 12, 7, c, 1 - 0.2 * i)
        for j, c in enumerate(tones)
        for i in range(4)
    ]


def _square() -> list[str]:
    return [
        _box(4, 6, 6, 36, Q),
        _box(14, 2, 36, 3, K),
        _box(14, 6, 36, 36, S, 0.55),
        _box(54, 6, 6, 36, O),
    ]


def _sectors() -> list[str]:
    along = [_box(6 + 7.5 * j, 10, 6, 8, HBM) for j in range(8)]
    down = [_box(6 + 7.5 * j, 28, 6, 8, HBM, 1.0 if j % 4 == 0 else 0.22) for j in range(8)]
    return along + down


def _turns() -> list[str]:
    return [
        _box(
            6 + 15 * ((i + j) % 4),
            5 + 10 * i,
            13,
            7,
            REGISTERS if j == 0 else LINE,
            1 if j == 0 else 0.25,
        )
        for i in range(4)
        for j in range(4)
    ]


def _slots() -> list[str]:
    return [
        _box(6, 8, 9, 9, Q),
        *[_box(22 + 11 * j, 8, 9, 9, K, 1 if j == 1 else 0.25) for j in range(4)],
        *_grid(6, 30, 1, 10, lambda i, j: 1 if j == 4 else 0.22, S),
        _line(37, 19, 33, 28),
    ]


def _one_load() -> list[str]:
    return [_box(6, 6, 6, 36, Q), *_grid(20, 4, 7, 7, lambda i, j: 1.0, K)]


def _three() -> list[str]:
    boxes = [_box(4 + 24 * i, 18, 16, 12, color) for i, color in enumerate((S, W, O))]
    return [*boxes, _line(20, 24, 28, 24), _line(44, 24, 52, 24), _box(4, 38, 64, 4, HBM, 0.6)]


def _slide() -> list[str]:
    tiles = [_box(20 + 12 * j, 4, 10, 8, K, 1 if j == 2 else 0.25) for j in range(4)]
    return [
        *tiles,
        _box(4, 16, 10, 28, Q),
        *[_box(20 + 12 * j, 16, 10, 28, S, 0.9 if j == 2 else 0.2) for j in range(4)],
    ]


def _tensor_cores() -> list[str]:
    return [
        *_grid(4, 12, 4, 4, lambda i, j: 0.9, Q),
        *_grid(40, 12, 4, 4, lambda i, j: 0.9, K),
        f'<circle cx="34" cy="23.5" r="2.5" fill="{W}"/>',
    ]


def _roles() -> list[str]:
    rows = ((LINE, 0), (V, 10), (O, 20))
    return [
        _box(4 + start + 22 * j, 6 + 14 * i, 17, 9, color)
        for i, (color, start) in enumerate(rows)
        for j in range(3 if start < 5 else 2)
    ]


def _under() -> list[str]:
    """Two rows of products without a gap, and the softmax of each under the other's."""
    tones = (S, O)
    products = [_box(4 + 16 * i, 6, 15, 14, tones[i % 2]) for i in range(4)]
    softmax = [_box(4 + 16 * i, 28, 15, 9, tones[1 - i % 2], 0.5) for i in range(1, 4)]
    return [*products, *softmax, _line(4, 24, 68, 24)]


def _splits() -> list[str]:
    """One query, its keys in three shares, and a part of each."""
    return [
        *_grid(33, 3, 1, 1, lambda i, j: 1.0, Q),
        *_grid(4, 14, 1, 11, lambda i, j: 0.9 if j // 4 != 1 else 0.5, K),
        *(_line(x, 22, x, 28) for x in (15, 39, 60)),
        *(_box(x - 4, 29, 8, 5, O, 0.6) for x in (15, 39, 60)),
        *(_line(x, 35, 36, 40) for x in (15, 39, 60)),
        _box(31, 40, 10, 6, O),
    ]


def _gradients() -> list[str]:
    """A tile of keys goes down the queries and adds to each tile of dQ."""
    return [
        *_grid(4, 12, 6, 1, lambda i, j: 0.9, Q),
        *_grid(22, 3, 1, 7, lambda i, j: 1.0 if j == 2 else 0.25, K),
        *_grid(22, 12, 6, 7, lambda i, j: 0.95 if j == 2 else 0.2, S),
        *[_line(12, 14.5 + 6 * i, 19, 14.5 + 6 * i) for i in range(6)],
    ]


def _four_roles() -> list[str]:
    """A loader, two consumers that take turns, and a warp that adds dQ."""
    rows = ((LINE, 0, 10), (S, 8, 16), (S, 19, 16), (Q, 27, 8))
    return [
        _box(2 + start + 22 * j, 4 + 11 * i, wide, 7, color)
        for i, (color, start, wide) in enumerate(rows)
        for j in range(2)
    ]


def _ring() -> list[str]:
    """Queries stay at four places, and keys travel from one to the next."""
    places = ((36, 7), (58, 24), (36, 41), (14, 24))
    between = ((50, 12), (50, 36), (22, 36), (22, 12))
    line = f'fill="none" stroke="{LINE}" stroke-width="1.5"'
    return [
        f'<ellipse cx="36" cy="24" rx="22" ry="17" {line}/>',
        *[_box(x - 5, y - 5, 10, 10, Q) for x, y in places],
        *[_box(x - 3, y - 3, 6, 6, K) for x, y in between],
    ]


def _loss() -> list[str]:
    """A loss that falls, and the bytes that the model writes in the end."""
    return [
        _line(6, 4, 6, 43),
        _line(5, 43, 68, 43),
        f'<path d="M9 7C13 29 27 34 66 38" fill="none" stroke="{W}" stroke-width="2.5"/>',
        *_grid(36, 8, 1, 5, lambda i, j: 0.9, O),
        *_grid(42, 16, 1, 4, lambda i, j: 0.5, O),
    ]


DRAWINGS: dict[str, Callable[[], Iterable[str]]] = {
    "attention_weights": _one_row,
    "multi_head_attention": _heads,
    "attention_memory": _square,
    "coalescing": _sectors,
    "latency_hiding": _turns,
    "basic_attention": _slots,
    "vectorized_attention": _one_load,
    "composed_attention": _three,
    "tiled_attention": _slide,
    "flash_attention": _tensor_cores,
    "warp_specialization": _roles,
    "hopper_attention": _under,
    "flash_backward": _gradients,
    "hopper_backward": _four_roles,
    "decode_attention": _splits,
    "ring_attention": _ring,
    "language_model": _loss,
}


def thumbnail(post: str) -> str:
    """A post's drawing as inline SVG. It shows nothing that the title does not say."""
    drawn = "".join(DRAWINGS.get(post, _mask)())
    return f'<svg class="am-thumbnail" viewBox="0 0 {WIDE} {TALL}" aria-hidden="true">{drawn}</svg>'
