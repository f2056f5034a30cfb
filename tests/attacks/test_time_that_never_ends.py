"""A tool asks for a program to run until a time that never comes."""

from decimal import Decimal
from typing import Any

import pytest

from attacks.walled_programs import Programs, needs_walls
from licet.errors import Refused

TIMES: list[Any] = ["nan", "inf", "-nan", "1e999", float("nan"), float("inf"), -1, 0, True, "5", Decimal("NaN")]


@needs_walls
@pytest.mark.parametrize("timeout", TIMES, ids=repr)
def test_a_program_whose_time_is_no_time_is_refused(timeout: Any) -> None:
    programs = Programs("no-namespaces", seconds=5)
    with pytest.raises(Refused) as refused:
        programs.run("true", timeout=timeout)
    assert refused.value.code == "INPUT_INVALID"
    assert programs.grant.ended == ()
