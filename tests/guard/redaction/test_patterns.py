"""The regular expressions of redaction: none takes the square of the length of a text that others wrote."""

import re
from types import ModuleType
from typing import Any

import pytest

from licet.guard.redaction import encodings, redact

# These are matched at one place and not searched, or (`_TOKEN`) never fail: `test_redact_json.py` checks that.
NOT_SEARCHED = {"_TOKEN", "_COLON", "_STRUCTURE", "_DATA"}
PATTERNS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (encodings, redact, redact, encodings)
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern) and name not in NOT_SEARCHED
}
parser: ModuleType = re._parser  # type: ignore[attr-defined]


def goes_back(parsed: Any, may_fail: bool = False) -> bool:
    """Whether something may fail behind an unbounded repetition: the search then begins again one character later."""
    for operation, value in reversed(list(parsed)):
        name = str(operation)
        if name.endswith("REPEAT"):
            least, most, inner = value
            if (most == parser.MAXREPEAT and may_fail) or goes_back(inner, may_fail):
                return True
            may_fail = may_fail or least > 0
        elif name == "BRANCH":
            if any(goes_back(inner, may_fail) for inner in value[1]):
                return True
            may_fail = may_fail or all(inner.getwidth()[0] for inner in value[1])
        elif name == "SUBPATTERN":
            if goes_back(value[-1], may_fail):
                return True
            may_fail = may_fail or value[-1].getwidth()[0] > 0
        else:
            may_fail = True
    return False


def said(pattern: "re.Pattern[bytes]") -> bool:
    return goes_back(parser.parse(pattern.pattern.decode("latin-1"), pattern.flags))


@pytest.mark.parametrize("name", PATTERNS)
def test_nothing_can_fail_behind_a_repetition_without_limit(name: str) -> None:
    assert not said(PATTERNS[name])


@pytest.mark.parametrize("pattern", [rb'"[^"]*"', rb'("(?:a|b)*+")[ ]*:', rb"(?:a+|b)c", rb"a+\Z", rb"(?:a{2,}){1,2}b"])
def test_a_pattern_that_goes_back_is_recognised(pattern: bytes) -> None:
    assert said(re.compile(pattern))
