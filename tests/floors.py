"""A floor under what a test goes through: a loop, `all` or "none of them" is true of nothing."""

from collections.abc import Collection, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Collection)


def some(found: T | Iterable, least: int = 1) -> T | list:
    """What was found, as it came (an iterator as a list); an AssertionError where it is too little.

    `for page in some(pages()):` fails where there is no page.
    """
    kept = found if isinstance(found, Collection) else list(found)
    assert len(kept) >= least, f"{len(kept)} things to go through, at least {least} expected"
    return kept


def perhaps(found: T, why: str) -> T:
    """What was found, where nothing is as good; `why` says so."""
    assert len(why) > 20, "a reason, in words"
    return found
