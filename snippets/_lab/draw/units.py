"""Every number of the site as text: one place that knows units, digits and signs.

A unit is called with one number, in the unit of the raw data, for a sentence: `time(0.0127)` is
"12.7 µs". What stands together, an axis or a column, has one unit: `time.scale(values)` chooses it
for all of them, and `scale.number(value)` is the number alone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

MINUS = "−"
FEW = 0.005  # of a unit: the least number that is still read well in it
LEAST = 1e-4  # what is smaller is written with a power of ten
MANY = 10_000  # from here on thousands are set apart


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, never as a power: "0.874", "12.7", "1234"."""
    if value and abs(value) < LEAST:
        return error(value)
    if abs(value) >= 10 ** (digits - 1):
        return count(round(value))
    return _sign(f"{value:.{digits}g}")


def count(value: float) -> str:
    """A whole number: "1024", "16,384"."""
    whole = round(value)
    return _sign(f"{whole:,}" if abs(whole) >= MANY else str(whole))


def plain(value: float) -> str:
    """A number with all its digits, as a data sheet states it: "4,800", "989.5"."""
    return _sign(f"{value:,.10g}")


def thousands(value: float) -> str:
    """A whole number whose thousands are always set apart: "1,024"."""
    return _sign(f"{round(value):,}")


def decimals(value: float, places: int = 2) -> str:
    """A number with so many decimals: "0.77"."""
    return _sign(f"{value:,.{places}f}")


def tenths(value: float) -> str:
    """A number that is counted, not measured: "140.7", "4.31"; whole where it is: "80"."""
    if float(value).is_integer():
        return count(value)
    return decimals(value, 1 if abs(value) >= 10 else 2)


def error(value: float) -> str:
    """A difference from the right result: "1.2e−6"; 0 is "0"."""
    if not value:
        return "0"
    digits, power = f"{value:.1e}".split("e")
    return f"{_sign(digits)}e{_sign(str(int(power)))}"


def ratio(value: float) -> str:
    """A factor: "0.78×", "7.6×", "514×"."""
    if value < 1.995:
        return f"{value:.2f}×"
    return f"{value:.1f}×" if value < 9.95 else f"{count(value)}×"


def measured_ratio(value: float) -> str:
    """A quotient of two times: as a factor, but of thousands no more digits than two runs share."""
    return ratio(float(f"{value:.1e}") if value >= 1000 else value)


def rough(value: float, digits: int = 1) -> str:
    """As many digits as two runs of the same code share, the others 0: of the host's time one.

    After a 1 that is too few: 10 would stand for 14.9. So there halves count: "10", "15", "20".
    """
    leading, _, power = f"{value:e}".partition("e")
    if digits == 1 and leading.startswith("1"):
        return significant(float(f"{round(2 * float(leading)) / 2}e{power}"))
    return significant(float(f"{value:.{digits - 1}e}"))


def rough_ratio(value: float) -> str:
    """A quotient of two such times: "2×"."""
    return f"{rough(value)}×"


def share(part: float, whole: float = 1.0) -> str:
    """A part of a whole: "84 %", "9.6 %"."""
    return percent(part / whole)


def exact(part: float) -> str:
    """A part whose digits are counted, not measured: "12.5 %"."""
    return f"{significant(100 * part)} %"


def change(gain: float) -> str:
    """A quotient as a change: 1.12 is "+12 %", 0.9 is "−10 %", 1.001 is "0 %"."""
    whole = round((gain - 1) * 100)
    return f"{_sign(f'{whole:+d}') if whole else '0'} %"


def many(number: int, thing: str, things: str = "") -> str:
    """A number of things: "1 head", "16 heads", "16,384 keys"."""
    return f"{count(number)} {thing if number == 1 else things or thing + 's'}"


def between(values: Iterable[float], text: Callable[[float], str] = decimals) -> str:
    """The range of some numbers: "0.77 to 0.92", "38 to 44 %"; one number where they agree."""
    found = list(values)
    low, high = text(min(found)), text(max(found))
    if low == high:
        return low
    number, gap, unit = low.rpartition(" ")
    return f"{number if gap and high.endswith(gap + unit) else low} to {high}"


