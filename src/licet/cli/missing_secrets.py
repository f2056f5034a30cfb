"""What to do after a refusal because no backend knows a secret."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from licet.backends.secrets import variables_of
from licet.core.late_pattern import late_pattern
from licet.guard.result import Result

_UNKNOWN_SECRET = late_pattern(r"BACKEND_MISSING: no backend knows (\S+)")


def secret_advice(result: Result, file: Path | None) -> Iterator[str]:
    """How the secret that was missing can be given, as a line of a refusal. `file` is that of `--secrets`."""
    missing = _UNKNOWN_SECRET.fullmatch(result.error)
    if missing and (names := variables_of(missing[1])):
        variable = f"set the variable `{names[-1]}`, or " if names[-1].isidentifier() else ""
        place = f"`{shlex.quote(str(file))}`" if file is not None else "a file for `--secrets`"
        yield f"  to give it    {variable}write `{missing[1]}=…` into {place}"
