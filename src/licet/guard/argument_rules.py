"""What is known about the arguments of a tool when it is registered: the rules of the manifest, and what is tied.

A tool without handles opens files and URLs by itself. Its arguments that name such are tied to its grant. If it touches
files or hosts, and takes other text that nobody has declared free, the gate says so.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.decision.arguments import ties_under, untied_ground
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Ground
from licet.core.origin import Origin
from licet.core.policy.argument_ties import Ties
from licet.core.policy.manifest import Manifest
from licet.declare import Tool
from licet.errors import UntiedArgument
from licet.guard.ports import ArgumentRules

_PACKAGE = "licet"


class Rules(Struct, frozen=True):
    """The rules on arguments of one admission, and the function that checks them."""

    rules: Mapping[str, Any]
    check: Callable[[Mapping[str, Any]], str] | None  # None: they cannot be checked, so every call is refused
    defaults: Mapping[str, Any]  # of arguments that a caller leaves out
    parameters: Mapping[str, str]  # by argument: the parameter of the function that takes it
    origin: Origin | None = None  # of the admission


def rules_of(tool: Tool, reach: Reach | None, make_check: ArgumentRules | None) -> tuple[Rules, ...]:
    """The rules of the manifest on the arguments of a tool, one for each admission that has some."""
    stated = [(one.origin, rules) for one in (reach.admissions if reach else ()) if (rules := one.argument_rules)]
    if not stated:
        return ()
    taken = tool.schema.get("properties", {})
    defaults = {name: held["default"] for name, held in taken.items() if "default" in held}
    parameters = {name: held for name, held in tool.parameter_names().items() if held is not None}
    return tuple(
        Rules(rules, make_check(rules) if make_check is not None else None, defaults, parameters, origin)
        for origin, rules in stated
    )


def argument_rule_misfits(tool: Tool, manifest: Manifest) -> Iterator[Ground]:
    """Misfits for rules that stop nothing: on arguments that the tool does not take, or takes under other names too."""
    admissions = [admission for admission in manifest.admissions.get(tool.name, ()) if admission.args]
    if not admissions:
        return
    taken = (tool.spec.schema or {}).get("properties", {})
    parameters = tool.parameter_names()
    for admission in admissions:
        for name in admission.args:
            if name not in taken:
                text = f"`{name}` is not an argument of `{tool.name}`: its rule would stop nothing"
                listed = ", ".join(f"`{one}`" for one in taken)
                fix = f"write the rule for one of {listed}, or take it out" if taken else "take the rule out"
            elif parameters.get(name) is None:
                text = f"`{name}` of `{tool.name}`, or a part of it, can be sent under another name, past its rule"
                fix = "give it one name: no `AliasChoices`, no `AliasPath`, no alias beside a name"
            else:
                continue
            yield Ground("ARGUMENT_NOT_ALLOWED", text, admission.origin, fix, f"args.{name}")


def ties_of_tool(tool: Tool, reach: Reach | None) -> Ties | None:
    """What is tied of the arguments of a tool without handles, by the parameters that take them.

    A field of a model that can be sent under several names is tied if any of them says so.
    """
    if reach is None or not reach.spec.governed:
        return None
    schema, parameters = tool.tied_schema()
    ties = ties_under(replace(reach, spec=replace(reach.spec, schema=schema)))
    assert ties is not None  # noqa: S101 - it is governed, and has a schema
    return Ties({parameters[name]: rule for name, rule in ties.rules.items()}, ties.tied, ties.untied)


def untied_grounds(tool: Tool, manifest: Manifest) -> tuple[Ground, ...]:
    """Why a strict gate refuses a tool: text in its arguments is not tied to what it declares."""
    reach = reach_of(manifest, tool.name)
    ties = ties_of_tool(tool, reach)
    if reach is None or ties is None:
        return ()
    ground = untied_ground(reach, ties)
    return () if ground is None else (ground,)


def warn_untied(grounds: Iterable[Ground]) -> None:
    """Warn about text in arguments that is not tied, at the line of the program that makes the gate."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    for ground in grounds:
        text = f"{ground.text}; {ground.fix}"
        warnings.warn_explicit(text, UntiedArgument, frame.f_code.co_filename, frame.f_lineno)
