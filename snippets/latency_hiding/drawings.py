"""The drawings of the page: the GPU, waiting warps, a pipe of bytes, and waves of programs."""

from typing import NamedTuple

from snippets._lab.draw.drawings import INK, LINES, MUTED, arrow, box, labelled, svg, words
from snippets._lab.draw.identity import identity, oklch

REGISTERS, SHARED, L2, HBM = (
    identity(name).colour for name in ("registers", "shared memory", "L2", "HBM")
)
TENSOR, EXPONENTIAL, CORES = oklch(0.6, 0.15, 22), oklch(0.6, 0.13, 330), oklch(0.6, 0.1, 45)
WAIT = "var(--am-axis)"
QUARTERS = 4  # of a multiprocessor, each with a scheduler of its own
WIDE = 396  # fits a phone at nine tenths


class Level(NamedTuple):
    """What is written on a memory: its name, size, rate and latency, as text; "" if unknown."""

    name: str
    size: str
    rate: str
    latency: str

    def line(self):
        """What is known, in one line."""
        return " · ".join(x for x in (self.size, self.rate, self.latency) if x)


def gpu(chip, levels, units):
    """One streaming multiprocessor inside its chip.

    chip: the GPU's name and how many multiprocessors it has. levels: registers, shared memory
    (with L1), L2, HBM. units: tensor cores, float32 cores, exponential units, and what each does.
    """
    name, many = chip
    registers, shared, l2, hbm = levels
    tensor, cores, exponential = units
    left, wide = 10, WIDE - 20
    drawn = [
        box(1, 1, WIDE - 2, 488, LINES, 6, 1),
        words(
            left + 2, 20, f"{name}: {many} streaming multiprocessors (SM)", 13, 600, anchor="start"
        ),
        box(left, 30, wide, 318, LINES, 14, 1),
        words(left + 10, 49, "one of them", 12, 600, anchor="start"),
    ]
    gap = 8
    part = (wide - 20 - (QUARTERS - 1) * gap) / QUARTERS
    for quarter in range(QUARTERS):
        x = left + 10 + quarter * (part + gap)
        drawn += _quarter(x, part, quarter)
    drawn += [
        *_band(left + 10, 148, wide - 20, 34, REGISTERS, "registers", registers.line()),
        *_band(left + 10, 188, wide - 20, 34, CORES, "float32 cores", cores),
        *_band(left + 10, 228, wide - 20, 34, TENSOR, "tensor cores", tensor),
        *_band(left + 10, 268, wide - 20, 34, EXPONENTIAL, "exponential units", exponential),
        *_band(left + 10, 308, wide - 20, 34, SHARED, "L1, shared memory", shared.line()),
        *_link(348, "all multiprocessors share"),
        *_band(left, 376, wide, 44, L2, "L2 cache", l2.line()),
        *_link(420, ""),
        *_band(left, 440, wide, 42, HBM, "HBM, its memory", hbm.line()),
    ]
    about = (
        f"The {name}: {many} streaming multiprocessors. Each has four warp schedulers with up to "
        f"16 warps each; registers: {registers.line()}; float32 cores: {cores}; tensor cores: "
        f"{tensor}; exponential units: {exponential}; shared memory and L1: {shared.line()}. "
        f"All share L2: {l2.line()}; and HBM: {hbm.line()}."
    )
    return svg(WIDE, 490, about, drawn)


def _quarter(x, wide, number):
    """A scheduler and the warps it chooses from."""
    yield labelled(x, 58, wide, 22, INK, f"scheduler {number}")
    side, gap = (wide - 7 * 3) / 8, 3
    for warp in range(16):
        at = x + warp % 8 * (side + gap), 92 + warp // 8 * (side + gap)
        yield box(*at, side, side, identity("consumer 0").colour, 70 if warp == number else 22)
    yield words(x + wide / 2, 136, "16 warps", 10, colour=MUTED)


def _band(x, y, wide, tall, colour, name, said):
    """A box across, its name on the left and what is known of it on the right."""
    middle = y + tall / 2 + 4
    return [
        box(x, y, wide, tall, colour, 22, 1),
        words(x + 8, middle, name, 11.5, 600, anchor="start"),
        words(x + wide - 8, middle, said, 11, anchor="end"),
    ]


def _link(y, said):
    middle = WIDE / 2
    yield arrow(f"M{middle:g} {y + 4:g}V{y + 18:g}", (middle, y + 18), "down", MUTED)
    if said:
        yield words(middle + 12, y + 16, said, 10, colour=MUTED, anchor="start")


