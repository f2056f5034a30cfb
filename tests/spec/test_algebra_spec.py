"""The cases of algebra.yaml, and of the third-party corpora where names alone decide, on the library."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from licet.core.algebra.rules import Capability, InvalidUse, Use, use_of_path, use_of_url
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet

Case = dict[str, Any]
CASES: dict[str, list[Case]] = yaml.safe_load((Path(__file__).parent / "algebra.yaml").read_text())
CORPORA = os.environ.get("LICET_CORPORA")
needs_corpora = pytest.mark.skipif(not CORPORA, reason="LICET_CORPORA does not name the folder of third-party cases")


def cases(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=case.get("name") or case["text"]) for case in CASES[kind]]
    )


def made(case: Case) -> CapabilitySet:
    assert not case.keys() - {"name", "allow", "deny", "use", "url", "method", "path", "base", "capability", "expect"}
    return CapabilitySet(case.get("allow", ()), case.get("deny", ()))


def use_of(case: Case) -> Use:
    if "url" in case:
        return use_of_url(case.get("method", "GET"), case["url"])
    if "path" in case:
        return use_of_path("read", case["path"], case.get("base"))
    return Use(case["use"])


def decided(case: Case) -> str:
    found = made(case)
    try:
        use = use_of(case)
    except InvalidUse:
        return "invalid"
    answer = found.has(use)
    if "*" not in str(use):
        assert found.has(str(use)) is answer
    return "allow" if answer else "deny"


@cases("decide")
def test_what_is_decided(case: Case) -> None:
    assert decided(case) == case["expect"]


@cases("covers")
def test_what_is_covered_whole(case: Case) -> None:
    assert made(case).has(Capability(case["capability"])) is case["expect"]


@cases("meet")
def test_what_two_sets_have_in_common(case: Case) -> None:
    one, two = made(case["one"]), made(case["two"])
    met = one & two
    assert [str(rule) for rule in met.allow] == case["expect"].get("allow", [])
    assert [str(rule) for rule in met.deny] == case["expect"].get("deny", [])
    assert met == two & one


@cases("order")
def test_what_one_set_reaches_beyond_another(case: Case) -> None:
    one, two = made(case["one"]), made(case["two"])
    assert (one <= two) is case["within"]
    assert [str(piece) for piece in one - two] == case["beyond"]


@cases("rules")
def test_how_a_rule_is_written(case: Case) -> None:
    if "canonical" in case:
        assert str(Capability(case["text"])) == case["canonical"]
        return
    with pytest.raises(Malformed) as refusal:
        Capability(case["text"])
    assert case["malformed"] in str(refusal.value)


def test_every_case_has_its_own_name() -> None:
    for kind, listed in CASES.items():
        names = [case.get("name") or case["text"] for case in listed]
        assert len(names) == len(set(names)), kind


# Third-party cases ----------------------------------------------------------------------------------------------------


def corpus(name: str) -> list[Case]:
    assert CORPORA
    return [json.loads(line) for line in (Path(CORPORA) / name).read_text().splitlines()]


def host_rules(hosts: list[str]) -> list[str]:
    """Rules for the hosts of a case, without those that are no hosts: an allow or deny of nothing."""
    rules = []
    for host in hosts:
        bracketed = f"[{host}]" if host.count(":") > 1 else host
        try:
            rules.append(str(Capability(f"network:*:*@{bracketed}")))
        except Malformed:
            continue
    return rules


def reached(policy: dict[str, list[str]], url: str) -> Use | None:
    """The use that a URL is if the policy allows it."""
    try:
        use = use_of_url("GET", url)
    except InvalidUse:
        return None
    allowed = CapabilitySet(host_rules(policy["allow"]), host_rules(policy.get("deny", [])))
    return use if allowed.has(use) else None


def is_lexical(case: Case) -> bool:
    """Whether names alone decide a URL: no answer of DNS, no redirect, no address that is refused as private."""
    if "redirect" in case or any(case.get("dns", {}).values()):
        return False
    if case["expect"] == "confine":
        return True
    return case["policy"]["allow"] != ["*"] or bool(case["policy"].get("deny")) or "scheme" in case["why"]


@needs_corpora
def test_no_url_of_the_corpus_reaches_a_host_it_must_not() -> None:
    wrong, tried = [], 0
    for case in corpus("url_cases.jsonl"):
        if not is_lexical(case):
            continue
        tried += 1
        use = reached(case["policy"], case["url"])
        if use is None:
            continue
        confined = CapabilitySet(host_rules(case.get("confine_to", [])))
        if case["expect"] == "deny" or not confined.has(use):
            wrong.append((case["id"], case["url"], str(use)))
    assert tried > 400
    assert wrong == []


@needs_corpora
def test_no_path_of_the_corpus_reaches_outside_its_roots() -> None:
    places = {"$ROOT": "/t/ROOT", "$OUT": "/t/OUT", "$T": "/t"}

    def placed(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    wrong, tried = [], 0
    for case in corpus("path_cases.jsonl"):
        links = any(" -> " in entry for entry in case["fixture"])
        if links or case["policy"]["read"] == ["/"]:
            continue  # only the file system knows
        tried += 1
        try:
            allowed = CapabilitySet([f"fs:read:{placed(path)}" for path in case["policy"]["read"]])
            use = use_of_path("read", placed(case["path"]), placed(case["cwd"]) if "cwd" in case else None)
        except (Malformed, InvalidUse):
            answer = False
        else:
            answer = allowed.has(use)
            roots = [placed(path).split("/") for path in case["policy"]["read"]]
            inside = any(use.target.split("/")[: len(root)] == root for root in roots)
            if answer != inside:
                wrong.append((case["id"], case["path"], str(use)))
        if {"allow": True, "check_true": True, "deny": False}.get(case["expect"], answer) != answer:
            wrong.append((case["id"], case["path"], case["expect"]))
    assert tried > 900
    assert wrong == []
