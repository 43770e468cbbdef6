"""What compute-sanitizer prints, and what is made of it; the tool itself needs a GPU."""

import pytest

from snippets._lab import rooms
from snippets._lab.judge import sanitizers

HAZARD = """\
========= Error: Potential {kind} hazard detected at __shared__ {byte:#x} in block (2,0,0) :
=========     Write Thread ({writer},0,0) at _kernel+{wrote} in kernel.py:371
=========     Read Thread ({reader},0,0) at _kernel+0x120 in kernel.py:371
=========     Current Value : 2
=========
"""
SUMMARY = "========= RACECHECK SUMMARY: {n} hazards displayed ({n} errors, 0 warnings)\n"
# Written by the first four warps, read by warps 4 to 7, a byte for each.
HANDED_OVER = [
    {"kind": "RAW", "byte": 0x30590 + i, "writer": 31, "reader": 128 + 32 * i, "wrote": "0x8960"}
    for i in range(4)
]


def printed(found, check="check passed"):
    text = "".join(HAZARD.format(**hazard) for hazard in found)
    return f"========= COMPUTE-SANITIZER\n{text}{check}\n{SUMMARY.format(n=len(found))}"


def test_nothing_found_is_clean():
    assert sanitizers.outcome("racecheck", printed([])).startswith("clean: 0 hazards")


def test_the_hand_over_between_warps_is_known():
    two_kernels = [
        *HANDED_OVER,
        *({**h, "byte": h["byte"] - 64, "wrote": "0x99"} for h in HANDED_OVER),
    ]
    assert len(sanitizers.hazards(printed(two_kernels))) == 8
    said = sanitizers.outcome("racecheck", printed(two_kernels))
    assert said.startswith("known: 8 hazards, each on the byte by which")


GUARDED = HAZARD.format(kind="WAW", byte=0x9440, writer=76, reader=204, wrote="0xa8e0").replace(
    "kernel.py:371", "kernel.py:419"
)


def with_guarded(found, n):
    text = printed(found)
    total = f"{len(found) + n} hazards displayed ({len(found) + n} errors"
    return text.replace("check passed", GUARDED * n + "check passed").replace(
        f"{len(found)} hazards displayed ({len(found)} errors", total
    )


def test_lines_between_which_a_barrier_lies_are_known():
    said = sanitizers.outcome("racecheck", with_guarded(HANDED_OVER, 3), ordered={(419, 419)})
    assert said.startswith("known: 4 hazards, each on the byte")
    assert said.endswith("; 3 between lines that barriers in shared memory order")
    for ordered in ((), {(419, 420)}, {(371, 371)}):
        said = sanitizers.outcome("racecheck", with_guarded(HANDED_OVER, 3), ordered=ordered)
        assert said.startswith("FAULTS: 7 hazards")


def test_the_lines_that_a_room_names_are_there():
    """Not of this file alone: what racecheck said of it names the same lines."""
    from snippets.hopper_backward import bench

    source = rooms.source_file("hopper_backward").read_text("utf-8")
    found = sanitizers.lines_of(bench.ORDERED_BY_BARRIERS, source)
    assert len(found) == len(bench.ORDERED_BY_BARRIERS) == 1
    lines = source.splitlines()
    for before, after in found:
        assert ".load(" in lines[before - 1]
        assert "_async_load(" in lines[after - 1]


@pytest.mark.parametrize(
    "change",
    [
        {"byte": 0x30000},  # shared memory that holds something else
        {"kind": "WAR"},
        {"writer": 160},  # a warp that is not one of the first four
        {"reader": 96},  # one of the first four
        {"byte": 0x30594},  # another warp's byte
    ],
    ids=str,
)
def test_one_other_hazard_is_a_fault(change):
    found = [*HANDED_OVER[:-1], HANDED_OVER[-1] | change]
    assert sanitizers.outcome("racecheck", printed(found)).startswith("FAULTS: 4 hazards")


def test_what_cannot_be_read_is_a_fault():
    text = printed(HANDED_OVER).replace("Read Thread (128,0,0)", "Read Thread (128,1,0)")
    assert sanitizers.outcome("racecheck", text).startswith("FAULTS: 4 hazards")


def test_memcheck_excuses_nothing():
    text = printed(HANDED_OVER).replace("RACECHECK SUMMARY", "ERROR SUMMARY")
    assert sanitizers.outcome("memcheck", text).startswith("FAULTS")


def test_a_wrong_result_is_a_fault_unless_its_cause_is_known():
    text = printed([], check="check failed: largest difference nan from float64")
    for tool in ("memcheck", "racecheck"):
        said = sanitizers.outcome(tool, text)
        assert said == "FAULTS: check failed: largest difference nan from float64"
    said = sanitizers.outcome("racecheck", text, "the tool takes keys for barriers")
    assert said == "known: 0 hazards displayed (0 errors, 0 warnings); a wrong result: " + (
        "the tool takes keys for barriers"
    )


def test_a_tool_that_does_not_run_is_no_result():
    with pytest.raises(sanitizers.CannotSanitize, match=r"memcheck does not work .* not supported"):
        sanitizers.outcome("memcheck", "========= Error: Device not supported\n")