def warps(latency, work, counts):
    """What a scheduler does over time with few warps and with many.

    latency and work: cycles that a warp waits, and that it has instructions for, in turn. One
    drawing for each number of warps in `counts`, all with the same scale.
    """
    span = 2.4 * (latency + work)
    scale, top, drawn = (WIDE - 96) / span, 16, []
    for number in counts:
        told = "1 warp" if number == 1 else f"{number} warps"
        busy = min(1.0, number * work / (latency + work))
        drawn.append(words(0, top + 4, told, 12, 600, anchor="start"))
        said = f"busy {100 * busy:.0f} % of the time"
        drawn.append(words(WIDE, top + 4, said, 11, colour=MUTED, anchor="end"))
        top += 12
        period = max(latency + work, number * work)
        for warp in range(number):
            y, start = top + warp * 15, warp * work
            drawn.append(words(84, y + 10, f"warp {warp}", 10, colour=MUTED, anchor="end"))
            while start < span:
                drawn.append(
                    _span(
                        start, min(work, span - start), y, scale, identity("consumer 0").colour, 70
                    )
                )
                rest = start + work
                if rest < span:
                    long = min(period - work, span - rest)
                    drawn.append(_span(rest, long, y, scale, WAIT, 18))
                start += period
        top += number * 15 + 22
    drawn += [
        box(90, top - 10, 12, 10, identity("consumer 0").colour, 70),
        words(106, top - 1, "issues instructions", 10.5, anchor="start"),
        box(230, top - 10, 12, 10, WAIT, 18),
        words(246, top - 1, "waits for its load", 10.5, anchor="start"),
    ]
    about = (
        "A scheduler with "
        + " and with ".join(map(str, counts))
        + (
            " warps, time from left to right. Each warp issues instructions and then waits for a "
            "load; with more warps another one issues while it waits."
        )
    )
    return svg(WIDE, top + 6, about, drawn)


def _span(start, long, y, scale, colour, percent):
    return box(90 + start * scale, y, max(long * scale, 0.5), 12, colour, percent)


def pipe(latency, rate, bytes_needed):
    """Little's law: a pipe as long as the latency and as wide as the bandwidth."""
    x, y, wide, tall = 30, 50, WIDE - 60, 84
    drawn = [box(x, y, wide, tall, HBM, 22, 1)]
    for row in range(4):
        for column in range(14):
            at = x + 8 + column * (wide - 16) / 14, y + 8 + row * (tall - 16) / 4
            drawn.append(box(*at, 17, 12, HBM, 70))
    drawn += [
        words(WIDE / 2, 20, f"in the pipe at once: {bytes_needed}", 13, 600),
        arrow(f"M{x} 38H{x + wide}", (x + wide, 38), "right", MUTED),
        words(x, 34, "", 10),
        words(WIDE / 2, y + tall + 20, f"length: the latency, {latency}", 11.5),
        words(WIDE / 2, y + tall + 38, f"width: the bandwidth, {rate}", 11.5),
    ]
    about = (
        f"Memory as a pipe: its length is the latency, {latency}, its width the bandwidth, {rate}. "
        f"To keep it full, {bytes_needed} must be on their way at any time."
    )
    return svg(WIDE, y + tall + 48, about, drawn)


def waves(many, tiles):
    """Which multiprocessor works when, for some numbers of tiles; `many` are drawn as 12."""
    lanes, top, drawn = 12, 14, []
    unit, tall = (WIDE - 12) / 4, 8
    for number in tiles:
        full, rest = divmod(number, many)
        last = -(-rest * lanes // many)  # at least one is drawn where one is there
        used = number / (many * (full + (rest > 0)))
        drawn.append(words(0, top, f"{number} tiles", 12, 600, anchor="start"))
        said = f"{100 * used:.0f} % of the multiprocessors' time used"
        drawn.append(words(WIDE, top, said, 11, colour=MUTED, anchor="end"))
        top += 8
        for wave in range(full + (rest > 0)):
            for lane in range(lanes):
                works = wave < full or lane < last
                look = (identity("consumer 0").colour, 60) if works else (WAIT, 12)
                drawn.append(box(wave * (unit + 4), top + lane * tall, unit, tall - 2, *look))
        top += lanes * tall + 24
    about = "; ".join(
        f"{number} tiles on {many} multiprocessors take {-(-number // many)} waves"
        for number in tiles
    )
    return svg(WIDE, top - 10, f"{about}. In a last wave with few tiles most stand idle.", drawn)
