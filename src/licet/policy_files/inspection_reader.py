"""Checks `inspect` and `stand_ins` beyond the shape of each key: of a ceiling, and of the servers of a workspace.

A key can only be placed where TLS is ended, so each of its hosts must be under `inspect` of the same ceiling. Names of
keys that can be placed nowhere are known in `core/policy/unplaceable.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from licet.core.algebra.rules import Use
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.inspection import uninspected
from licet.core.policy.unplaceable import unplaceable
from licet.core.values import Origin, Problem
from licet.policy_files.limits import MOST_INSPECTED, MOST_STAND_INS
from licet.policy_files.shapes import Located

Fields = Mapping[str, Located[Any]]
_FORMS = "`secret: REFERENCE`, or `file: PATH` with `field: NAME`"


def ceiling_problems(given: Fields, prefix: str, allowed: CapabilitySet) -> Iterator[Problem]:
    """Check `inspect` and `stand_ins` of a manifest or a personality, which allows these secrets."""
    located = given.get("stand_ins")
    yield from count_problems(given, prefix)
    if located is None:
        return
    for name, entry in located.value.items():
        yield from _source_problems(name, entry)
        yield from host_problems(entry.value, given, f"{prefix}inspect")
        secret = entry.value.get("secret")
        if secret is not None and not allowed.has(Use(f"secret:read:{secret.value}")):
            found, expected = f"the secret `{secret.value}`", f"a secret that `{prefix}secrets` lists"
            yield Problem(secret.origin, found, expected, f"add `{secret.value}` under `{prefix}secrets`")


def bundle_problems(name: str, given: Fields) -> Iterator[Problem]:
    """Check `inspect` and `stand_ins` of a bundle. Its entries only narrow, so their hosts are those of a manifest."""
    yield from count_problems(given, f"bundles.{name}.")
    located = given.get("stand_ins")
    for variable, entry in located.value.items() if located is not None else ():
        yield from _source_problems(variable, entry)


def server_placing_problems(name: str, located: Located[Any]) -> Iterator[Problem]:
    """Check `inspect` and the secrets with hosts of a server."""
    given: Fields = located.value
    native = (sandbox := given.get("sandbox")) is not None and sandbox.value == "native"
    placed = {key: one for key, one in _entries(given.get("secrets")).items() if isinstance(one.value, Mapping)}
    stated = given.get("inspect")
    if native and (stated is not None or placed):
        origin = stated.key_origin if stated is not None else next(iter(placed.values())).key_origin
        found = f"{'`inspect`' if stated is not None else 'a secret with `hosts`'} on a native server"
        expected = "no inspection: it runs without walls, so nothing is between it and the network"
        yield Problem(origin or located.origin, found, expected, "remove it, or `sandbox: native`")
        return
    yield from count_problems(given, f"servers.{name}.")
    for variable, entry in placed.items():
        yield from name_problems(variable, entry)
        yield from host_problems(entry.value, given, f"servers.{name}.inspect")


def count_problems(given: Fields, prefix: str) -> Iterator[Problem]:
    """Too many hosts or keys: each is compared with what programs send."""
    for key, most in (("inspect", MOST_INSPECTED), ("stand_ins", MOST_STAND_INS), ("secrets", MOST_STAND_INS)):
        located = given.get(key)
        if located is None or (key == "secrets" and isinstance(located.value, tuple)) or len(located.value) <= most:
            continue
        origin = located.key_origin or located.origin
        yield Problem(origin, f"{len(located.value)} entries under `{prefix}{key}`", f"at most {most}")


def host_problems(entry: Fields, given: Fields, key: str) -> Iterator[Problem]:
    """A problem for each host of a key that is not looked into, with the line that does."""
    inspect = given.get("inspect")
    if inspect is None and "inspect" in given:  # it has errors of its own
        return
    looked_into = tuple(item.value for item in inspect.value) if inspect is not None else ()
    hosts = entry.get("hosts")
    for item in hosts.value if hosts is not None else ():
        if uninspected((item.value,), looked_into):
            expected = f"a host under `{key}`, since no key can be placed in a tunnel"
            yield Problem(item.origin, f"`{item.value}`", expected, f"add `{item.value}` under `{key}`")


def name_problems(name: str, entry: Located[Any]) -> Iterator[Problem]:
    """A warning if a name is that of a key that can be placed nowhere."""
    origin: Origin = entry.key_origin or entry.origin
    for text in (name, *(entry.value[key].value for key in ("secret", "file", "field") if entry.value.get(key))):
        if why := unplaceable(text):
            expected = "a key that travels as it is, such as a token or an API key"
            hint = f"{why}; keep it out of what programs reach, and let a tool with `ctx` use it"
            yield Problem(origin, f"`{text}` under stand-ins", expected, hint, "warning")
            return


def _source_problems(name: str, entry: Located[Any]) -> Iterator[Problem]:
    given: Fields = entry.value
    origin: Origin = entry.key_origin or entry.origin
    keys = [key for key in ("secret", "file", "field") if key in given]
    if keys not in (["secret"], ["file", "field"]):
        stated = " and ".join(f"`{key}`" for key in keys) or "no source"
        yield Problem(origin, f"{stated} in the stand-in `{name}`", f"one of {_FORMS}")
    yield from name_problems(name, entry)


def _entries(located: Located[Any] | None) -> Mapping[str, Located[Any]]:
    return located.value if located is not None and isinstance(located.value, Mapping) else {}
