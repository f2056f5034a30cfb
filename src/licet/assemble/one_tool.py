"""`check_and_run`: calls one tool under one set of capabilities, without a manifest.

The set is the ceiling, and it approves the writes in it. Everything else is as in any call: registration, handles,
walls, events and a receipt. `native`, `full` and `destructive` tools and private addresses need a manifest.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from licet.assemble.gate import Backends, Gate
from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet, Rules
from licet.core.decision.request import REASON_OF_DOMAIN, Ground
from licet.core.policy.connector import ConnectorRule, Connectors
from licet.core.policy.layer import ELEVATED, OWN_STORAGE, POLICY, Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission, Approvals, MaxEffect, Natives
from licet.core.policy.tool import ToolSpec
from licet.core.values import CHECK_AND_RUN, Origin
from licet.declare import Tool
from licet.guard.ports import Ports
from licet.guard.registration import Registered, RegisteredTools
from licet.guard.result import Result
from licet.policy_files.manifest_reader import with_protected_paths
from licet.policy_files.policy_paths import policy_paths
from licet.policy_files.trust import trusted_paths

_HERE = Origin("check_and_run(allow=…)", 0, 0)
_ELSEWHERE = Origin("a manifest: `check_and_run` opens no private address", 0, 0)
_NEEDS_MANIFEST = "call it under a manifest that says so: `Gate(load_manifest(…), [{tool}], …)`"
_CHANGES = ("write", "delete")


async def check_and_run(
    tool: Tool,
    arguments: Mapping[str, Any] | None = None,
    *,
    allow: CapabilitySet | Rules,
    backends: Ports | None = None,
    session: str = "main",
) -> Result:
    """Call one tool under a set of capabilities, without a manifest.

        result = await check_and_run(
            read_note, {"name": "oslo"}, allow=CapabilitySet(["fs:read:/srv/notes"]), backends=Backends.local()
        )

    The call is denied before it starts if the set does not cover what the tool needs. Class and level are those that
    the tool declares; `native`, `full` and `destructive` need a manifest. Without backends, a tool that needs any is
    refused. See docs/calls.md.
    """
    if not isinstance(tool, Tool):
        raise TypeError(f"expected a tool declared with `@tool`, found {type(tool).__name__}")
    if isinstance(allow, str):  # a string is iterable too, character by character
        raise TypeError('expected `allow=CapabilitySet(["fs:read:/srv/data"])`, found a text')
    held = allow if isinstance(allow, CapabilitySet) else CapabilitySet(allow)
    manifest = _manifest(tool.spec, held)
    own = Backends() if backends is None else None
    try:
        gate = _OneToolGate(manifest, [tool], own or backends, pin=manifest.digest, on_misfit="deny")
        async with gate.session(session) as opened:
            return await opened.call(tool.name, arguments)
    finally:
        if own is not None:
            own.close()  # end the worker that would wait for a next call


def _manifest(spec: ToolSpec, allow: CapabilitySet) -> Manifest:
    """Make a manifest from the set: one ceiling, one tool, no budget."""
    call = Capability(f"tool:call:{spec.name}")
    # without a rule about tools, this tool is allowed
    named = any(rule.domain == "tool" for rule in (*allow.allow, *allow.deny))
    rules = (*allow.allow, *OWN_STORAGE, *(() if named else (call,)))
    ceiling = Layer(
        "allow",
        "the set given as `allow`",
        _HERE,
        tuple(Rule(rule, _HERE, "allow") for rule in rules),
        tuple(Rule(rule, _HERE, "allow.deny") for rule in allow.deny),
        frozenset({"connector"}),  # connectors are decided by the lists below
    )
    wanted = {need.key for need in spec.needs.allow if need.domain == "connector" and not need.defers}
    wanted |= {spec.connector.name} if spec.connector else set()
    lines = tuple(ConnectorRule(name, "", _HERE) for name in sorted(wanted) if allow.has(f"connector:use:{name}"))
    manifest = Manifest(
        agent=CHECK_AND_RUN,
        origin=_HERE,
        layers=(ceiling,),
        admissions={spec.name: (Admission(_HERE, approval="manifest"),)},
        max_effects=(MaxEffect("write_limited", _HERE, True),),
        private=((),),
        natives=(Natives(frozenset(), _ELSEWHERE),),
        connectors=Connectors(tenant=lines, profiles=(lines,)),
        approvals=Approvals(write="manifest"),  # the caller approved the writes by allowing them in the set
        pinned="check_and_run",
    )
    return with_protected_paths(manifest, dict.fromkeys(policy_paths((), trusted_paths()), POLICY))


class _OneToolGate(Gate):
    """A gate whose manifest is a set.

    It also denies a need of `*` if the set has nothing of it, and its advice is about the set.
    """

    def _register(self, manifest: Manifest, *, refuse: bool, parent: RegisteredTools | None = None) -> RegisteredTools:
        policy = super()._register(manifest, refuse=refuse, parent=parent)
        tools = {name: replace(one, misfits=tuple(_grounds(one))) for name, one in policy.tools.items()}
        return replace(policy, tools=tools)


def _grounds(registered: Registered) -> Iterator[Ground]:
    """The reasons why a tool does not fit a set, each with a fix that is possible in `check_and_run`."""
    spec = registered.tool.spec
    call = f"tool:call:{spec.name}"
    if registered.reach is not None and not registered.reach.layers[0].allowed.has(call):
        text = f"`{spec.name}` is not among the tools of the set given as `allow`"
        yield Ground("TOOL_NOT_IN_BUNDLE", text, _HERE, f"add `{call}` to `allow`", call)
    above = {one.origin.file for one in registered.reach.manifest.organisations} if registered.reach else ()
    for ground in registered.misfits:
        domain = ground.capability.partition(":")[0]
        if ground.origin is not None and ground.origin.file in above:
            yield ground
        elif domain == "connector":
            text = f"`{spec.name}` needs {ground.capability}, which the set given as `allow` does not allow"
            yield replace(ground, text=text, fix=f"add `{ground.capability}` to `allow`")
        elif domain in REASON_OF_DOMAIN:
            yield ground
        elif spec.effect in ELEVATED or spec.sandbox == "native":
            yield replace(ground, origin=_HERE, fix=_NEEDS_MANIFEST.format(tool=spec.name))
        else:  # the tool states no class, or no level
            yield replace(ground, fix=ground.fix.partition(", or ")[0])
    if registered.reach is not None:
        yield from (_nothing_of(spec, need) for need in _unheld(spec, registered.reach.layers[0].allowed))


def _unheld(spec: ToolSpec, allow: CapabilitySet) -> list[Capability]:
    """The needs of `*` of which a set has nothing at all."""
    lost = [need for need in spec.needs.allow if need.defers and not (CapabilitySet((need,)) & allow).allow]
    changes = [need for need in spec.needs.allow if need.defers and need.domain == "fs" and need.action in _CHANGES]
    if spec.by_keys and any(need not in lost for need in changes):  # `fs_reach.write` is one need that makes two rules
        lost = [need for need in lost if need not in changes]
    return [need for need in lost if need.domain not in ("connector", "tool")]


def _nothing_of(spec: ToolSpec, need: Capability) -> Ground:
    text = f"`{spec.name}` needs {need}, and the set given as `allow` has nothing of it"
    fix = f"add what it may use of `{need}` to `allow`"
    return Ground(REASON_OF_DOMAIN[need.domain], text, _HERE, fix, str(need))
