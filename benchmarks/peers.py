"""The peers, each set up in the fastest way of its own documentation, on the same rules and requests.

Policies are parsed and indexed before the clock starts, requests are prepared as far as the peer allows, logging is
off, and answers are read after the clock has stopped. A peer that is not installed is listed with the reason.
"""

import functools
import importlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.floors import host_keys, path_keys
from benchmarks.harness import Contestant
from benchmarks.worlds import World

__all__ = ["SCOPE_PEERS", "AbsentPeerError", "admission"]


class AbsentPeerError(Exception):
    """A peer that cannot take part, and why."""


def load(name: str) -> Any:
    """Import a peer, or raise `AbsentPeerError` with the reason."""
    try:
        return importlib.import_module(name)
    except ImportError as wrong:
        raise AbsentPeerError(f"{name} cannot be imported: {wrong}") from wrong


def admission(peers: dict[str, Callable[[Any], Contestant]], world: Any) -> tuple[list[Contestant], dict[str, str]]:
    """The peers that can take part in a world, and the reasons of the others."""
    seated, absent = [], {}
    for name, build in peers.items():
        try:
            seated.append(build(world))
        except AbsentPeerError as why:
            absent[name] = str(why)
    return seated, absent


def _keys(world: World) -> list[tuple[str, ...]]:
    """Each request with the rule texts that could cover it, so that set look-ups replace patterns."""
    if world.kind == "path":
        return [path_keys(request) for request in world.requests]
    return [tuple(f"*{key}" if key[:1] in (".", "") else key for key in host_keys(host)) for host in world.requests]


def vakt_scopes(world: World) -> Contestant:
    """vakt: one policy over two sets (its `AnyIn`), flat in the number of rules, 1.2x faster than two policies."""
    vakt, rules = load("vakt"), load("vakt.rules")
    logging.getLogger("vakt").setLevel(logging.CRITICAL)
    reach = rules.And(rules.AnyIn(*world.allow), rules.Not(rules.AnyIn(*world.deny)))
    policy = vakt.Policy(
        1, subjects=[rules.Any()], actions=[rules.Eq("use")], resources=[reach], effect=vakt.ALLOW_ACCESS
    )
    storage = vakt.MemoryStorage()
    storage.add(policy)
    guard = vakt.Guard(storage, vakt.RulesChecker())
    asked = [vakt.Inquiry(subject="agent", action="use", resource=list(keys)) for keys in _keys(world)]
    # `is_allowed` only adds a log line to this.
    return Contestant("vakt", guard.is_allowed_check, asked)


_CASBIN_MODEL = """
[request_definition]
r = sub, keys
[policy_definition]
p = sub
[policy_effect]
e = some(where (p.eft == allow))
[matchers]
m = r.sub == p.sub && reach(r.keys)
"""


def casbin_scopes(world: World) -> Contestant:
    """casbin: a matcher function over two sets; its own `globMatch` per rule takes milliseconds with 1,000 rules."""
    casbin = load("casbin")
    for name in ("casbin", "casbin.enforcer", "casbin.policy", "casbin.role"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    model = casbin.Model()
    model.load_model_from_text(_CASBIN_MODEL)
    enforcer = casbin.Enforcer(model)
    enforcer.add_policy("agent")
    allow, deny = frozenset(world.allow), frozenset(world.deny)
    enforcer.add_function("reach", lambda keys: not allow.isdisjoint(keys) and deny.isdisjoint(keys))
    return Contestant("casbin", functools.partial(enforcer.enforce, "agent"), _keys(world))


_CEDAR_POLICY = """
permit (principal, action, resource)
when { principal.allow.containsAny(context.keys) && !principal.deny.containsAny(context.keys) };
"""


def cedar_uid(kind: str, name: str) -> dict[str, str]:
    """An entity as a structure: twice as fast for cedarpy as the text `Kind::"name"`, which it has to parse."""
    return {"type": kind, "id": name}


def cedar_scopes(world: World) -> Contestant:
    """cedarpy: parsed policy and entity handles; the rules are two sets on the agent, and one policy checks both.

    One policy per rule is linear (1.6 ms with 1,000). A hierarchy of hosts would need every requested host as an entity
    beforehand. The context is encoded before the clock starts.
    """
    cedarpy = load("cedarpy")
    policies = cedarpy.PolicySet.from_str(_CEDAR_POLICY)
    agent = {"uid": cedar_uid("Agent", "a"), "attrs": {"allow": world.allow, "deny": world.deny}, "parents": []}
    entities = cedarpy.Entities.from_json_str(json.dumps([agent]))
    asked = [
        {
            "principal": cedar_uid("Agent", "a"),
            "action": cedar_uid("Action", "use"),
            "resource": cedar_uid("Scope", keys[0]),
            "context": json.dumps({"keys": keys}),
        }
        for keys in _keys(world)
    ]
    answer = functools.partial(cedarpy.is_authorized, policies=policies, entities=entities)
    return Contestant("cedarpy", answer, asked, lambda result: result.allowed)


def tenuo_hosts(tenuo: Any, patterns: Sequence[str]) -> Any:
    """A tenuo constraint for host patterns: exact names in one `OneOf`, the rest as `Pattern`s."""
    exact = [pattern for pattern in patterns if pattern[0] != "*"]
    wild = [tenuo.Pattern(pattern) for pattern in patterns if pattern[0] == "*"]
    return tenuo.AnyOf([tenuo.OneOf(exact), *wild])


def tenuo_paths(tenuo: Any, roots: Sequence[str]) -> Any:
    """A tenuo constraint for subtrees."""
    return tenuo.AnyOf([tenuo.Subpath(root) for root in roots])


def tenuo_warrant(tenuo: Any, capabilities: dict[str, dict[str, Any]]) -> Any:
    """Issue and read a warrant once; afterwards only its constraints are checked, no signature and no expiry."""
    key = tenuo.SigningKey()
    return tenuo.Warrant.issue(key, capabilities, 3600, key.public_key)


def tenuo_scopes(world: World) -> Contestant:
    """tenuo: `check_constraints`, the unsigned part of a warrant check; `UrlSafe` would let `*.x.com` cover `x.com`."""
    tenuo = load("tenuo_core")
    constraint = tenuo_hosts if world.kind == "host" else tenuo_paths
    reach = tenuo.All([constraint(tenuo, world.allow), tenuo.Not(constraint(tenuo, world.deny))])
    check = tenuo_warrant(tenuo, {"tool": {"scope": reach}}).check_constraints
    asked = [{"scope": request} for request in world.requests]
    return Contestant("tenuo", functools.partial(check, "tool"), asked, lambda refusal: refusal is None)


SCOPE_PEERS: dict[str, Callable[[World], Contestant]] = {
    "vakt": vakt_scopes,
    "casbin": casbin_scopes,
    "cedarpy": cedar_scopes,
    "tenuo": tenuo_scopes,
}
