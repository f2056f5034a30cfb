"""Problems of a policy that no single file shows: tools that do not fit, are not declared, or are listed in vain.

Also tools that a manifest admits as if they were a server's, where its workspace has no such server. Most often the
servers are in another workspace: the file in `.licet/`, while the manifest is next to that directory.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from licet.core.decision.fixes import call_denials
from licet.core.decision.reach import reach_of
from licet.core.decision.validate import Misfit, validate_tools
from licet.core.late_pattern import late_pattern
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import CODING_AGENTS, SERVER_NAME, tool_parts
from licet.core.values import Problem
from licet.own_files import read_regular
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.nodes import Mapping, read_nodes
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE
from licet.policy_files.shapes import did_you_mean, meant_by

MOST_PROBLEMS = 1000  # shown in one run; a hostile file could have a million
_MISSPELT = 0.8  # of 1: `read_plian` is 0.9 of `read_plain`, and `write_file` 0.74 of `read_file`
_MOST_NAMED = 5  # tools or files that one message names
_MOST_LISTED = 50  # arguments that one message names


class MisfitProblem(Problem, frozen=True):
    """A problem that also holds the misfit of a tool as data."""

    misfit: Misfit | None = None


_TOOL = late_pattern(rf"({SERVER_NAME})\.[^.].*")


def tools_without_server(manifest: Manifest) -> dict[str, list[str]]:
    """The admitted tools that nothing declares and that are named like those of a server, by that server."""
    known = manifest.tools.keys() | manifest.sources.keys()
    found: dict[str, list[str]] = {}
    for name in manifest.admissions:
        like = _TOOL.fullmatch(name)
        is_absent = like and like[1] not in manifest.servers and like[1] not in CODING_AGENTS
        if like and is_absent and name not in known and not call_denials(manifest, name):
            found.setdefault(like[1], []).append(name)
    return found


def missing_server_problems(manifest: Manifest, severity: Literal["error", "warning"]) -> Iterator[Problem]:
    """A problem for each server that is missing, with the workspace that probably should be in use."""
    for server, tools in tools_without_server(manifest).items():
        origin = manifest.admissions[tools[0]][0].origin
        listed = ", ".join(f"`{name}`" for name in tools[:_MOST_NAMED]) + (" …" if len(tools) > _MOST_NAMED else "")
        hint = did_you_mean(server, manifest.servers, []) or other_workspace(manifest, [server])
        hint = hint or f"`licet lock --init {server} -- COMMAND` drafts one"
        text = f"{listed}, but no server `{server}` and no such tool in its workspace"
        yield Problem(origin, text, f"`{server}` under `servers:` in the {WORKSPACE_FILE} next to it", hint, severity)


def other_workspace(manifest: Manifest, wanted: Iterable[str] = ()) -> str:
    """Which file near a manifest has servers, and what to do; empty if there is none.

    One that has a `wanted` server comes before others.
    """
    file = Path(manifest.origin.file)
    around = (file.parent, file.parent / "..", Path())
    places = [Path(os.path.normpath(one / name)) for one in around for name in (POLICY_DIRECTORY, "")]
    used = {os.path.realpath(file), os.path.realpath(file.parent / WORKSPACE_FILE)}
    found = {
        place: names
        for place in dict.fromkeys(places)
        if os.path.realpath(place / WORKSPACE_FILE) not in used and (names := _servers(place / WORKSPACE_FILE))
    }
    having = [place for place, names in found.items() if not names.isdisjoint(wanted)]
    for place in (*having, *found):
        where = "this directory" if place == Path() else f"`{place}/`"
        return f"`{place / WORKSPACE_FILE}` has servers: put the manifest into {where}"
    return ""


def _servers(path: Path) -> frozenset[str]:
    """The names below `servers:` in a file; none if it cannot be read."""
    try:
        node, problems = read_nodes(read_regular(path, MOST_BYTES), str(path))
    except (OSError, ValueError):
        return frozenset()
    entry = node.entries.get("servers") if isinstance(node, Mapping) and not problems else None
    return frozenset(entry.node.entries) if entry is not None and isinstance(entry.node, Mapping) else frozenset()


def _misfits(manifest: Manifest) -> tuple[Misfit, ...]:
    """The misfits of the declared tools of this agent, up to a limit."""
    # A workspace may declare tools for other agents too, and a file may deny tools of a bundle: no gate admits these.
    admitted = {name for name in manifest.admissions if not call_denials(manifest, name)}
    specs = [spec for name, spec in manifest.tools.items() if name in admitted]
    return validate_tools(specs, manifest, most=MOST_PROBLEMS + 1)


def misfit_problems(manifest: Manifest) -> Iterator[Problem]:
    """A problem for each misfit, at the place of its tool."""
    return (_problem(manifest, misfit) for misfit in _misfits(manifest))


def argument_name_problems(manifest: Manifest) -> Iterator[Problem]:
    """A problem for each argument rule whose tool has no such argument, where the source shows its parameters."""
    problems: list[Problem] = []
    for name, admissions in manifest.admissions.items():
        taken = manifest.tools[name].parameters if name in manifest.tools else None
        if taken is None:
            continue
        known = frozenset(taken)
        for origin, argument in (
            (admission.origin, argument) for admission in admissions for argument in admission.args
        ):
            if argument in known or len(problems) > MOST_PROBLEMS:
                continue
            message = f"`{argument}` is not an argument of `{name}`, so its rule has no effect"
            expected = f"one of {_some(taken)}" if taken else "no rule, since it takes no arguments"
            misfit = Misfit(name, "arguments", f"args.{argument}", f"{message} ({origin})", f"expected {expected}")
            hint = did_you_mean(argument, taken, problems)
            problems.append(MisfitProblem(origin, f"that {message}", expected, hint, misfit=misfit))
    return iter(problems)


def idle_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each tool that `native` lists without effect, since it runs at another level."""
    for name in sorted(set().union(*(listed.names for listed in manifest.natives))):
        reach = reach_of(manifest, name)
        if reach is None or reach.level in (None, "native"):
            continue
        stated = f'`sandbox="{reach.level}"` on the tool' if reach.spec.sandbox else f"`sandbox: {reach.level}`"
        found = f"`{name}` in `native`, but {stated}"
        hint = "it runs behind walls: remove it here, or state `native` there too"
        yield Problem(manifest.places.get("native", manifest.origin), found, "a tool of level native", hint, "warning")


