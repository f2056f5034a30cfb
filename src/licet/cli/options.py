"""The options that several commands share, and how they read a policy. A policy with errors ends the command.

The options of `licet call` and `licet run` about who calls, and where that is kept: session, purpose, state.
"""

import functools
import os
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.core import ParameterSource
from msgspec import Struct
from msgspec.structs import replace

from licet.assemble import Places, review
from licet.assemble.policy_problems import listed_names
from licet.assemble.review import state_directory
from licet.assemble.states import (
    KV,
    VARIABLE,
    BadState,
    DirectoryState,
    State,
    environment_state,
    names_database,
    read_state,
)
from licet.cli.output import (
    JSON,
    first_problems,
    print_report,
    show,
    show_problems,
    wants_json,
)
from licet.core.algebra.scope import Malformed, path_key
from licet.core.late_pattern import late_pattern
from licet.core.policy.manifest import Manifest
from licet.core.policy.manifest_fields import Organisation
from licet.core.values import Origin, Problem
from licet.errors import ManifestError
from licet.guard.ports import Kv, Unavailable
from licet.own_files import is_there
from licet.policy_files.load import load_manifest
from licet.policy_files.manifest_reader import PolicyDocument, a_kind
from licet.policy_files.organisation import machine_organisation, read_organisation_file
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE, policy_root

# A bad command line is reported before the library is loaded.
if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])


class _File(click.Path):
    """A path. One below the current directory is made relative to it.

    In `/` every path is made absolute, as `shown_path` does: who reads a message is seldom there.
    """

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Convert an argument to a path."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            if (here := Path.cwd()) == Path("/"):
                return here / path
            return path.relative_to(here) if path.is_absolute() else path
        except (FileNotFoundError, ValueError):  # the current directory was removed, or the path is not below it
            return path


FILE = _File(path_type=Path)


class _Place(click.ParamType[Path | str]):
    """A path, or the address of a database, which is left as it is."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        return value if isinstance(value, str) and names_database(value) else FILE.convert(value, param, ctx)


PLACE = _Place()


_DURATION = late_pattern(r"(\d+)([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta | None:
    """A time such as `30m`, `2h` or `7d`; None if the text is none. `OverflowError` if it is too long."""
    found = _DURATION.fullmatch(text)
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None


class Setting(Struct, frozen=True):
    """How a manifest is read: the other files of its policy, and its working directory."""

    workspace: Path | None = None
    personality: Path | None = None
    workdir: Path | None = None
    organisation: Path | None = None
    alone: bool = False  # without the organisation of this machine: for reviews of what a digest is about


organisation_option = click.option(
    "--organisation",
    metavar="FILE",
    type=FILE,
    help="Try an organisation file: it narrows the policy too, after that of this machine.",
)


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a `Setting` to a command, which gets them as one `setting`."""

    @functools.wraps(command)
    def gathered(*words: Any, **given: Any) -> Any:
        setting = Setting(*(given.pop(name) for name in ("workspace", "personality", "workdir", "organisation")))
        return command(*words, setting=setting, **given)

    for option in (
        organisation_option,
        click.option(
            "--workdir",
            metavar="DIR",
            type=FILE,
            help="The value of `${workdir}`.  [default: the current directory; of a server, that of the policy]",
        ),
        click.option(
            "--personality",
            metavar="FILE",
            type=FILE,
            help="A second policy file for the agent; a use must be allowed by both.",
        ),
        click.option(
            "--workspace",
            metavar="FILE",
            type=FILE,
            help="Shared bundles, tools and connectors.  [default: the `licet.yaml` next to the manifest]",
        ),
    ):
        gathered = option(gathered)
    return gathered


