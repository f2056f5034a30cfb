"""`licet run`: runs any command behind walls, under flags or a manifest, with the input and output of this terminal.

The policy of `licet run`: one that was named or found, the flags alone, or one that the flags narrow.
"""

import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from msgspec import Struct

from licet.assemble.gate import Backends, RefusingGate, run_in, terminal_approver
from licet.assemble.program import (
    BadFlag,
    Flags,
    Typed,
    TypedApproval,
    UnknownTool,
    closed_to,
    made_manifest,
    manifest_text,
    narrowed,
    opened_by_flag,
    program_gate,
    saved_text,
    understood,
    with_linked_repository,
)
from licet.assemble.review import Places, state_directory, straight
from licet.assemble.states import DirectoryState, State
from licet.cli.discovery import Named, check_setting, find_policy, nothing_here, require_trust
from licet.cli.limits import INTERRUPT_SECONDS
from licet.cli.missing_secrets import secret_advice
from licet.cli.options import (
    FILE,
    Setting,
    caller_options,
    json_option,
    open_session,
    setting_options,
    show_new_session,
    sound_manifest,
    with_secrets,
)
from licet.cli.output import fail, print_report, result_document, show, show_problems, show_refusal, wants_json
from licet.cli.refused_rights import rights_refused
from licet.cli.run_hints import (
    allowing_receipt,
    explanation,
    hints,
    programs_not_found,
    refusals,
    show_closed,
    show_warnings,
)
from licet.core.algebra.scope import Malformed
from licet.core.policy.manifest import PROGRAM, Manifest
from licet.errors import ManifestError, Refused, RegistrationRefused
from licet.guard.execution import AFTER_REPLACING, LIMIT_KEYS, Finished, limit_name
from licet.guard.result import Result
from licet.policy_files.organisation import under_organisation
from licet.policy_files.policy_paths import PLACES, policy_root, shown_path
from licet.sandbox.programs.early_supervisor import AHEAD
from licet.sandbox.programs.own_terminal import stop_like_a_job
from licet.sandbox.programs.supervisor_client import Supervisor
from licet.sandbox.programs.terminal_streams import AttachedStreams

if TYPE_CHECKING:
    from licet.policy_files.trusted_paths import TrustedPaths


class RunOptions(Struct, frozen=True):
    """How a command is run."""

    ask: bool = False
    session: str = "main"
    purpose: str | None = None
    task: str = ""
    secrets: Path | None = None
    state: State | None = None
    flags: Flags = Flags()
    save: Path | None = None
    quiet: bool = False


class ChosenPolicy(Struct, frozen=True):
    """The policy of a run, the directory whose state it uses, and what the flags have to do with it."""

    policy: Manifest
    root: Path
    typed: Typed
    approver: TypedApproval | None = None  # if the flags alone are the policy
    closed: "TrustedPaths | None" = None  # the same, if they write


def chosen_policy(
    ctx: click.Context,
    manifest: Path | None,
    name: str | None,
    setting: Setting,
    program: str,
    wanted: RunOptions,
) -> ChosenPolicy:
    """The policy that was named or found, narrowed by the flags; without one, the flags alone.

    Exits without running CMD if there is nothing to go by. Raises `BadFlag`, and what loading a policy raises.
    """
    flags, places = wanted.flags, Places.here(setting.workdir)
    typed = understood(flags, places)
    _check_combination(ctx, manifest, flags, wanted.save)
    text = manifest_text(typed, program, places) if flags else ""
    found = manifest or find_policy()
    written = typed.write if found is None else ()  # a policy closes its own
    closed = closed_to(typed, places) if written else None
    made = made_manifest(text, written, opened_by_flag(closed.paths) if closed else None) if flags else None
    if found is not None:
        named = Named(found, by_hand=manifest is not None)
        if wanted.save is not None:
            raise click.UsageError(f"--save writes flags that stand alone; here they only narrow {found}", ctx)
        check_setting(named, setting)
        policy = sound_manifest(named.path, setting)
        require_trust(named, policy)
        if made is not None:
            policy = narrowed(policy, made)
            if not wants_json():
                show(f"licet: the flags narrow {named.path}", err=True)
        return ChosenPolicy(policy, policy_root(named.path), typed)
    if made is None:
        fail(f"licet: {nothing_here()}; or say what the command may reach, such as `--allow-read .`")
    if name is not None or setting.workspace or setting.personality:
        raise click.UsageError("--tool, --workspace and --personality need a policy, and there is none here", ctx)
    if wanted.save is not None:
        saved = saved_text(text, typed, program, closed.paths if closed else {}, places)
        _save(wanted.save, saved, writes=bool(typed.write))
    _make_missing(typed)
    if not wants_json() and not wanted.quiet:
        show_closed(closed)
    if setting.organisation is not None:
        made = under_organisation(made, setting.organisation)
    return ChosenPolicy(made, Path.cwd(), typed, TypedApproval(made), closed)


