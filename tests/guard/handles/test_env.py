"""`ctx.env`: declared variables and no others."""

from typing import Any

import pytest

from core.liars import Liar
from guard.grants import grant
from licet.errors import Refused
from licet.guard.handles.secrets_and_kv import ScopedEnv

ENVIRON = {"LANG": "C", "AWS_SECRET": "no"}


def scoped(*names: str, **given: Any) -> ScopedEnv:
    return ScopedEnv(grant([f"env:read:{name}" for name in names], **given), ENVIRON)


def test_a_declared_variable_is_read_and_an_unset_one_gives_the_default() -> None:
    env = scoped("LANG", "TZ")
    assert env.get("LANG") == "C"
    assert env.get("TZ") is None
    assert env.get("TZ", "UTC") == "UTC"


def test_an_undeclared_variable_is_refused_whether_set_or_not() -> None:
    for name in ("AWS_SECRET", "NOT_SET", "lang"):
        with pytest.raises(Refused, match=f"^ENV_NOT_ALLOWED: {name} is not in the tool's declared env$"):
            scoped("LANG").get(name, "default")


@pytest.mark.parametrize("name", ["*", "", "A=B", "A B", "A\0B", "A:B", None])
def test_a_malformed_variable_name_is_refused(name: Any) -> None:
    with pytest.raises(Refused) as caught:
        scoped("LANG").get(name)
    assert caught.value.code == "ENV_NOT_ALLOWED"


def test_a_denied_variable_is_refused_though_all_are_declared() -> None:
    env = scoped("*", deny=["env:read:AWS_SECRET"])
    assert env.get("LANG") == "C"
    with pytest.raises(Refused, match="AWS_SECRET"):
        env.get("AWS_SECRET")


def test_a_str_subclass_is_read_as_the_name_that_was_checked() -> None:
    assert scoped("LANG").get(Liar("AWS_SECRET", "LANG")) == "C"


def test_it_ends_with_its_call() -> None:
    held = grant(["env:read:LANG"])
    env = ScopedEnv(held, ENVIRON)
    held.over = True
    with pytest.raises(Refused, match="SESSION_ENDED"):
        env.get("LANG")
