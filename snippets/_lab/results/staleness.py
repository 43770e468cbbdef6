"""Whether the code behind a result is still the code that was measured."""

from pathlib import Path

from snippets._lab.results.source_hash import closure, public_functions, source_hash
from snippets._lab.results.store import Result
from snippets._lab.rooms import SNIPPETS, room_file, rooms, source_file, test_files


def result_hash(room: str, result: str) -> str:
    """Hash of the room's kernel, its launcher and this result's bench function.

    The exercise's answer counts where the function measures it, the tests where they judge mutants.
    """
    if (check := SNIPPETS / "_site" / "checks" / f"{room}.py").exists():
        return source_hash([(check, [result])])  # what the site measures of itself
    source = source_file(room)
    if not source.exists():
        return _hash_of_lab_page(room, result)
    names = public_functions(source.read_text(encoding="utf-8"))
    if result == "report":
        return source_hash([(source, [*names, "main"])])
    if result == "mutants":
        mutants = room_file(room, "mutants.py")
        tests = [(path, public_functions(path.read_text("utf-8"))) for path in test_files(room)]
        return source_hash([(source, names), (mutants, ["MUTANTS"]), *tests])
    bench = room_file(room, "bench.py")
    parts: list[tuple[Path, list[str]]] = [(source, names), (bench, [result])]
    exercise = room_file(room, "exercise.py")
    if any("exercise" in text for text in closure(bench.read_text(encoding="utf-8"), [result])):
        parts.append((exercise, public_functions(exercise.read_text(encoding="utf-8"))))
    return source_hash(parts)


def _hash_of_lab_page(room: str, result: str) -> str:
    """A page without a kernel of its own measures those of all rooms."""
    kernels = [room_file(other, "kernel.py") for other in rooms()]
    sources = [path for path in kernels if path.exists()]
    parts = [(path, public_functions(path.read_text(encoding="utf-8"))) for path in sources]
    return source_hash([*parts, (room_file(room, "bench.py"), [result])])


# --8<-- [start:stale]
def is_stale(result: Result) -> bool:
    """True if the code behind a result has changed, or gone, since it was measured."""
    try:
        return result.source_hash != result_hash(result.post, result.result)
    except (ValueError, FileNotFoundError):
        return True  # the post, its file or the bench function is no longer there
    # --8<-- [end:stale]