def _check_combination(ctx: click.Context, manifest: Path | None, flags: Flags, save: Path | None) -> None:
    if save is not None and not flags:
        raise click.UsageError("--save needs flags to write, such as `--allow-read .`", ctx)
    # A second path after a flag is read as the name of a policy.
    if flags and manifest is not None and manifest.suffix not in (".yaml", ".yml", ".json"):
        text = f"`{manifest}` is no policy file: each path, host or variable needs a flag of its own"
        raise click.UsageError(f"{text}, such as `--allow-read a --allow-read b`", ctx)


def _save(file: Path, text: str, *, writes: bool) -> None:
    """Write the flags as a policy, and accept it: who typed the flags knows what it allows.

    Typing them approves deletes for one run. A file never does: for that there is `licet trust`.
    """
    from licet.cli.init_preset import obstacles, write_policy

    if problems := obstacles(file, force=False):
        raise click.UsageError(f"--save: {problems[0].origin.file}: found {problems[0].found}, expected a new file")
    warnings = write_policy(file, text)
    if not wants_json():
        show_problems(warnings, err=True)
        named = "" if file in PLACES else f" {shlex.quote(str(file))}"
        show(f"licet: wrote {file}; `licet run{named} -- …` uses it", err=True)
        if writes:
            why = "the flags approve them for this run alone, and a file approves none"
            show(f"licet: next: `licet trust{named}`, to agree to renames and deletes for 30 days: {why}", err=True)


def _make_missing(typed: Typed) -> None:
    """Make the directories of `--allow-write` that do not exist: the kernel can only allow what is there."""
    for path in typed.missing:
        try:
            path.mkdir()
        except OSError as error:
            raise BadFlag("--allow-write", f"cannot make the directory {path}: {error.strerror}") from None
        if not wants_json():
            show(f"licet: made the directory {shown_path(path)}, for --allow-write", err=True)


