"""How a hook finds a call again by its tool and arguments."""

import pytest

from licet.hooks.agent_sessions import arguments_key


@pytest.mark.parametrize("number", [2**53, 2**63 - 1, -(10**30), 1e20])
def test_arguments_with_a_number_of_any_size_have_a_key(number: float) -> None:
    keys = {arguments_key("t", {"n": each}) for each in (number, number + max(1, abs(number) // 10), str(number))}
    assert len(keys) == 3