def degraded_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning if programs may run without namespaces, and without what takes their place."""
    if manifest.allow_degraded:
        hint = "programs may then run without a network and a supervisor; `licet doctor` shows what this machine has"
        found, expected = "`allow_degraded: true`", "false, unless the machine lacks namespaces and supervised calls"
        yield Problem(manifest.places.get("sandbox", manifest.origin), found, expected, hint, "warning")


def undeclared_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning if tools are admitted that no file declares, so it cannot be checked whether they fit.

    An error if the name of one is nearly that of a declared tool which is not admitted: it is that one, misspelt.
    """
    # A source that could not be read is a problem of its own.
    known = manifest.tools.keys() | manifest.sources.keys()
    unknown = [name for name in manifest.admissions if name not in known and not call_denials(manifest, name)]
    served = [name for name in unknown if tool_parts(name, manifest.servers) is not None]
    for why in dict.fromkeys(manifest.withheld.get(name, "") for name in served):
        alike = [name for name in served if manifest.withheld.get(name, "") == why]
        found = f"{'a tool' if len(alike) == 1 else f'{len(alike)} tools'} of servers that cannot be called"
        hint = "`licet lock` takes what its server offers, and `servers.NAME.tools` says what a tool of it may do"
        origin, expected = manifest.admissions[alike[0]][0].origin, "a lock and an entry that have it"
        yield Problem(origin, f"{found} ({listed_names(alike)}): {why}", expected, hint, "warning")
    missing = {name for names in tools_without_server(manifest).values() for name in names}
    yield from missing_server_problems(manifest, "warning")
    unknown = [name for name in unknown if name not in served and name not in missing]
    if unknown:
        hint = "without one it cannot be checked whether they fit"
        # If a name is misspelt, the tool that was meant is declared and not admitted.
        unplaced = sorted((manifest.tools.keys() | manifest.sources.keys()) - manifest.admissions.keys())
        near = [(name, meant_by(name, unplaced, [])) for name in unknown[:_MOST_NAMED]]
        expected = "`from` or `needs` for each under `tools` in the workspace"
        meant = {name: close for name, close in near if close}
        for name in [name for name, close in meant.items() if _is_misspelt(name, close)]:
            misspelt = f"a tool without a declaration (`{name}`)"
            close = meant.pop(name)
            unknown.remove(name)
            yield Problem(manifest.admissions[name][0].origin, misspelt, expected, f"did you mean `{close}`?")
        if meant:
            hint += f"; did you mean {', '.join(f'`{close}` by `{name}`' for name, close in meant.items())}?"
    if unknown:
        number = "a tool" if len(unknown) == 1 else f"{len(unknown)} tools"
        found = f"{number} without a declaration ({listed_names(unknown)})"
        yield Problem(manifest.admissions[unknown[0]][0].origin, found, expected, hint, "warning")


def _is_misspelt(name: str, declared: str) -> bool:
    """Whether two names differ in a letter or two, as a misspelt one does."""
    import difflib  # only needed for a name that nothing declares

    return difflib.SequenceMatcher(None, name.lower(), declared.lower()).ratio() >= _MISSPELT


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_MOST_LISTED]) + (" …" if len(names) > _MOST_LISTED else "")


def listed_names(names: list[str]) -> str:
    """The first of some names, for a message."""
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMED]) + (" …" if len(names) > _MOST_NAMED else "")


def _problem(manifest: Manifest, misfit: Misfit) -> Problem:
    spec = manifest.tools[misfit.tool]
    name, message = f"`{misfit.tool}`", misfit.message
    needed = message.startswith("needs ")
    ways = [misfit.fix, *(["narrow what the tool declares"] if needed or not misfit.fix else [])]
    if name not in message:
        message = f"{name} {message}" if needed else f"{name} does not fit: {message}"
    origin = spec.origin or manifest.admissions[misfit.tool][0].origin
    hint = ", or ".join(filter(None, ways))
    return MisfitProblem(
        origin, f"that {message}", f"a tool that fits the agent `{manifest.agent}`", hint, misfit=misfit
    )
