"""What compute-sanitizer prints, and what is made of it; the tool itself needs a GPU."""

import pytest

from snippets._lab.judge import sanitizers

CLEAN = """========= COMPUTE-SANITIZER
check passed
========= ERROR SUMMARY: 0 errors
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", "clean: 0 errors"),
        ("0 errors", "3 errors", "FAULTS: 3 errors"),
        ("check passed", "check failed: off by nan", "FAULTS: check failed: off by nan"),
    ],
)
def test_what_the_tool_says_is_told(old, new, said):
    assert sanitizers.outcome(CLEAN.replace(old, new)) == said


def test_a_tool_that_does_not_run_is_no_result():
    with pytest.raises(sanitizers.CannotSanitize, match=r"does not work .* not supported"):
        sanitizers.outcome("========= Error: Device not supported\n")
