"""Reading policies the way a reviewer does, and what of them would not run: tools that do not fit, or are unknown."""

from collections.abc import Iterator
from pathlib import Path

import click

from licet.assemble import Places, review
from licet.backends.manifest_yaml import Policy
from licet.backends.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE
from licet.backends.shape_parts import meant_by, nearest
from licet.core.admission import call_denials
from licet.core.manifest import Manifest
from licet.core.origin import Origin, Problem
from licet.core.reach import reach_of
from licet.core.scope import Malformed, path_key
from licet.core.validate import Misfit, validate_tools
from licet.surfaces.cli.options import Setting
from licet.surfaces.cli.show import MOST_PROBLEMS, MisfitProblem

_MOST_NAMED = 5  # tools or files that one message names
_MOST_LISTED = 50  # arguments that one message names
_SUFFIXES = (".yaml", ".yml", ".json")


def read(path: Path, setting: Setting) -> Policy:
    """A policy file with everything that it refers to; tools are read from their source, never imported."""
    if path.suffix == ".py":
        hint = f"`licet init {path}` writes the policy for its tools"
        wrong = Problem(Origin(str(path), 1, 1), "a Python file", "a policy file in YAML or JSON", hint)
        return Policy("manifest", None, (wrong,))
    if folders := [one for one in (path, setting.workspace, setting.personality) if one is not None and one.is_dir()]:
        return Policy("manifest", None, tuple(map(_directory, folders)))
    places = Places.here(setting.workdir)
    for title, place in (("working", places.workdir), ("home", places.home)):
        if place and (why := _unnameable(place)):
            raise click.UsageError(f"no rule can name the {title} directory: {why}")
    return review(path, setting.workspace, setting.personality, places)


def _misfits(manifest: Manifest) -> tuple[Misfit, ...]:
    """Each thing that a declared tool of this agent asks for and the manifest does not give, up to a number."""
    # A workspace may declare tools for other agents too, and a file may deny tools of a bundle: a gate takes neither.
    admitted = {name for name in manifest.seats if not call_denials(manifest, name)}
    specs = [spec for name, spec in manifest.tools.items() if name in admitted]
    return validate_tools(specs, manifest, most=MOST_PROBLEMS + 1)


def misfit_problems(manifest: Manifest) -> Iterator[Problem]:
    """A problem for each misfit, placed at its tool."""
    return (_problem(manifest, misfit) for misfit in _misfits(manifest))


def argument_name_problems(manifest: Manifest) -> Iterator[Problem]:
    """A problem for each rule on an argument that its tool does not have, as far as source tells: no gate takes it."""
    told: list[Problem] = []
    for name, seats in manifest.seats.items():
        taken = manifest.tools[name].parameters if name in manifest.tools else None
        if taken is None:
            continue
        known = frozenset(taken)
        for origin, argument in ((seat.origin, argument) for seat in seats for argument in seat.args):
            if argument in known or len(told) > MOST_PROBLEMS:
                continue
            message = f"`{argument}` is no argument of `{name}`: its rule would stop nothing"
            expected = f"one of {_some(taken)}" if taken else "no rule: it takes none"
            misfit = Misfit(name, "arguments", f"args.{argument}", f"{message} ({origin})", f"expected {expected}")
            hint = nearest(argument, taken, told)
            told.append(MisfitProblem(origin, f"that {message}", expected, hint, misfit=misfit))
    return iter(told)


def idle_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each tool that is named in `native` and runs at another level: its name there does nothing."""
    for name in sorted(set().union(*(listed.names for listed in manifest.natives))):
        reach = reach_of(manifest, name)
        if reach is None or reach.level in (None, "native"):
            continue
        stated = f'`sandbox="{reach.level}"` on the tool' if reach.spec.sandbox else f"`sandbox: {reach.level}`"
        found = f"`{name}` in `native`, but {stated}"
        hint = "it keeps its walls: take it out, or say `native` there too"
        yield Problem(manifest.places.get("native", manifest.origin), found, "a tool of level native", hint, "warning")


def degraded_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning if programs may run with fewer walls than they have elsewhere."""
    if manifest.allow_degraded:
        hint = "programs may run without namespaces then; `licet doctor` says whether this machine has them"
        found, expected = "`allow_degraded: true`", "false, unless the machine cannot keep all walls"
        yield Problem(manifest.places.get("sandbox", manifest.origin), found, expected, hint, "warning")


def undeclared_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning if tools are admitted whose declaration is in no file, so that their fit cannot be checked."""
    # A source that could not be read is a problem of its own.
    known = manifest.tools.keys() | manifest.sources.keys()
    unknown = [name for name in manifest.seats if name not in known and not call_denials(manifest, name)]
    if unknown:
        number = "a tool" if len(unknown) == 1 else f"{len(unknown)} tools"
        found = f"{number} without a declaration ({_listed(unknown)})"
        hint = "until then it is not checked whether they fit"
        # Whoever misspells a tool leaves the one that was meant without a place.
        unplaced = sorted((manifest.tools.keys() | manifest.sources.keys()) - manifest.seats.keys())
        near = [(name, meant_by(name, unplaced, [])) for name in unknown[:_MOST_NAMED]]
        if meant := [f"`{close}` by `{name}`" for name, close in near if close]:
            hint += f"; did you mean {', '.join(meant)}?"
        origin = manifest.seats[unknown[0]][0].origin
        yield Problem(origin, found, "`from` or `needs` for each under `tools` in the workspace", hint, "warning")


def _directory(path: Path) -> Problem:
    """What to say to a directory where a file was expected: the files in it that may be meant."""
    try:
        inside = [one for one in path.iterdir() if one.suffix in _SUFFIXES and one.name[0] != "." and one.is_file()]
        inside += [one for one in (path / POLICY_DIRECTORY / WORKSPACE_FILE,) if one.is_file()]
    except OSError:
        inside = []
    inside.sort(key=lambda one: (one.name != WORKSPACE_FILE, one.name, -len(one.parts)))
    hint = f"perhaps {_listed(list(map(str, inside)))}" if inside else "there is none in it"
    return Problem(Origin(str(path), 1, 1), "a directory", "a policy file", hint)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_MOST_LISTED]) + (" …" if len(names) > _MOST_LISTED else "")


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMED]) + (" …" if len(names) > _MOST_NAMED else "")


def _unnameable(path: str) -> str:
    """Why a path cannot stand in a rule, or the empty string."""
    try:
        path_key(path)
    except Malformed as wrong:
        return str(wrong)
    return ""


def _problem(manifest: Manifest, misfit: Misfit) -> Problem:
    spec = manifest.tools[misfit.tool]
    name, message = f"`{misfit.tool}`", misfit.message
    needed = message.startswith("needs ")
    ways = [misfit.fix, *(["narrow what the tool declares"] if needed or not misfit.fix else [])]
    if name not in message:
        message = f"{name} {message}" if needed else f"{name} does not fit: {message}"
    origin = spec.origin or manifest.seats[misfit.tool][0].origin
    hint = ", or ".join(filter(None, ways))
    return MisfitProblem(origin, f"that {message}", f"a tool that fits `{manifest.agent}`", hint, misfit=misfit)