class _Split(click.Command):
    """A command whose own arguments end at `--`; the rest belongs to the program."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "[MANIFEST]", "--", "CMD..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = args[place + 1 :]
        return super().parse_args(ctx, args[:place])


@click.command(name="run", cls=_Split)
@click.argument("manifest", type=FILE, required=False)
@click.option("--allow-read", "read", metavar="PATH", multiple=True, help="Allow to read a file or directory.")
@click.option(
    "--allow-write",
    "write",
    metavar="DIR",
    multiple=True,
    help="Allow, and approve for this run, to write, rename and delete in a directory.",
)
@click.option(
    "--allow-net", "net", metavar="HOST[:PORT]", multiple=True, help="Allow connections to a host.  [default port: 443]"
)
@click.option(
    "--allow-socket",
    "socket",
    metavar="PATH",
    multiple=True,
    help="Allow to connect to one unix socket of this machine.",
)
@click.option("--allow-env", "env", metavar="NAME", multiple=True, help="Pass on an environment variable.")
@click.option(
    "--save",
    metavar="[FILE]",
    type=FILE,
    is_flag=False,
    flag_value=str(PLACES[0]),
    help=f"Write the policy that says the same as the flags.  [default: {PLACES[0]}]",
)
@click.option("--tool", "name", metavar="NAME", help="Give the command only the permissions of this tool.")
@click.option("--ask", is_flag=True, help="If the run needs approval, ask at this terminal.")
@click.option("-q", "--quiet", is_flag=True, help="Do not say what stays closed, and which walls the command met.")
@caller_options("run")
@click.option(
    "--no-time-limit", is_flag=True, expose_value=False, help="Accepted, and not needed: only the policy limits time."
)
@setting_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    manifest: Path | None,
    read: tuple[str, ...],
    write: tuple[str, ...],
    net: tuple[str, ...],
    env: tuple[str, ...],
    socket: tuple[str, ...],
    save: Path | None,
    name: str | None,
    ask: bool,
    quiet: bool,
    session: str,
    purpose: str | None,
    task: str,
    secrets: Path | None,
    state: State | None,
    setting: Setting,
) -> None:
    """Run a command behind walls. It reaches what flags or a manifest allow, and nothing else.

    All its child processes are behind the same walls, and the only way to the network is a proxy that checks each
    connection. Without a policy, say with flags what it may reach:

    \b
      licet run --allow-read . -- grep -r TODO
      licet run --allow-read . --allow-write out -- make
      licet run --allow-read . --allow-net api.example.com --allow-env LANG -- ./report.sh
      licet run --allow-read . --allow-socket "$SSH_AUTH_SOCK" -- ssh-add -l
      licet run --allow-net 127.0.0.1:8080 -- …     another port than 443, the default
      licet run --allow-read / --allow-net '*' -- … everything

    Repeat a flag to allow more. Of the variables, only PATH is passed on by itself, and at a terminal TERM. What other
    programs run or trust, such as .git/hooks and .vscode, stays closed to writes unless a flag names it; a .env is read
    like any other file. Add --save to keep the flags as a policy.

    With a policy the command gets what the policy allows, which must name its program under
    `process.allowed_binaries`; flags then only narrow it, and --tool narrows it to what one tool holds. MANIFEST is the
    policy in this directory if left out: .licet/licet.yaml, or licet.yaml. You must have accepted that one with `licet
    trust`.

    \b
      licet run agent.yaml -- git log --oneline
      licet run agent.yaml --tool shell -- curl -sS http://api.weather.gov
      licet run -- make test                        with the policy in this directory
      licet run --allow-read src -- make test       with less than that policy
      licet run --ask -- ./agent                    a program whose policy asks you

    Under a policy with `flow:`, the command holds less once the session has read a secret: it writes and connects only
    where the readers of that secret are.

    \b
    Exit codes:
      that of CMD, or 128 plus the number of the signal that ended it
      124  CMD ran longer than the policy allows (`limits.wall_seconds`), and was ended
      125  refused, or the files have errors; CMD was not run
      2    bad command line
    """
    words: list[str] = _from_here(ctx.meta["command"], setting.workdir)
    if not words:
        raise click.UsageError("expected a command after `--`, such as `licet run agent.yaml -- git log`", ctx)
    wanted = RunOptions(ask, session, purpose, task, secrets, state, Flags(read, write, net, env, socket), save, quiet)
    ctx.exit(run_program(ctx, manifest, name, setting, words, wanted, ctx.meta[AHEAD]))


REFUSED = 125
UNWRITTEN = 1  # the command succeeded, but some of its output could not be written
LATE = 124  # like `timeout`


def run_program(
    ctx: click.Context,
    manifest: Path | None,
    name: str | None,
    setting: Setting,
    words: list[str],
    wanted: RunOptions,
    ready: Supervisor | None,
) -> int:
    """Run a program with all that the manifest allows, or with what one of its tools holds; returns the exit code."""
    try:
        chosen = chosen_policy(ctx, manifest, name, setting, words[0], wanted)
        policy = chosen.policy
        ended: list[Finished] = []
        held: set[str] = set()
        state = with_secrets(wanted.state or DirectoryState(state_directory(chosen.root)), wanted.secrets)
        find_session = open_session(ctx, wanted.session, state, policy.agent)
        attached = AttachedStreams(own_terminal=True, in_pipelines=True)
        gate = program_gate(
            policy,
            state,
            ended,
            name=name,
            attached=attached,
            workdir=setting.workdir,
            ready=ready,
            held=held,
            approver=chosen.approver or (terminal_approver(state, held=attached.held) if wanted.ask else None),
            secrets_file=wanted.secrets,
        )
        gate.flags = chosen.typed.words
        gate.session(wanted.session)
    except BadFlag as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint=wrong.flag) from None
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--session") from None
    except UnknownTool as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--tool") from None
    except click.exceptions.Exit:  # the problems of the files were shown
        return REFUSED
    except Refused as wrong:  # the lock next to the policy differs: the run is refused, and leaves a receipt
        refusing = RefusingGate(wrong, policy, Backends.of(state), workdir=setting.workdir)
        named, words_of_it = name or PROGRAM, {"command": words}
        result = run_in(refusing, named, words_of_it, find_session, purpose=wanted.purpose, task=wanted.task)
        return _report(result, [], 0, state.option, None)
    except (ManifestError, RegistrationRefused, Malformed) as wrong:
        show(str(wrong), err=True, colour="red")
        return REFUSED
    tool = gate.tools[0].name
    in_time = False
    if not wants_json():
        show_warnings(chosen.typed, gate.policy.tools[tool].reach, wanted.secrets)
    show_new_session(ctx, wanted.session)
    before = {number: signal.signal(number, _terminated) for number in _ending_signals()}
    interrupts = Interrupts(attached)
    attached.interrupted = interrupts.typed
    before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupts)
    before |= _follow_terminal(attached)
    try:
        result = run_in(gate, tool, {"command": words}, find_session, purpose=wanted.purpose, task=wanted.task)
        in_time = not (result.reason == "LIMIT_TIME" or (ended and ended[-1].timed_out))
    except KeyboardInterrupt:
        text = f"interrupted: the command and all that it started were ended; `licet receipts list{state.option}`"
        raise KeyboardInterrupt(f"{text} has the receipt") from None
    finally:
        attached.finish(wait=in_time)
        _settle(chosen.closed)
        for number, handler in before.items():
            signal.signal(number, handler)
    ran = gate.policy.tools[tool]
    code = _report(result, ended, ran.seconds, state.option, attached.lost, wanted.secrets)
    if result.ok and not wanted.quiet and not wants_json():
        degraded = bool(result.programs and result.programs.missing)
        workdir = Places.here(setting.workdir).workdir
        # A command that succeeds may say what it could not do, as `git checkout` does. A refused connection did not
        # matter to it, and the receipt has that; but an attempt to send a key away is named in any case.
        reach = ran.reach and with_linked_repository(ran.reach, workdir)
        whole = bool(result.programs and result.programs.is_whole)
        walls = hints(attached.said, reach, workdir, held, degraded=degraded, whole=whole)
        refused = refusals(result, ran.reach, only_keys=not code)
        if code and reach is not None:
            from licet.cli.git_hints import git_hints  # reads repositories, for commands that failed alone

            refused = [*(f"licet: {line}" for line in git_hints(words, attached.said, reach, workdir)), *refused]
            walls += [*programs_not_found(attached.said, reach), *rights_refused(attached.said, reach)]
        receipt = f"licet receipts show {result.receipt}{state.option}"
        if allowing := allowing_receipt(result, ran.reach):
            receipt += f"; to allow it, at a terminal: {allowing}{state.option}"
        unseen = attached.unseen if code else ""
        for line, colour in explanation(refused, walls, receipt, succeeded=not code, unseen=unseen):
            show(line, err=True, colour=colour)
    return code


def _settle(closed: "TrustedPaths | None") -> None:
    """See to what the command has left that git of the person would act on, and tell it."""
    if closed is None:
        return
    from licet.policy_files.left_behind import settle

    for line in settle(closed.repositories, closed.written):
        show(f"licet: {line}", err=True, colour="yellow")


def _from_here(words: list[str], workdir: Path | None) -> list[str]:
    """The command with the path of its program made absolute: `./build.sh` is in the working directory."""
    if not words or "/" not in words[0] or os.path.isabs(words[0]):
        return words
    return [str(straight(Path(workdir or Path.cwd()) / words[0])), *words[1:]]


class Interrupts:
    """Handles Ctrl-C: it belongs to the command, as without licet. Three in a row end the run."""

    def __init__(self, attached: AttachedStreams) -> None:
        self._attached = attached
        self._times: list[float] = []

    def __call__(self, number: int, frame: object) -> None:
        if self._count() > 2 or not self._attached.interrupt():
            raise KeyboardInterrupt

    def typed(self) -> None:
        """One was typed at the terminal of the command, which has passed it on."""
        if self._count() > 2:
            os.kill(os.getpid(), signal.SIGINT)

    def _count(self) -> int:
        now = time.monotonic()
        self._times = [*(one for one in self._times if now - one < INTERRUPT_SECONDS), now]
        if len(self._times) == 2:
            self._attached.show(b"\nlicet: press Ctrl-C once more to end the command\n")
        return len(self._times)


def _follow_terminal(attached: AttachedStreams) -> dict[signal.Signals, Any]:
    """Stop with the command, as Ctrl-Z does, and give it the size of the terminal; returns the handlers from before."""
    before: dict[signal.Signals, Any] = {}
    if sys.platform != "win32":
        before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: attached.resized())
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            attached.suspend = lambda: os.killpg(os.getpgrp(), signal.SIGTSTP)
            stop = lambda *_: attached.stopped(stop_like_a_job)  # noqa: E731
            before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, stop)
    return before


def _ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that end the run: that of `kill`, and of a closed terminal unless `nohup` ignores it."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGHUP) if hangs_up else (signal.SIGTERM,)


def _terminated(number: int, _: object) -> NoReturn:
    """Unwind: end the command, write its receipt, and restore the terminal."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the kernel and the shell both send it; the second must not stop this
    raise SystemExit(128 + number)


