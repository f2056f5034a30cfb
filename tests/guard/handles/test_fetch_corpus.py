"""Third-party cases of hostile URLs, DNS answers and redirects, through `ctx.fetch` over a network in memory."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from guard.grants import grant
from licet.backends.memory import Answer, MemoryHttp
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed, canonical_host
from licet.errors import Refused
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.ports import Exchange

CORPORA = os.environ.get("LICET_CORPORA")
PUBLIC = "93.184.215.14"
needs_corpora = pytest.mark.skipif(not CORPORA, reason="LICET_CORPORA does not name the folder of third-party cases")

Case = dict[str, Any]

# What browsers take and licet refuses, by the words of the refusal: each is a line of docs/limits.md.
REFUSED_ON_PURPOSE = {
    "a URL without control characters": "control characters",
    "a URL without user name or password": "user name or password",
    "a host name such as": "Hosts that are not canonical",
    "a host name of at most 253 characters": "longer than 253",
    "a port from 1 to 65535": "port 0",
    "a host whose spelling is settled": "capital sharp s",
    "an absolute http or https URL": "punycode",
}


def cases() -> list[Case]:
    assert CORPORA
    return [json.loads(line) for line in (Path(CORPORA) / "url_cases.jsonl").read_text("utf-8").splitlines()]


def rules(hosts: list[str]) -> list[str]:
    """Rules for the hosts of a case; malformed hosts are left out."""
    found = []
    for host in hosts:
        try:
            found.append(str(Capability(f"network:*:*@{bracketed(host)}")))
        except Malformed:
            continue
    return found


def bracketed(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and host[0] != "[" else host


def outcome(case: Case) -> tuple[set[str], str]:
    """The hosts that the URL of a case reached, and the refusal, if there was one."""
    answers = {name: list(found) for name, found in case.get("dns", {}).items()}

    def names(host: str) -> list[str]:
        given = answers.get(host)
        return [PUBLIC] if not given else given.pop(0) if len(given) > 1 else given[0]

    def site(asked: Exchange) -> Answer:
        redirect = case.get("redirect")
        if redirect and asked.url == start:
            return Answer(redirect["status"], [("Location", redirect["location"].encode().decode("latin-1"))])
        return Answer()

    start = case["url"]
    held = grant(rules(case["policy"]["allow"]), deny=rules(case["policy"].get("deny", [])))
    net = MemoryHttp(site, names)
    said = ""
    try:
        asyncio.run(ScopedFetch(held, net)(case["url"]))
    except Refused as refused:
        said = f"{refused.code}: {'; '.join(map(str, refused.decision.rules))}"
    return {sent.host for sent in net.sent}, said


def confined(case: Case) -> set[str]:
    """The hosts that a case may reach, in canonical form."""
    hosts = set()
    for host in case.get("confine_to", []):
        try:
            hosts.add(canonical_host(bracketed(host)))
        except Malformed:
            continue
    return hosts


@needs_corpora
def test_every_case_reaches_only_the_hosts_it_may() -> None:
    wrong, tried = [], 0
    for case in cases():
        reached, said = outcome(case)
        if case["sev"] != "must":
            continue
        tried += 1
        if not (not reached and said if case["expect"] == "deny" else reached <= confined(case)):
            wrong.append((case["id"], case["url"], case["why"], reached, said))
    assert tried > 400
    assert wrong == []


@needs_corpora
def test_where_a_browser_goes_and_licet_does_not_the_reason_is_documented() -> None:
    limits = (Path(__file__).parents[3] / "docs" / "limits.md").read_text("utf-8")
    wrong, used, reached_some = [], set(), 0
    for case in cases():
        if case["sev"] == "must":
            continue
        reached, said = outcome(case)
        reached_some += bool(reached)
        assert reached <= confined(case), case["id"]
        if not reached and case["confine_to"]:
            reasons = {reason for reason in REFUSED_ON_PURPOSE if reason in said}
            used |= reasons
            if len(reasons) != 1:
                wrong.append((case["id"], case["url"], said))
    assert wrong == []
    assert used == set(REFUSED_ON_PURPOSE)
    assert [words for words in REFUSED_ON_PURPOSE.values() if words not in limits] == []
    assert reached_some > 100
