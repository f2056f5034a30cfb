"""Arguments that a manifest ties to the grant: the uses that their values name, before anything runs."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from licet.core.network import METHODS
from licet.core.set import CapabilitySet
from licet.core.use import InvalidUse, Use, use_of_path, use_of_url

# Below these keywords a schema says what a value is; below all others it only says what it may or may not look like.
DESCENDS = ("items", "properties", "prefixItems")


class Tied(NamedTuple):
    """A value inside an argument that a `scope` rule speaks of."""

    argument: str
    scope: str
    value: Any


def tied(rules: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[Tied]:
    """Every value that a rule with `scope` ties to the grant; what was left out, or is null, names nothing."""
    for name, rule in rules.items():
        if name in arguments:
            yield from _walk(name, rule, arguments[name])


def _walk(name: str, rule: Any, value: Any) -> Iterator[Tied]:
    if not isinstance(rule, Mapping) or value is None:
        return
    if scope := rule.get("scope"):
        for one in value if isinstance(value, list) else [value]:
            yield Tied(name, scope, one)
    if isinstance(value, list):
        first = rule.get("prefixItems", [])
        for place, one in enumerate(value):
            yield from _walk(name, first[place] if place < len(first) else rule.get("items"), one)
    if isinstance(value, Mapping):
        for key, one in rule.get("properties", {}).items():
            yield from _walk(name, one, value.get(key))


def use_of(one: Tied, grant: CapabilitySet, workdir: str) -> Use:
    """The use that a tied value is, or `InvalidUse`."""
    if type(one.value) is not str:
        raise InvalidUse(type(one.value).__name__, "text")
    domain, _, action = one.scope.partition(":")
    match domain:
        case "fs":
            return use_of_path(action, one.value, workdir)
        case "network":
            # An address alone does not say what will be done there: any request that is held will do.
            asked = [use_of_url(method, one.value) for method in METHODS]
            return next(filter(grant.has, asked), asked[0])
        case "process":
            return Use(f"process:exec:{one.value}")
        case _:
            return Use(f"{domain}:read:{one.value}")
