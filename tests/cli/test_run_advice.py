"""What `licet run` says after a refusal: advice only where a rule was missing, and then for that use and no more."""

import json
import re
from collections.abc import Iterable
from typing import get_args

import pytest
from msgspec.structs import replace

from guard.grants import grant
from licet.assemble.program import Flags, made_manifest, manifest_text, understood
from licet.assemble.review import Places
from licet.cli.run_hints import refusal_line
from licet.core.algebra.rules import Use
from licet.core.decision.advice import use_lacking_rules
from licet.core.decision.decision import CapabilityDenied
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Reason
from licet.core.policy.manifest import COMMANDS, Manifest, with_commands
from licet.errors import Refused
from licet.policy_files.load import read_made

ADVICE = re.compile(r"; add |to allow it|--allow-")
# What a program may ask the proxy for: written by it, so any host, port and method.
USES = [
    "network:tcp:other.test:443",
    "network:tcp:good.test:8443",
    "network:tcp:10.0.0.1:443",
    "network:https:post@good.test:443",
    "network:https:get@other.test:443",
    "network:http:get@other.test:80",
    "network:http:other@other.test:8080",
]
HELD = ("network:https:get@good.test", "network:tcp:[::1]:443")


def by_flags(*hosts: str) -> Reach:
    """What flags alone allow."""
    places = Places.here(None)
    return of(made_manifest(manifest_text(understood(Flags(net=hosts), places), "cat", places)))


def by_file(grants: Iterable[str], deny: Iterable[str] = ()) -> Reach:
    """What a policy allows to commands."""
    allowed = {"grants": [*grants], "deny": [*deny], "max_side_effect_class": "full"}
    budget = {"max_calls_per_day": 1}
    text = json.dumps({"agent": "a", "capabilities": {**allowed, "budget": budget}})
    policy = read_made(text, "agent.yaml", "/work")
    assert policy.manifest is not None, policy.problems
    return of(policy.manifest)


def of(policy: Manifest) -> Reach:
    reach = reach_of(with_commands(policy.expand("/work", "/home/x")), COMMANDS)
    assert reach is not None
    return reach


# Policies of every kind that `licet run` has.
DENY = ("network:*:*.test",)
REACHES = {
    "a file": by_file(HELD),
    "a file with a deny": by_file((*HELD, "network:*:*"), DENY),
    "flags": by_flags("good.test:22"),
}


@pytest.mark.parametrize("kind", REACHES)
@pytest.mark.parametrize("reason", get_args(Reason))
def test_a_refusal_for_any_other_reason_than_a_missing_rule_has_no_advice(reason: str, kind: str) -> None:
    """Every code that a refusal can have, with the text that such a refusal has: not the one of a missing rule."""
    if reason == "ADDRESS_NOT_ALLOWED":
        return  # about `private`, which is tested next to the addresses
    for use in USES:
        event = CapabilityDenied(use, "run", reason, "add `network:tcp:*` to your policy")
        line = refusal_line(event, REACHES[kind])
        assert line == f"licet: refused {use}: add `network:tcp:*` to your policy"


@pytest.mark.parametrize("kind", REACHES)
@pytest.mark.parametrize("use", USES)
def test_advice_allows_the_refused_use_and_no_other(use: str, kind: str) -> None:
    reach, asked = REACHES[kind], Use(use)
    event = CapabilityDenied(use, "run", "HOST_NOT_ALLOWED", "; ".join(map(str, reach.obstacles_of(asked))))
    line = refusal_line(event, reach)
    if kind == "a file with a deny":
        assert not ADVICE.search(line)  # somebody has decided on it already, or it is allowed
        return
    assert not reach.grant.has(asked)
    assert ADVICE.search(line)
    if kind == "flags":
        (value,) = re.findall(r"`--allow-net (\S+)`", line)
        tunnel = f"network:tcp:{asked.target}:{asked.port}"
        assert networks(by_flags(value)) == [tunnel]
        assert ("(no flag says less than any connection to that port)" in line) is (asked.action != "tcp")
        return
    (rule,) = re.findall(r"; to allow it, add `(\S+)` under `capabilities.grants` in agent.yaml$", line)
    assert {*networks(by_file((*HELD, rule)))} - {*networks(by_file(HELD))} == {use}


def limited(grants: Iterable[str], **more: object) -> Reach:
    """What a policy of the class `write_limited` allows to commands."""
    allowed = {"grants": [*grants], "max_side_effect_class": "write_limited", **more}
    policy = read_made(json.dumps({"agent": "a", "capabilities": allowed}), "agent.yaml", "/work")
    assert policy.manifest is not None, policy.problems
    return of(policy.manifest)


def test_a_tunnel_that_no_rule_names_is_refused_for_the_missing_rule_and_not_for_the_class() -> None:
    tunnel = Use("network:tcp:nowhere.test:443")
    reach = limited(["network:https:get@*.test"])
    (ground,) = reach.obstacles_of(tunnel)
    assert (ground.reason, ground.text) == ("HOST_NOT_ALLOWED", "the manifest does not allow it")
    assert "add `network:tcp:nowhere.test:443` under" in ground.fix
    assert limited(["network:tcp:nowhere.test:443"]).grant.has(tunnel)  # the class was no obstacle


def test_a_host_without_its_connection_is_refused_for_what_the_class_wants_named() -> None:
    reach = limited([], destinations={"allow": ["nowhere.test"]})
    (ground,) = reach.obstacles_of(Use("network:tcp:nowhere.test:443"))
    assert ground.reason == "SIDE_EFFECT_EXCEEDED"
    text = "class write_limited permits an unmediated connection only where a rule names its host and port"
    assert ground.text == text


def test_a_method_of_a_stronger_class_is_not_told_to_change_a_tool_that_no_command_has() -> None:
    grounds = limited(["network:https:get@nowhere.test"]).obstacles_of(Use("network:https:delete@nowhere.test:443"))
    assert [ground.text for ground in grounds][:1] == ["DELETE is not permitted to class write_limited"]
    assert "set `max_side_effect_class: full`" in grounds[0].fix
    assert "on the tool" not in "".join(ground.fix for ground in grounds)


def networks(reach: Reach) -> list[str]:
    return [str(rule) for rule in reach.grant.allow if rule.domain == "network"]


def test_who_tries_to_send_a_key_away_is_not_told_how_to_allow_it() -> None:
    """The program chose the host: the line would have given it the key."""
    call = grant(HELD)
    for plain in (False, True):
        with pytest.raises(Refused) as refused:
            call.refuse_key("TOKEN", Use("network:https:post@evil.test:443"), plain=plain)
        event = call.events[-1]
        assert isinstance(event, CapabilityDenied)
        told = refused.value.explain() + refusal_line(event, call.reach)
        assert "`hosts`" not in told
        assert "add `" not in told


@pytest.mark.parametrize("reason", get_args(Reason))
def test_only_a_use_that_rules_would_allow_is_named_as_one_to_grant(reason: str) -> None:
    """`licet lock` names what the walls of a server refused as something to add to its grants."""
    reach = REACHES["a file"]
    for use in USES:
        tried = CapabilityDenied(use, "server x", reason, f"tried to send the key TOKEN to {use}")
        assert use_lacking_rules(tried, reach) is None
        lacking = replace(tried, rule="; ".join(map(str, reach.obstacles_of(Use(use)))))
        assert use_lacking_rules(lacking, reach) == Use(use)
    assert use_lacking_rules(CapabilityDenied("network:*:<malformed>", "server x", reason, "x"), reach) is None
