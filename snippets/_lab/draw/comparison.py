"""One implementation beside others: how many times as fast, where, and whether that is a tie."""

from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from snippets._lab.draw import words
from snippets._lab.draw.rows import Gain, Row, pick
from snippets._lab.results.store import DataError


class Against(Mapping[Any, Gain]):
    """Case → how many times as fast ours is as the other: above 1 ours is faster."""

    def __init__(self, ours: Mapping[Any, Row], other: Mapping[Any, Row]) -> None:
        self.ours, self.other = ours, other
        self.ratios = {c: Gain(ours[c], other[c]) for c in ours if c in other}

    def __getitem__(self, case: Any) -> Gain:
        return self.ratios[case]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ratios)

    def __len__(self) -> int:
        return len(self.ratios)

    @property
    def best(self) -> Any:
        """The case in which ours stands best."""
        return max(self.ratios, key=lambda case: self.ratios[case])

    @property
    def worst(self) -> Any:
        """The case in which ours stands worst."""
        return min(self.ratios, key=lambda case: self.ratios[case])

    @property
    def ties(self) -> list[Any]:
        """The cases in which the two differ by less than their spread."""
        return [c for c, gain in self.ratios.items() if gain.tie]

    @property
    def ahead(self) -> list[Any]:
        """The cases in which ours takes less time, by more than the spread."""
        return [c for c, gain in self.ratios.items() if gain.ahead]

    @property
    def behind(self) -> list[Any]:
        """The cases in which ours takes more time, by more than the spread."""
        return [c for c, gain in self.ratios.items() if gain.behind]

    def where(self, **wanted: Any) -> "Against":
        """The same for the cases with these values."""
        mine = {
            case: row
            for case, row in self.ours.items()
            if all(getattr(case, axis) == value for axis, value in wanted.items())
        }
        return Against(mine, self.other)

    def span(self) -> str:
        """The range in words: "1.2× to 3.4× faster"."""
        return words.span(self.values())

    def between(self) -> str:
        """The range of the quotients: "0.77 to 0.92"."""
        return words.between(self.values())

    def standing(self) -> str:
        """How often ahead, level and behind; a tie is level."""
        return words.standing(self.values())


class Comparison:
    """Ours beside others, in every case that was timed: a case is the values of the fields `by`.

    `comparison["torch:sdpa"]` is an Against, falsy where nothing was measured; `cases` are those of
    ours, `comparison.ms(name, case)` a time or None.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        ours: str,
        others: Sequence[str] = (),
        by: Sequence[str] = ("N",),
        name: str = "implementation",
    ) -> None:
        self.ours, self.others, self.by = ours, tuple(others), tuple(by)
        self.Case = namedtuple("Case", self.by)  # type: ignore[misc]
        self.rows: dict[str, dict[Any, Row]] = {}
        for row in pick(rows):
            case = self.Case(*(row[axis] for axis in self.by))
            cases = self.rows.setdefault(row[name], {})
            if case in cases:
                raise DataError(f"two rows of {row[name]} have {case}: compare by more fields")
            cases[case] = row

    def __getitem__(self, other: str) -> Against:
        return Against(self.rows.get(self.ours, {}), self.rows.get(other, {}))

    @property
    def cases(self) -> list[Any]:
        """The cases of ours, as they were measured."""
        return list(self.rows.get(self.ours, {}))

    def case(self, *values: Any) -> Any:
        """A case by its values, in the order of `by`."""
        return self.Case(*values)

    def row(self, name: str, case: Any) -> Row | None:
        """The row of an implementation in a case, if it was timed."""
        return self.rows.get(name, {}).get(self.Case(*case))

    def ms(self, name: str, case: Any) -> float | None:
        """The time of an implementation in a case, if it was timed."""
        row = self.row(name, case)
        return None if row is None else float(row["ms_p50"])
