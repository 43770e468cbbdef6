"""Why nothing can be said of a launcher. No torch."""

from typing import Any


class CannotDiagnose(ValueError):
    """The file or the launcher cannot be diagnosed; one sentence that says why."""

    form: Any = None  # forms.Form in which a kernel of it failed