def _report(
    result: Result,
    ended: list[Finished],
    seconds: float,
    state: str,
    lost: str | None,
    secrets: Path | None = None,
) -> int:
    """Report on stderr how the program ended, and return the exit code; stdout belongs to the program.

    `lost` names the output that could not be passed on, and `secrets` is the file of `--secrets`.
    """
    late = (bool(ended) and ended[-1].timed_out) or result.reason == "LIMIT_TIME"
    code = LATE if late else _code(ended[-1].exit_code) if ended and result.ok else REFUSED
    code = code or (UNWRITTEN if lost else 0)
    limit = ended[-1].reason if ended else ""

    def show_end(_: object) -> None:
        if late:
            text = f"licet: the command ran for longer than {seconds:g} s (`limits.wall_seconds`), and was ended"
            show(text, err=True, colour="red")
        elif not result.ok:
            show_refusal(result, state, secret_advice(result, secrets))
        elif limit:
            if limit in LIMIT_KEYS:
                text = f"licet: the command ended at a limit of the manifest: {limit}, {limit_name(limit)}"
            else:
                text = f"licet: the command was ended: {ended[-1].detail}; {AFTER_REPLACING}"
            show(text, err=True, colour="red")
        if lost:
            show(f"licet: {lost}", err=True, colour="red")

    ended_as = {"exit_code": code, "timed_out": late, "limit": limit or None, "lost": lost}
    print_report({**result_document(result), **ended_as}, show_end, err=True)
    return code


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
