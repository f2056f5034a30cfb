"""Rules of a manifest on arguments: they are checked before the tool runs, also against defaults."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, SecretStr

from guard.gates import call, gate
from licet import Backends, ManifestError, RegistrationRefused, Result, tool
from licet.backends.approvals.terminal import MemoryApprover

RAN: list[dict[str, Any]] = []


@tool(needs=["fs:read:*", "network:*:*", "secret:read:*"], effect="read_only", sandbox="native")
async def act(
    path: str = "in.txt",
    url: str = "https://a.example/",
    amount: int = 1,
    paths: list[str] | None = None,
    where: dict[str, str] | None = None,
) -> None:
    """Do nothing with its arguments."""
    RAN.append({"path": path, "url": url, "amount": amount})


def judged(folder: Path, args: dict[str, Any], given: dict[str, Any], **backends: Any) -> Result:
    """The result of one call under these rules."""
    RAN.clear()
    at = gate(
        folder,
        act,
        backends=Backends.memory(**backends),
        tools={"act": {"args": args}},
        fs_reach={"read": [f"{folder}/data"]},
        destinations={"allow": ["a.example"]},
        secrets=["github/token"],
    )
    result = call(at, "act", given)
    assert bool(RAN) is result.ok
    return result


ALLOWED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "enum": ({"path": {"enum": ["ok.txt"]}}, {"path": "ok.txt"}),
    "maximum": ({"amount": {"maximum": 100}}, {"amount": 100}),
    "pattern": ({"path": {"pattern": "^[a-z]+$"}}, {"path": "abc"}),
    "a path that is held": ({"path": {"scope": "fs:read"}}, {"path": "data/a/../b.txt"}),
    "a URL that is held": ({"url": {"scope": "network"}}, {"url": "https://A.example:443/x"}),
    "a list of paths": ({"paths": {"items": {"scope": "fs:read"}}}, {"paths": ["data/a", "data/b"]}),
    "any of several": ({"amount": {"anyOf": [{"const": 1}, {"const": 2}]}}, {"amount": 2}),
    "all of several": ({"path": {"allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}}, {"path": "a-b"}),
    "one of several": ({"path": {"oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]}}, {"path": "a-c"}),
    "a whole mapping": ({"where": {"const": {"to": "x"}}}, {"where": {"to": "x"}}),
    "one of some mappings": ({"where": {"enum": [{"to": "x"}, {"to": "y"}]}}, {"where": {"to": "y"}}),
    "the first of a list": ({"paths": {"prefixItems": [{"scope": "fs:read"}]}}, {"paths": ["data/a", "/etc/x"]}),
    "nothing given": ({"paths": {"scope": "fs:read"}}, {}),
    "a default that fits": ({"amount": {"maximum": 1}}, {}),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_arguments_inside_the_rules_run(tmp_path: Path, case: str) -> None:
    assert judged(tmp_path, *ALLOWED[case]).ok


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "enum": ({"path": {"enum": ["ok.txt"]}}, {"path": "other.txt"}),
    "const": ({"amount": {"const": 5}}, {"amount": 6}),
    "maximum": ({"amount": {"maximum": 100}}, {"amount": 101}),
    "pattern": ({"path": {"pattern": "^[a-z]+$"}}, {"path": "a/b"}),
    "a default outside": ({"amount": {"minimum": 2}}, {}),
    "two rules, one broken": ({"path": {"enum": ["x"]}, "amount": {"maximum": 1}}, {"path": "x", "amount": 2}),
    "a path outside": ({"path": {"scope": "fs:read"}}, {"path": "data/../../etc/passwd"}),
    "a path that is none": ({"path": {"scope": "fs:read"}}, {"path": "a\0b"}),
    "a sibling": ({"path": {"scope": "fs:read"}}, {"path": "data-evil/x"}),
    "another action": ({"path": {"scope": "fs:write"}}, {"path": "data/x"}),
    "a default path outside": ({"path": {"scope": "fs:read"}}, {}),
    "a URL outside": ({"url": {"scope": "network"}}, {"url": "https://b.example/"}),
    "a URL with a user name": ({"url": {"scope": "network"}}, {"url": "https://a.example@b.example/"}),
    "one of a list": ({"paths": {"items": {"scope": "fs:read"}}}, {"paths": ["data/a", "/etc/passwd"]}),
    "a list at once": ({"paths": {"scope": "fs:read"}}, {"paths": ["data/a", "/etc/passwd"]}),
    "inside a mapping": ({"where": {"properties": {"to": {"scope": "fs:read"}}}}, {"where": {"to": "/etc/passwd"}}),
    "none of several": ({"amount": {"anyOf": [{"const": 1}, {"const": 2}]}}, {"amount": 3}),
    "not all of several": ({"path": {"allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}}, {"path": "a-c"}),
    "two of one": ({"path": {"oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]}}, {"path": "a-b"}),
    "another mapping": ({"where": {"const": {"to": "x"}}}, {"where": {"to": "z"}}),
    "none of some mappings": ({"where": {"enum": [{"to": "x"}, {"to": "y"}]}}, {"where": {"to": "z"}}),
    "the first of a list": ({"paths": {"prefixItems": [{"scope": "fs:read"}]}}, {"paths": ["/etc/passwd"]}),
    "no text": ({"amount": {"scope": "fs:read"}}, {"amount": 5}),
    "a secret": ({"path": {"scope": "secret"}}, {"path": "stripe/key"}),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.sampled(12)
def test_arguments_outside_the_rules_are_refused_before_anything_runs(tmp_path: Path, case: str) -> None:
    result = judged(tmp_path, *REFUSED[case])
    assert (result.code, result.reason) == ("denied", "ARGUMENT_NOT_ALLOWED")
    assert "etc/passwd" not in result.error


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("data/inner/../a", "ALLOWED"),
        ("data/link", "ARGUMENT_NOT_ALLOWED"),
        ("data/link/../a", "ARGUMENT_NOT_ALLOWED"),  # above the target of the link
    ],
)
def test_a_native_tool_gets_no_path_that_a_link_leads_away(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "other" / "inner").mkdir(parents=True)
    (tmp_path / "data" / "link").symlink_to(tmp_path / "other" / "inner")
    assert judged(tmp_path, {"path": {"scope": "fs:read"}}, {"path": path}).reason == reason


def test_explain_says_why_a_value_is_not_granted(tmp_path: Path) -> None:
    result = judged(tmp_path, {"path": {"scope": "fs:read"}}, {"path": "/etc/passwd"})
    assert "agent.yaml" in result.explain()


def test_explain_names_the_rule_and_its_place_and_the_text_for_the_model_does_not(tmp_path: Path) -> None:
    rules = {"path": {"pattern": "^inv-"}, "url": {"maxLength": 50}, "amount": {"maximum": 7, "minimum": 1}}
    result = judged(tmp_path, rules, {"path": "some-value", "amount": 8})
    said = result.explain()
    assert 'a rule on `path`: {"pattern":"^inv-"} (' in said
    assert 'a rule on `amount`: {"maximum":7,"minimum":1} (' in said
    assert "agent.yaml:" in said
    assert "change `args.path` of `act` in " in said
    assert "maxLength" not in said
    assert "some-value" not in said
    assert result.error.endswith(
        "`path` is outside what the manifest allows; `amount` is outside what the manifest allows"
    )


def test_without_a_checker_a_tool_with_argument_rules_is_refused(tmp_path: Path) -> None:
    result = judged(tmp_path, {"path": {"enum": ["ok.txt"]}}, {"path": "ok.txt"}, argument_rules=None)
    assert result.reason == "ARGUMENT_NOT_ALLOWED"


def test_a_pattern_takes_linear_time(tmp_path: Path) -> None:
    result = judged(tmp_path, {"path": {"pattern": "^(a+)+$"}}, {"path": "a" * 100_000 + "!"})
    assert result.reason == "ARGUMENT_NOT_ALLOWED"


BAD_RULES: dict[str, dict[str, Any]] = {
    "look-around": {"path": {"pattern": "(?=a)b"}},
    "a format that nobody checks": {"path": {"format": "shoe-size"}},
    "a scope that may not count": {"path": {"anyOf": [{"scope": "fs:read"}, {}]}},
    "a scope in a negation": {"path": {"not": {"scope": "fs:read"}}},
}


@pytest.mark.parametrize("case", BAD_RULES)
def test_an_unsupported_rule_is_an_error_of_the_manifest(tmp_path: Path, case: str) -> None:
    with pytest.raises(ManifestError):
        judged(tmp_path, BAD_RULES[case], {})


def test_a_rule_for_an_argument_that_the_tool_does_not_take_is_a_misfit(tmp_path: Path) -> None:
    with pytest.raises(RegistrationRefused, match="`pth` is not an argument"):
        judged(tmp_path, {"pth": {"enum": ["x"]}}, {})


def test_formats_are_checked(tmp_path: Path) -> None:
    assert judged(tmp_path, {"path": {"format": "email"}}, {"path": "a@b.example"}).ok
    assert not judged(tmp_path, {"path": {"format": "email"}}, {"path": "nobody"}).ok


@tool(needs=[], effect="read_only", sandbox="native")
async def pay(
    amount: Decimal,
    code: Annotated[str, Field(alias="c")] = "ok",
    wait: timedelta | None = None,
    note: SecretStr | None = None,
) -> str:
    """Take values that can be written in more than one way."""
    return f"{amount} {code}"


TWISTED: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "a number": ({"amount": {"maximum": 100}}, {"amount": 100}, True),
    "too large a number": ({"amount": {"maximum": 100}}, {"amount": 100000}, False),
    "the number as a text": ({"amount": {"maximum": 100}}, {"amount": "100000"}, False),
    "by its alias": ({"c": {"enum": ["ok"]}}, {"amount": 1, "c": "evil"}, False),
    "the default of an alias": ({"c": {"enum": ["other"]}}, {"amount": 1}, False),
    "the default of an alias that fits": ({"c": {"enum": ["ok"]}}, {"amount": 1}, True),
    "a time as a text": ({"wait": {"maximum": 100}}, {"amount": 1, "wait": "P99D"}, False),
    "what serialises to stars": ({"note": {"pattern": "^[*a-z]+$"}}, {"amount": 1, "note": "../EVIL"}, False),
    "a text in any of several": ({"amount": {"anyOf": [{"maximum": 1}, {"minimum": 5}]}}, {"amount": "3"}, False),
}


@pytest.mark.parametrize("case", TWISTED)
def test_a_rule_applies_to_every_spelling_of_a_value(tmp_path: Path, case: str) -> None:
    args, given, fine = TWISTED[case]
    result = call(gate(tmp_path, pay, tools={"pay": {"args": args}}), "pay", given)
    assert (result.ok, result.reason) == (fine, "ALLOWED" if fine else "ARGUMENT_NOT_ALLOWED")


# `ask` ---------------------------------------------------------------------------------------------------------------

ASKED: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "const": ({"path": {"ask": {"const": "x"}}}, {"path": "x"}, True),
    "another value": ({"path": {"ask": {"const": "x"}}}, {"path": "y"}, False),
    "any of several": ({"path": {"ask": {"anyOf": [{"const": "x"}, {"pattern": "^x "}]}}}, {"path": "x y"}, True),
    "every value": ({"path": {"ask": {}}}, {"path": "y"}, True),
    "all but some": ({"path": {"ask": {"not": {"enum": ["a", "b"]}}}}, {"path": "c"}, True),
    "one of some": ({"path": {"ask": {"not": {"enum": ["a", "b"]}}}}, {"path": "a"}, False),
    "a default": ({"path": {"ask": {"const": "in.txt"}}}, {}, True),
    "a default that does not fit": ({"path": {"ask": {"const": "x"}}}, {}, False),
    "beside a rule": ({"path": {"maxLength": 3, "ask": {"const": "x"}}}, {"path": "x"}, True),
    "another type": ({"amount": {"ask": {"pattern": "^x"}}}, {"amount": 7}, True),
    "a part": (
        {"where": {"ask": {"properties": {"to": {"const": "x"}}, "required": ["to"]}}},
        {"where": {"to": "x"}},
        True,
    ),
    "one of two": (
        {"path": {"ask": {"const": "x"}}, "amount": {"ask": {"minimum": 5}}},
        {"path": "y", "amount": 9},
        True,
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_a_value_that_fits_the_schema_under_ask_asks(tmp_path: Path, case: str) -> None:
    args, given, asks = ASKED[case]
    assert judged(tmp_path, args, given).reason == ("APPROVAL_REQUIRED" if asks else "ALLOWED")
    approver = MemoryApprover(lambda question: "approved")
    assert judged(tmp_path, args, given, approver=approver).ok
    assert len(approver.asked) == asks
    assert all(one.approval.arguments.startswith("sha256:") for one in approver.asked)


def test_a_rule_beside_ask_refuses_before_anybody_is_asked(tmp_path: Path) -> None:
    approver = MemoryApprover(lambda question: "approved")
    args = {"path": {"maxLength": 3, "ask": {}}}
    assert judged(tmp_path, args, {"path": "xxxx"}, approver=approver).reason == "ARGUMENT_NOT_ALLOWED"
    assert approver.asked == []


def test_an_approval_of_a_value_is_for_one_call_and_these_arguments(tmp_path: Path) -> None:
    approver = MemoryApprover(lambda question: "approved")
    at = gate(
        tmp_path, act, backends=Backends.memory(approver=approver), tools={"act": {"args": {"path": {"ask": {}}}}},
        fs_reach={"read": [str(tmp_path)]}, destinations={"allow": ["a.example"]}, secrets=["github/token"],
    )  # fmt: skip
    for path in ("a", "a", "b"):
        assert call(at, "act", {"path": path}).ok
    assert [one.arguments["path"] for one in approver.asked] == ["a", "a", "b"]
    assert len({one.approval.arguments for one in approver.asked}) == 2
    assert approver.asked[0].why == "the value of `path` asks before each call"


def test_a_number_that_is_written_as_a_text_asks_too(tmp_path: Path) -> None:
    at = gate(tmp_path, pay, tools={"pay": {"args": {"amount": {"ask": {"minimum": 100}}}}})
    reasons = [call(at, "pay", {"amount": amount}).reason for amount in (99, 100, "100000")]
    assert reasons == ["ALLOWED", "APPROVAL_REQUIRED", "APPROVAL_REQUIRED"]


def test_without_a_checker_a_tool_that_asks_about_values_is_refused(tmp_path: Path) -> None:
    result = judged(tmp_path, {"path": {"ask": {"const": "x"}}}, {"path": "y"}, argument_rules=None)
    assert result.reason == "ARGUMENT_NOT_ALLOWED"
