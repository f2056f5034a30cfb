"""Reading policies the way a reviewer does, and what of them would not run: tools that do not fit, or are unknown."""

from collections.abc import Iterator
from pathlib import Path

import click

from licet.assemble import Places, review
from licet.backends.manifest_yaml import Policy
from licet.core.manifest import Manifest
from licet.core.origin import Origin, Problem
from licet.core.reach import reach_of
from licet.core.scope import Malformed, path_key
from licet.core.validate import Misfit, validate_tools
from licet.surfaces.cli.options import Setting


def read(path: Path, setting: Setting) -> Policy:
    """A policy file with everything that it refers to; tools are read from their source, never imported."""
    if path.suffix == ".py":
        hint = f"`licet init {path}` writes the policy for its tools"
        wrong = Problem(Origin(str(path), 1, 1), "a Python file", "a policy file in YAML or JSON", hint)
        return Policy("manifest", None, (wrong,))
    places = Places.here(setting.workdir)
    for title, place in (("working", places.workdir), ("home", places.home)):
        if why := _unnameable(place):
            raise click.UsageError(f"no rule can name the {title} directory: {why}")
    return review(path, setting.workspace, setting.personality, places)


def misfit_problems(manifest: Manifest) -> Iterator[Problem]:
    """A problem for each thing that a declared tool of this agent asks for and the manifest does not give."""
    # A workspace may declare tools for other agents too; those are not this manifest's business.
    admitted = [spec for name, spec in manifest.tools.items() if name in manifest.seats]
    for misfit in validate_tools(admitted, manifest):
        yield _problem(manifest, misfit)


def undeclared_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning if tools are admitted whose declaration is in no file, so that their fit cannot be checked."""
    # A source that could not be read is a problem of its own.
    unknown = [name for name in manifest.seats if name not in manifest.tools and name not in manifest.sources]
    if unknown:
        names = ", ".join(f"`{name}`" for name in unknown[:5]) + (" …" if len(unknown) > 5 else "")
        found = f"{'a tool' if len(unknown) == 1 else f'{len(unknown)} tools'} without a declaration ({names})"
        hint = "until then it is not checked whether they fit"
        origin = manifest.seats[unknown[0]][0].origin
        yield Problem(origin, found, "`from` or `needs` for each under `tools` in the workspace", hint, "warning")


def _unnameable(path: str) -> str:
    """Why a path cannot stand in a rule, or the empty string."""
    try:
        path_key(path)
    except Malformed as wrong:
        return str(wrong)
    return ""


def _problem(manifest: Manifest, misfit: Misfit) -> Problem:
    spec = manifest.tools[misfit.tool]
    reach = reach_of(manifest, misfit.tool)
    fixes = [ground.fix for ground in reach.grounds if str(ground) == misfit.message] if reach else []
    hint = next(filter(None, fixes), "allow it there, or narrow what the tool declares")
    name, message = f"`{misfit.tool}`", misfit.message
    if name not in message:
        message = f"{name} {message}" if message.startswith("needs ") else f"{name}: {message}"
    origin = spec.origin or manifest.seats[misfit.tool][0].origin
    return Problem(origin, f"a misfit, {message}", f"a tool that fits `{manifest.agent}`", hint)
