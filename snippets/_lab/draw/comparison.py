"""One implementation beside others: how many times as fast, and where."""

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from snippets._lab.draw.identity import BEST, named
from snippets._lab.draw.rows import Gain, Row, gains, pick
from snippets._lab.draw.tables import listed
from snippets._lab.draw.units import between
from snippets._lab.results.store import DataError


class Against(dict[Any, Gain]):
    """Case → how many times as fast ours is as the other: above 1 ours is faster."""

    def __init__(self, ours: Mapping[Any, Row], other: Mapping[Any, Row]) -> None:
        super().__init__(gains({c: (ours[c], other[c]) for c in ours if c in other}))
        self.ours, self.other = ours, other

    @property
    def best(self) -> Any:
        """The case in which ours stands best."""
        return max(self, key=self.__getitem__)

    @property
    def worst(self) -> Any:
        """The case in which ours stands worst."""
        return min(self, key=self.__getitem__)

    @property
    def words(self) -> list[str]:
        """The verdict of each case: "ahead", "level", …, or "" where there is none."""
        return [gain.word for gain in self.values()]

    @property
    def never_behind(self) -> bool:
        """Whether each case has a verdict, and none is that ours is slower."""
        return {"behind", ""}.isdisjoint(self.words)

    def where(self, **wanted: Any) -> "Against":
        """The same for the cases with these values; a verdict stays what it is among all."""
        found = copy(self)
        for case in self:
            if any(getattr(case, axis) != value for axis, value in wanted.items()):
                del found[case]
        return found

    def between(self) -> str:
        """The range of the quotients: "0.77 to 0.92"."""
        return between(self.values())

    def verdicts(self) -> str:
        """How often it is ahead and behind: "ahead in 9 of 12 cases, behind in 1"."""
        if not any(self.words):
            return "no verdict: fewer than three runs"
        ahead, behind = self.words.count("ahead"), self.words.count("behind")
        return f"ahead in {ahead} of {len(self)} cases, behind in {behind or 'none'}"


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

    def best(self, names: Iterable[str] = BEST) -> Against:
        """Ours beside the best there is: in each case the fastest of these that was timed."""
        fastest: dict[Any, Row] = {}
        for name in names:
            for case, row in self.rows.get(name, {}).items():
                fastest[case] = min(fastest.get(case, row), row, key=lambda r: float(r["ms_p50"]))
        return Against(self.rows.get(self.ours, {}), fastest)

    def the_best(self, names: Iterable[str] = BEST, called: Callable[[str], str] = named) -> str:
        """What `best` compares with, in words: "A"; "the better of A and B"; "" for nothing."""
        there = [called(name) for name in names if self[name]]
        superlative = "better" if len(there) == 2 else "best"
        return f"the {superlative} of {listed(there)}" if there[1:] else "".join(there)

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