def _print_json(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    ctx.meta[JSON] = wanted


json_option = click.option("--json", is_flag=True, expose_value=False, callback=_print_json, help="Print JSON.")
secrets_option = click.option(
    "--secrets",
    metavar="FILE",
    type=click.Path(exists=True, path_type=Path),
    help="Look for secrets in this file, then in the environment.",
)


task_option = click.option(
    "--task",
    metavar="TEXT",
    default="",
    help="What the user asked for, in the user's words alone: a policy with `flow:` lets arguments come from it.",
)


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json`, `--sarif` and `--github` to a command. It can be given one of them."""

    @functools.wraps(command)
    def checked(*words: Any, **given: Any) -> Any:
        if wants_json() + given["sarif"] + given["github"] > 1:
            raise click.UsageError("--json, --sarif and --github exclude each other")
        return command(*words, **given)

    for option in (
        click.option("--github", is_flag=True, help="Print annotations for GitHub Actions."),
        click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0, for code review and editors."),
        json_option,
    ):
        checked = option(checked)
    return checked


def read_sound(path: Path, setting: Setting) -> "Manifest":
    """Read a manifest. If it has errors, print all of them and exit with 1."""
    from licet.core.values import Origin, Problem

    policy = read(path, setting)
    if policy.sound and policy.manifest is not None:
        return policy.manifest
    problems = [problem for problem in policy.problems if problem.severity == "error"]
    if not problems:
        hint = "name the agent's manifest; the workspace next to it is found"
        problems = [Problem(Origin(str(path), 1, 1), a_kind(policy.kind), "a manifest or a personality", hint)]
    refuse(problems)


def organisations_above(second: Path | None = None) -> tuple[Organisation, ...]:
    """The organisation of this machine, and a second file; prints what is wrong with one of them and exits with 1."""
    try:
        found = machine_organisation(), None if second is None else read_organisation_file(second)
    except ManifestError as wrong:
        refuse(list(wrong.problems))
    return tuple(one for one in found if one is not None)


def refuse(problems: "list[Problem]") -> NoReturn:
    """Print problems of files and exit with 1."""
    first, rest = first_problems(problems)
    first = [_at_known_place(problem) for problem in first]
    print_report({"problems": first}, lambda _: show_problems(first, err=True))
    if rest:
        show(rest, err=True)
    click.get_current_context().exit(1)


PLACES = "licet.places"  # in the `meta` of a click context: a private directory, and what messages call it


def _at_known_place(problem: "Problem") -> "Problem":
    """A problem in a file of a private directory, with the place that its reader knows."""
    if PLACES not in (meta := click.get_current_context().meta):
        return problem
    prefix, title = meta[PLACES]
    texts = {key: getattr(problem, key).replace(prefix, title) for key in ("found", "expected", "hint")}
    return replace(problem, origin=replace(problem.origin, file=problem.origin.file.replace(prefix, title)), **texts)


class _State(click.ParamType):  # type: ignore[type-arg]
    """A state: a directory, or the address of a database."""

    name = "state"

    def convert(self, value: str | State, param: click.Parameter | None, ctx: click.Context | None) -> State:
        """Read a state; a directory below the current one is made relative to it."""
        if not isinstance(value, str):
            return value
        try:
            if names_database(value):
                return read_state(value)
            read_state(value)  # refuses the address of another kind of database
        except BadState as wrong:
            self.fail(str(wrong), param, ctx)
        return DirectoryState(FILE.convert(value, param, ctx))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """Directories."""
        return click.Path(file_okay=False).shell_complete(ctx, param, incomplete)


STATE = _State()


def state_option(text: str, **more: Any) -> Callable[[Command], Command]:
    """Add `--state` to a command: a directory, or the address of a database."""
    return click.option(
        "--state",
        metavar="DIR|ADDRESS",
        type=STATE,
        envvar=VARIABLE,
        help=f"{text} An address is postgresql://USER@HOST/NAME; ${VARIABLE} is used if this is left out.",
        **more,
    )


def state_of_manifest(text: str) -> Callable[[Command], Command]:
    """Add `--state` and `--manifest` to a command."""

    def add(command: Command) -> Command:
        return manifest_option(state_option(text, callback=of_manifest)(command))

    return add


MANIFEST = "licet.manifest"  # the key of `--manifest` in the `meta` of a click context


def manifest_option(command: Command) -> Command:
    """Add `--manifest` to a command that has `--state`."""
    text = "Use the state directory of this manifest, as `licet call MANIFEST` does."
    option = click.option(
        "--manifest", metavar="FILE", type=FILE, is_eager=True, expose_value=False, callback=_remember, help=text
    )
    return option(command)


def of_manifest(ctx: click.Context, param: click.Parameter, state: State | None) -> State | None:
    """The state given with `--state`, or that of the manifest given with `--manifest`, as its calls find it."""
    manifest: Path | None = ctx.meta.get(MANIFEST)
    if manifest is None:
        return state
    if state is not None:
        if ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
            return state
        raise click.UsageError("give --manifest or --state, not both", ctx)
    return DirectoryState(state_directory(manifest if os.path.isdir(manifest) else policy_root(manifest)))


StateOf = TypeVar("StateOf", bound=State)


def with_secrets(state: StateOf, file: Path | None) -> StateOf:
    """A state whose password may be in a file of secrets."""
    if file is None or isinstance(state, DirectoryState):
        return state
    from licet.backends.secrets import FileSecrets

    state.with_secrets(FileSecrets(file).get)
    return state


def state_in_environment() -> State | None:
    """The state that the variable names, for commands that take no `--state`; a usage error if it names none."""
    try:
        return environment_state()
    except BadState as wrong:
        raise click.UsageError(f"${VARIABLE}: {wrong}") from None


def state_here() -> State:
    """The state of calls in the current directory, where none was named."""
    return DirectoryState(state_directory(Path.cwd()))


def state_of_policy(path: Path) -> State:
    """The state of calls under a policy file, where none was named."""
    return DirectoryState(state_directory(policy_root(path)))


def wrong_state(state: State, new: bool) -> str:
    """Why a state directory cannot be read; empty if it can, or if it is `new` and does not exist yet."""
    if not isinstance(state, DirectoryState):
        return ""
    try:
        with os.scandir(state.path):
            return ""
    except FileNotFoundError:
        return "" if new else f"there is no directory {state.path}"
    except OSError as error:
        return f"{state.path} cannot be read: {error.strerror}"


def _remember(ctx: click.Context, param: click.Parameter, manifest: Path | None) -> None:
    if manifest is None:
        return
    if not os.path.exists(manifest):
        raise click.BadParameter(f"there is no {manifest}", ctx, param)
    ctx.meta[MANIFEST] = manifest


def sound_manifest(path: Path, setting: Setting) -> Manifest:
    """Load a manifest for a call. If it has errors, print all of them and exit with 1."""
    try:
        return load_manifest(path, setting.workspace, setting.personality, organisation=setting.organisation)
    except ManifestError:
        return read_sound(path, setting)  # prints the problems and exits


_SUFFIXES = (".yaml", ".yml", ".json")


def read(path: Path, setting: Setting) -> PolicyDocument:
    """Read a policy file and everything that it refers to. Tools are read from source and never imported."""
    if path.suffix == ".py":
        hint = f"`licet init {path}` writes the policy for its tools"
        wrong = Problem(Origin(str(path), 1, 1), "a Python file", "a policy file in YAML or JSON", hint)
        return PolicyDocument("manifest", None, (wrong,))
    if folders := [one for one in (path, setting.workspace, setting.personality) if one is not None and one.is_dir()]:
        return PolicyDocument("manifest", None, tuple(map(_directory, folders)))
    places = Places.here(setting.workdir)
    for title, place in (("working", places.workdir), ("home", places.home)):
        if place and (why := _unnameable(place)):
            raise click.UsageError(f"no rule can contain the path of the {title} directory: {why}")
    above, alone = setting.organisation, setting.alone
    policy = review(path, setting.workspace, setting.personality, places, organisation=above, alone=alone)
    if policy.manifest is not None and policy.manifest.approvals.delete == "manifest":
        from licet.assemble.acceptance import with_standing  # loads the stores of this machine

        policy = replace(policy, manifest=with_standing(policy.manifest, path, state_in_environment()))
    return policy


def _directory(path: Path) -> Problem:
    """The problem of a directory that was given as a file, with the policy files in it."""
    if not is_there(path):
        hint = "something empty stands for it while a program runs behind walls here"
        return Problem(Origin(str(path), 1, 1), "no file there", "a policy file", hint)
    try:
        inside = [one for one in path.iterdir() if one.suffix in _SUFFIXES and one.name[0] != "." and one.is_file()]
        inside += [one for one in (path / POLICY_DIRECTORY / WORKSPACE_FILE,) if one.is_file()]
    except OSError:
        inside = []
    inside.sort(key=lambda one: (one.name != WORKSPACE_FILE, one.name, -len(one.parts)))
    hint = f"perhaps {listed_names(list(map(str, inside)))}" if inside else "there is none in it"
    return Problem(Origin(str(path), 1, 1), "a directory", "a policy file", hint)


def _unnameable(path: str) -> str:
    """Why a path cannot be part of a rule; empty if it can."""
    try:
        path_key(path)
    except Malformed as wrong:
        return str(wrong)
    return ""


DEFAULT_SESSION = "main"
_NEW_SESSION = "licet.new session"  # in the `meta` of a click context, if `--new-session` was given
_NAMED_SESSION = "licet.named session"  # there too, if `--session` was given


def _wants_new_session(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    ctx.meta[_NEW_SESSION] = wanted


def _session_id(ctx: click.Context, _: click.Parameter, named: str | None) -> str:
    ctx.meta[_NAMED_SESSION] = named is not None
    if not ctx.meta.get(_NEW_SESSION):
        return DEFAULT_SESSION if named is None else named
    if named is not None:
        raise click.UsageError("--session and --new-session exclude each other", ctx)
    return f"s-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def open_session(ctx: click.Context, session: str, state: State, agent: str) -> Callable[[], Awaitable[str]]:
    """Finds the session of a call: the one that was asked for, or if none was, the first default one that is open."""
    is_given = ctx.meta.get(_NEW_SESSION) or ctx.meta.get(_NAMED_SESSION) or not state.has(KV)

    async def found() -> str:
        if is_given:
            return session
        try:
            with closing(state.kv()) as kv:
                return await open_default(kv, agent)
        except Unavailable:  # the gate will say why, and refuse
            return session

    return found


async def open_default(kv: Kv, agent: str) -> str:
    """The session of calls that name none: `main`, or after its end `main-2`, and so on."""
    from licet.guard.session_end import is_ended

    name, number = DEFAULT_SESSION, 1
    while await is_ended(kv, agent, name):
        number += 1
        name = f"{DEFAULT_SESSION}-{number}"
    return name


def show_new_session(ctx: click.Context, session: str) -> None:
    """Name the session that `--new-session` started, so that it can be continued."""
    if ctx.meta.get(_NEW_SESSION) and not wants_json():
        show(f"licet: a new session; to continue it: --session {session}", err=True)


def caller_options(what: str) -> Callable[[Command], Command]:
    """Add `--session`, `--new-session`, `--task`, `--purpose`, `--secrets` and `--state` to a command.

    `what` is what it does: a call or a run.
    """

    def add(command: Command) -> Command:
        kept = "Where storage, receipts, requests and budgets are kept.  [default: below $XDG_STATE_HOME]"
        for option in (
            state_option(kept),
            secrets_option,
            click.option("--purpose", metavar="TEXT", help=f"The reason of the {what}; the receipt keeps it."),
            task_option,
            click.option(
                "--new-session",
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_wants_new_session,
                help="Start a session of its own, with a new id.",
            ),
            click.option(
                "--session",
                metavar="ID",
                callback=_session_id,
                help=f"The session of the {what}: its budget and its approvals.  [default: main, then main-2]",
            ),
        ):
            command = option(command)
        return command

    return add
