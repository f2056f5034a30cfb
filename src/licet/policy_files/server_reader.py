"""Checks the `servers:` section of a workspace, beyond the shape of its keys."""

from collections.abc import Iterator, Mapping

from licet.core.algebra.capability import Capability
from licet.core.algebra.scope import NAME_PATTERN
from licet.core.algebra.set import CapabilitySet
from licet.core.origin import Origin, Problem
from licet.core.policy.connector import ConnectorRef
from licet.core.policy.connector_definition import Definition
from licet.core.policy.effects import class_fits
from licet.core.policy.servers import PROMPTS, RESOURCES, below, is_own_header
from licet.policy_files.argument_rules import argument_problems
from licet.policy_files.fields import Fields, Lists, Value, key_origin, plain, record

LONGEST_NAME = 128  # characters of `SERVER.TOOL`
_PROCESS_KEYS = ("code", "grants", "env", "secrets", "limits", "sandbox")  # about the process of a server


def server_places(shared: Fields) -> Iterator[tuple[str, Origin]]:
    """Where each server and each of its tools is written, for messages."""
    for name, located in record(shared, "servers").items():
        yield f"servers.{name}", key_origin(located)
        for tool, entry in record(located.value, "tools").items():
            yield f"servers.{name}.tools.{tool}", key_origin(entry)


def server_problems(shared: Fields, definitions: Mapping[str, Definition]) -> Iterator[Problem]:
    """Check each server: its keys together, its tools, and the definition of its connector."""
    servers = record(shared, "servers")
    for tool, entry in record(shared, "tools").items():
        server, dot, _ = tool.partition(".")
        if dot and server in servers:
            found, expected = f"`{tool}`", f"another name: `{server}.…` are the tools of the server `{server}`"
            yield Problem(key_origin(entry), found, expected)
    entries = [tool.value for located in servers.values() for tool in record(located.value, "tools").values()]
    yield from argument_problems((entry.get("args") for entry in entries), [])
    for name, located in servers.items():
        yield from _key_problems(name, located)
        yield from _tool_problems(name, located.value)
        yield from _connector_problems(name, located, definitions)


def _key_problems(name: str, located: Value) -> Iterator[Problem]:
    given: Fields = located.value
    if ("command" in given) == ("url" in given):
        found = "both `command` and `url`" if "url" in given else "neither `command` nor `url`"
        yield Problem(key_origin(located), f"the server `{name}` with {found}", "one of the two")
    if "url" in given:
        for key in _PROCESS_KEYS:
            if key in given:
                found, expected = f"`{key}` on a server with a `url`", "a key about how it is reached"
                hint = "it runs on another machine, where no walls of licet are; remove the key"
                yield Problem(key_origin(given[key]), found, expected, hint)
    elif "headers" in given:
        found, expected = "`headers` on a server with a `command`", "`secrets`, which sets variables of its process"
        yield Problem(key_origin(given["headers"]), found, expected)
    seen: set[str] = set()
    for header, secret in record(given, "headers").items():
        if is_own_header(header):
            yield Problem(key_origin(secret), f"the header `{header}`", "another one: the gateway writes it itself")
        elif header.lower() in seen:
            yield Problem(key_origin(secret), f"the header `{header}` twice", "one secret for each header")
        seen.add(header.lower())
    if plain(given, "sandbox", "isolated") == "native" and "grants" in given:
        found, expected = "`grants` on a native server", "no grants: it runs without walls, as this user"
        yield Problem(key_origin(given["grants"]), found, expected, "remove one of `grants` and `sandbox: native`")
    listed = plain(given, "resources", ())
    for item in listed if isinstance(listed, tuple) else ():
        if not below(item.value, item.value):
            found, expected = f"`{item.value}`", "the beginning of a URI with its scheme, without `..`"
            yield Problem(item.origin, found, expected, "such as `file:///srv/data`")


def _tool_problems(name: str, given: Fields) -> Iterator[Problem]:
    remote, native = "url" in given, plain(given, "sandbox", "isolated") == "native"
    held = CapabilitySet(rule.value for rule in Lists(given, "", Origin("", 1, 1)).listed("grants"))
    for tool, located in record(given, "tools").items():
        entry: Fields = located.value
        if tool in (RESOURCES, PROMPTS):
            found, expected = f"a tool called `{tool}`", f"another name: reading its {tool} is the tool `{name}.{tool}`"
            yield Problem(key_origin(located), found, expected)
        if len(f"{name}.{tool}") > LONGEST_NAME:
            found = f"`{name}.{tool}`"
            yield Problem(key_origin(located), found, f"a full name that fits {NAME_PATTERN}")
        effect = entry.get("effect")
        if native and effect is not None and not class_fits(effect.value, "write_limited"):
            found, expected = f"class {effect.value} of a native server", "at most write_limited: nothing enforces more"
            yield Problem(effect.origin, found, expected)
        for rule in (*plain(entry, "needs", ()), *plain(entry, "optional", ())):
            if not (remote or native) and not CapabilitySet((rule.value,)) <= held:
                found, expected = f"`{rule.value}` of `{name}.{tool}`", f"what `servers.{name}.grants` holds"
                yield Problem(rule.origin, found, expected, "its process cannot reach more than that")


def _connector_problems(name: str, located: Value, definitions: Mapping[str, Definition]) -> Iterator[Problem]:
    given: Fields = located.value
    ref: ConnectorRef | None = plain(given, "connector", None)
    definition = definitions.get(ref.name) if ref is not None else None
    if ref is None or definition is None:
        return
    lists = Lists(given, f"servers.{name}.", key_origin(located))
    placed = (*record(given, "secrets").values(), *record(given, "headers").values())
    secrets = [(Capability(f"secret:read:{one.value}"), one.origin) for one in placed]
    for rule, origin in [(rule.capability, rule.origin) for rule in lists.capability_rules("grants")] + secrets:
        layer = definition.layer
        if layer is not None and rule.domain not in layer.silent and not CapabilitySet((rule,)) <= layer.allowed:
            found, expected = f"`{rule}` of server `{name}`", f"what `{layer.title}` allows"
            yield Problem(origin, found, expected, "narrow it, or add it to the definition")
    effects = [tool.value["effect"] for tool in record(given, "tools").values() if "effect" in tool.value]
    for effect, most in ((one, most) for one in effects for most, _ in definition.effects):
        if not class_fits(effect.value, most):
            found = f"class {effect.value} of server `{name}`"
            yield Problem(effect.origin, found, f"at most {most}, as its connector `{ref.name}` is defined")