def _sign(text: str) -> str:
    return text.replace("-", MINUS)


@dataclass(frozen=True)
class Scale:
    """One unit for all numbers of an axis or a column."""

    per: float  # one of it, in the unit of the raw data
    name: str  # "ms"; "" where a number needs none
    digits: Callable[[float], str] = significant

    def number(self, value: float) -> str:
        """The number alone, as it stands below a head that names the unit."""
        return self.digits(value / self.per)

    def text(self, value: float) -> str:
        """The number and its unit."""
        return f"{self.number(value)}{self.gap}{self.name}"

    @property
    def gap(self) -> str:
        """What stands between a number and this unit."""
        return " " if self.name not in ("", "×") else ""


@dataclass(frozen=True)
class Unit:
    """A kind of quantity: the units that it may have, from the smallest to the largest."""

    steps: tuple[tuple[float, str], ...]
    digits: Callable[[float], str] = significant
    word: Callable[[float], str] | None = None  # for one number by itself, if not as in a column
    few: float = FEW  # of a unit; below it the next smaller one is taken where small values count

    def __call__(self, value: float) -> str:
        """One number by itself, in the unit that suits it."""
        return self.word(value) if self.word else self.scale([value], small=False).text(value)

    def scale(self, values: Iterable[float], small: bool = True) -> Scale:
        """One unit for all values: chosen by the least of them, or without `small` by the largest.

        The least counts where it is read as well as the others: in a column, on a logarithmic axis.
        """
        sizes = [abs(v) for v in values if v] or [self.steps[0][0]]
        per, name = self.steps[0]
        for step, called in self.steps[1:]:
            enough = min(sizes) >= self.few * step and max(sizes) >= step
            if enough if small else max(sizes) >= 0.9995 * step:
                per, name = step, called
        return Scale(per, name, self.digits)


def _steps(base: float, *names: str) -> tuple[tuple[float, str], ...]:
    return tuple((base**power, name) for power, name in enumerate(names))


time = Unit(((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms"), (1e3, "s")))  # from milliseconds
host_time = Unit(time.steps, rough)  # what the host needs, from milliseconds
milliseconds = Unit(((1.0, "ms"),))  # for panels that have scales of their own, and one unit
microseconds = Unit(((1e-3, "ns"), (1.0, "µs"), (1e3, "ms")))  # from microseconds
seconds = Unit(((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")))  # from seconds
size = Unit(_steps(1000.0, "bytes", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"))  # from bytes
counted = Unit(size.steps, tenths)  # the same where every byte is counted
binary = Unit(_steps(1024.0, "bytes", "KiB", "MiB", "GiB"))  # of hardware, from bytes
kib = Unit(((1024.0, "KiB"),))  # a column of sizes in one of hardware's units
bandwidth = Unit(((1e9, "GB/s"), (1e12, "TB/s")))  # from bytes a second
flops = Unit(((1e9, "GFLOP/s"), (1e12, "TFLOP/s")), few=1e-6)  # from FLOP a second
watts = Unit(((1.0, "W"),), count)
megahertz = Unit(((1.0, "MHz"),), count)
number = Unit(((1.0, ""),))
whole = Unit(((1.0, ""),), count)
fraction = Unit(((1.0, ""),), decimals)
difference = Unit(((1.0, ""),), error)
millions = Unit(((1e6, "million"),), tenths)  # of parameters
times = Unit(((1.0, "×"),), word=ratio)


def _percents(value: float) -> str:
    if 0 < value < 0.1:
        return "under 0.1"
    return significant(value, 2) if abs(value) < 10 else count(value)


percent = Unit(((0.01, "%"),), _percents)  # from a share of 1


def _with_a_sign(value: float) -> str:
    whole = round(value)
    return _sign(f"{whole:+d}") if whole else "0"


gain = Unit(((0.01, "%"),), _with_a_sign)  # from what a quotient has above 1: "+12 %"
