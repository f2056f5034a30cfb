"""Rules on arguments are checked against what the tool gets: trimmed, with defaults, under aliases."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    SecretStr,
    StringConstraints,
)
from typing_extensions import TypedDict

from guard.gates import call, gate
from licet import Backends, RegistrationRefused, Tool, tool

NOT_PROD = {"not": {"const": "prod"}}
GOOD = {"properties": {"url": {"enum": ["https://good.example"]}}}


class Place(BaseModel):
    """Where to go, unless told otherwise."""

    url: str = "https://evil.example"
    times: int = 1


class Renamed(BaseModel):
    """What is sent under another name than it has here."""

    model_config = ConfigDict(extra="allow")
    url: Annotated[str, StringConstraints(to_lower=True)] = Field("https://evil.example", alias="URL")


class Bill(BaseModel):
    """Something to pay."""

    amount: Decimal
    token: SecretStr = SecretStr("abc")


@dataclass
class Spot:
    """A place without a model."""

    url: str = "https://evil.example"


def declared(annotation: Any, *default: Any) -> Tool:
    """A tool of one argument of some type."""

    async def act(value: Any = None) -> str:
        """Do nothing."""
        return "ran"

    act.__annotations__ = {"value": annotation, "return": str}
    act.__defaults__ = default or None
    return tool(needs=["fs:read:*"], effect="read_only", sandbox="native")(act)


Trimmed = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]
Case = tuple[tuple[Any, ...], dict[str, Any], Any, bool]

CASES: dict[str, Case] = {
    "as it is": ((str,), NOT_PROD, "staging", True),
    "trimmed": ((Trimmed,), NOT_PROD, "prod ", False),
    "in lower case": ((Trimmed,), NOT_PROD, "PROD", False),
    "trimmed into what is allowed": ((Trimmed,), {"enum": ["ok", " ok"]}, " ok", True),
    "what was sent is still held to the rule": ((Trimmed,), {"enum": ["ok"]}, " ok", False),
    "changed by a function": ((Annotated[str, AfterValidator(lambda text: text[::-1])],), NOT_PROD, "dorp", False),
    "made of something else": ((Annotated[str, BeforeValidator(str)],), {"not": {"const": "5"}}, 5, False),
    "in a list": ((list[Trimmed],), {"items": NOT_PROD}, ["a", "prod "], False),
    "in a set": ((set[Trimmed],), {"items": NOT_PROD}, ["a", "prod "], False),
    "in a mapping": ((dict[str, Trimmed],), {"additionalProperties": NOT_PROD}, {"a": "prod "}, False),
    "as a name in a mapping": ((dict[Trimmed, int],), {"propertyNames": NOT_PROD}, {"PROD": 1}, False),
    "a number as a name": ((dict[int, str],), {"propertyNames": {"enum": ["1"]}}, {"1": "x"}, True),
    "a default inside a model": ((Place,), GOOD, {}, False),
    "a default inside a dataclass": ((Spot,), GOOD, {}, False),
    "given inside a model": ((Place,), GOOD, {"url": "https://good.example"}, True),
    "given inside a dataclass": ((Spot,), GOOD, {"url": "https://good.example"}, True),
    "in a model in a list": ((list[Place],), {"items": GOOD}, [{"times": 2}], False),
    "under its name in the schema": (
        (Renamed,),
        {"properties": {"URL": NOT_PROD}},
        {"URL": "PROD"},
        False,
    ),
    "a default under its name in the schema": (
        (Renamed,),
        {"properties": {"URL": {"const": "x"}}},
        {},
        False,
    ),
    "what a model takes beside its fields": ((Renamed,), {"maxProperties": 2}, {"URL": "x", "more": 1}, True),
    "too much beside the fields": ((Renamed,), {"maxProperties": 1}, {"more": 1}, False),
    "a model of a list": ((RootModel[list[Trimmed]],), {"items": NOT_PROD}, ["prod "], False),
    "money": ((Decimal,), {"maximum": 100}, 100, True),
    "too much money": ((Decimal,), {"maximum": 100}, 100.01, False),
    "money in a model": ((Bill,), {"properties": {"amount": {"maximum": 100}}}, {"amount": 99.5}, True),
    "too much money in a model": ((Bill,), {"properties": {"amount": {"maximum": 100}}}, {"amount": 101}, False),
    "money that no float carries": ((Decimal,), {"not": {"const": 1}}, "1.00000000000000000001", True),
    "money in another spelling": ((Decimal,), {"not": {"const": 5}}, "5.00", False),
    "more money than there is": ((Decimal,), {"not": {"const": 5}}, "1E+999999999", True),
    "what serialises to stars": ((SecretStr,), {"pattern": "^[a-z]+$"}, "abc", True),
    "what serialises to stars, in a model": (
        (Bill,),
        {"properties": {"token": {"enum": ["abc"]}}},
        {"amount": 1},
        True,
    ),
    "a path": ((Path,), {"scope": "fs:read"}, "data/a.txt", True),
    "a path that is trimmed": ((Trimmed,), {"scope": "fs:read"}, "data/x/../../../etc/passwd ", False),
    "a default": ((str, "prod"), NOT_PROD, None, False),
    "a default that fits": ((str, "staging"), NOT_PROD, None, True),
    "a default that is no JSON": ((Path, Path("/etc")), {"scope": "fs:read"}, None, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_is_checked_against_what_the_tool_gets(tmp_path: Path, case: str) -> None:
    declaration, rule, sent, fine = CASES[case]
    act = declared(*declaration)
    at = gate(
        tmp_path,
        act,
        backends=Backends.memory(),
        tools={"act": {"args": {"value": rule}}},
        fs_reach={"read": [f"{tmp_path}/data"]},
    )
    result = call(at, "act", {} if sent is None else {"value": sent})
    assert (result.ok, result.reason) == (fine, "ALLOWED" if fine else "ARGUMENT_NOT_ALLOWED"), result.explain()


class Choice(BaseModel):
    """Takes a value under two names."""

    url: str = Field("x", validation_alias=AliasChoices("url", "link"))


class ByName(BaseModel):
    """Takes a value under its name and under another."""

    model_config = ConfigDict(populate_by_name=True)
    url: str = Field("x", alias="link")


class Node(BaseModel):
    """Holds itself, and what takes a value under two names."""

    below: "Node | None" = None
    choice: Choice | None = None


class Entry(TypedDict):
    """Keeps under one name what is sent under another."""

    url: Annotated[str, Field(alias="link")]


@dataclass
class Held:
    """The same."""

    url: Annotated[str, Field(alias="link")] = "x"


OTHER_NAMES: dict[str, Any] = {
    "two names": Annotated[str, Field(validation_alias=AliasChoices("value", "other"))],
    "a part of something else": Annotated[str, Field(validation_alias=AliasPath("value", 0))],
    "two names in a model": Choice,
    "two names in a model in a list": list[Choice],
    "two names in a model that holds itself": Node,
    "a name and another": ByName,
    "another name in a mapping": Entry,
    "another name in a dataclass": Held,
}


@pytest.mark.parametrize("case", OTHER_NAMES)
def test_a_rule_on_an_argument_with_several_names_is_a_misfit(tmp_path: Path, case: str) -> None:
    act = declared(OTHER_NAMES[case], "x")
    rules: Mapping[str, Any] = {"act": {"args": {"value": {"enum": ["x"]}}}}
    with pytest.raises(RegistrationRefused, match="under another name"):
        gate(tmp_path, act, tools=rules)
    assert call(gate(tmp_path, act), "act").ok  # without a rule there is nothing to get around
