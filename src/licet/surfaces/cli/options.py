"""The options that several commands share, and reading a manifest with them; what is wrong with it ends the command."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

# Words that make no sense are answered before anything of the library is loaded.
if TYPE_CHECKING:
    from licet.core.manifest import Manifest
    from licet.core.origin import Problem

Command = TypeVar("Command", bound=Callable[..., Any])


class _File(click.Path):
    """A path; one below this directory is named from here, in whatever way it was typed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path that a word stands for."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        return path.relative_to(Path.cwd()) if path.is_absolute() and path.is_relative_to(Path.cwd()) else path


FILE = _File(path_type=Path)


class Setting(NamedTuple):
    """What a manifest is read with: the other files of its policy, and the directory its paths start from."""

    workspace: Path | None = None
    personality: Path | None = None
    workdir: Path | None = None


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--workspace`, `--personality` and `--workdir` to a command, which gets them as one `setting`."""

    @functools.wraps(command)
    def gathered(*words: Any, **given: Any) -> Any:
        setting = Setting(*(given.pop(name) for name in Setting._fields))
        return command(*words, setting=setting, **given)

    for option in (
        click.option(
            "--workdir",
            metavar="DIR",
            type=FILE,
            help="What `${workdir}` stands for.  [default: the current directory]",
        ),
        click.option("--personality", metavar="FILE", type=FILE, help="A second ceiling; both must allow a use."),
        click.option(
            "--workspace",
            metavar="FILE",
            type=FILE,
            help="Bundles, tools and connectors.  [default: the `licet.yaml` beside the manifest]",
        ),
    ):
        gathered = option(gathered)
    return gathered


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def read_sound(path: Path, setting: Setting, as_json: bool) -> "Manifest":
    """The manifest in a file; if there is none or it is wrong, every problem is shown and the command ends with 1."""
    from licet.core.origin import Origin, Problem
    from licet.surfaces.cli.policy import read

    policy = read(path, setting)
    if policy.sound and policy.manifest is not None:
        return policy.manifest
    problems = [problem for problem in policy.problems if problem.severity == "error"]
    if not problems:
        hint = "name the agent's manifest; the workspace is found beside it"
        problems = [Problem(Origin(str(path), 1, 1), f"a {policy.kind}", "a manifest or a personality", hint)]
    refuse(problems, as_json)


def refuse(problems: "list[Problem]", as_json: bool) -> NoReturn:
    """Show what is wrong with files and end the command with 1."""
    from licet.surfaces.cli.show import first_problems, problem_document, show, show_json, show_problems

    first, rest = first_problems(problems)
    if as_json:
        show_json({"problems": [problem_document(problem) for problem in first]})
    else:
        show_problems(first, err=True)
    if rest:
        show(rest, err=True)
    click.get_current_context().exit(1)
