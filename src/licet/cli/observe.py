"""`licet observe`: runs a command without walls and records what it touches, as a draft for `licet learn`."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from licet.assemble.review import state_directory
from licet.cli.limits import LEAST_SECRET_CHARACTERS, NOTE_TARGETS_SHOWN
from licet.cli.options import FILE, json_option
from licet.cli.output import counted, print_report, show, wants_json
from licet.clients.jsonc import looks_secret, secret_word
from licet.core.algebra.scope import inside
from licet.learn.observed_command import NotObserved, Observed, new_recording, observe_command
from licet.policy_files.policy_paths import NoHome, shown_path

NOT_RUN = 125
_REDACTED = "[redacted]"

# What a note of the recorder is about, in words: `{}` are its first targets.
_NOTES = {
    "direct": "connections past the proxy, which failed, as under `licet run` ({}); --no-proxy lets them through",
    "not inspected": (
        "connections that programs did not let be looked into, so they failed ({}): run these without --inspect, or "
        "lead them to the file in $SSL_CERT_FILE by an option of their own"
    ),
    "unanswered": "requests in HTTPS without an answer, which are no uses ({})",
    "metadata": "requests to cloud metadata, which no policy allows ({})",
    "unix": "unix sockets without a path, which `licet run` closes unless the program made them ({})",
    "kernel": "files of the kernel, which no rule can grant ({})",
    "32 bits": "what 32-bit programs touch ({})",
    "setuid": "what programs do with the rights of another user: they ran without them ({})",
    "unnamed": "files whose names no rule can write ({})",
}


# What the command is told before it starts.
_INSPECTS = (
    "licet: --inspect: the proxy of this run ends the TLS of the command at port 443 of every host, and makes it anew",
    "  it sees       all requests and answers, with their keys; they go on as they are",
    "  it records    host and method of each request; no path, no header and no body",
    "  it cannot     look into clients that pin certificates, have roots of their own or insist on HTTP/2: they fail",
)


class _Split(click.Command):
    """A command whose own arguments end at `--`, or at the first word that is no option."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "--", "CMD..."]


@click.command(
    name="observe", cls=_Split, context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="CMD...")
@click.option(
    "--output",
    metavar="FILE",
    type=FILE,
    help="Write the recording to this new file.  [default: a file below $XDG_STATE_HOME]",
)
@click.option(
    "--no-proxy",
    is_flag=True,
    help="Leave the network as it is. Addresses are recorded, and no host names.",
)
@click.option(
    "--inspect",
    is_flag=True,
    help="Look into HTTPS, and record the methods of its requests. No body is kept.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], output: Path | None, *, no_proxy: bool, inspect: bool) -> None:
    """Run a command without walls, and record what it and its child processes touch.

    Files that are read, written and deleted, programs that are started, and hosts that are reached: each as a rule
    would name it. Nothing is refused, no root is needed, and no file content is recorded. `licet learn` writes a
    manifest from recordings, for you to review. What every program may use anyway, such as shared libraries, is left
    out. So is what failed, such as a search for a file along a path.

    The command has a network of its own with a proxy in it, as under `licet run`: that is how host names are known. A
    program that ignores the variables `http_proxy` and `https_proxy` needs --no-proxy.

    With --inspect the proxy ends the TLS of the command, with an authority that exists for this run alone, so that
    methods are known: `licet learn` then drafts `inspect` and rules with exact methods. Without it HTTPS is a tunnel.
    A client that pins certificates, or has roots of its own, cannot connect then; the summary names its host.

    \b
      licet observe -- git fetch
      licet observe -- python agent.py --task demo
      licet observe --inspect -- gh issue list               (which methods, at which hosts)
      licet observe --no-proxy -- psql -h db.internal        (a program that knows no proxies)
      licet observe --output build.jsonl -- make && licet learn build.jsonl

    A recording is a draft and no evidence: a program can hide from it. docs/learn.md lists what is not seen.

    \b
    Exit codes:
      that of CMD, or 128 plus the number of the signal that ended it
      125  CMD was not run, or was ended because it could not be recorded
      2    bad command line
    """
    if not words:
        raise click.UsageError("expected a command after `--`, such as `licet observe -- git fetch`", ctx)
    if inspect and no_proxy:
        raise click.UsageError("--inspect needs the proxy, and --no-proxy leaves it out: choose one", ctx)
    binary = shutil.which(words[0])
    if binary is None:
        _not_run(ctx, f"`{words[0]}` is not a program that can be run: check its name, or give its path")
        return
    environment = {name: value for name, value in os.environ.items() if _is_secret(name, value)}
    try:
        secrets = {**environment, **_known_secrets()}
        recording = output.absolute() if output else new_recording(words[0])
        if inspect and not wants_json():
            for line in _INSPECTS:
                show(line, err=True)
        shown = _without_secrets(words)
        observed = observe_command(
            binary, words, recording, names=not no_proxy, inspect=inspect, secrets=secrets, shown=shown
        )
    except FileExistsError as wrong:
        _not_run(ctx, f"{wrong.filename} exists already: choose another name, or remove it")
    except NoHome as wrong:
        _not_run(ctx, f"{wrong}; or name a file with --output")
    except OSError as wrong:
        _not_run(ctx, f"cannot write the recording: {wrong.strerror or wrong}: {wrong.filename}")
    except NotObserved as wrong:
        _not_run(ctx, str(wrong))
    else:
        _report(observed, output)
        ctx.exit(observed.ended.exit_code)


def _not_run(ctx: click.Context, text: str) -> None:
    print_report({"error": text}, lambda _: show(f"licet: {text}", err=True, colour="red"), err=True)
    ctx.exit(NOT_RUN)


# Secrets -------------------------------------------------------------------------------------------------------------


def _is_secret(name: str, value: str) -> bool:
    """Whether a variable probably holds a secret. A path that exists is none, and would be missed in the recording."""
    return (
        len(value) >= LEAST_SECRET_CHARACTERS
        and looks_secret(name, value)
        and not (value.startswith("/") and os.path.exists(value.partition(":")[0]))
    )


def _known_secrets() -> Mapping[str, str]:
    """The values in the secrets file of this directory."""
    from licet.clients.entries import SECRETS_FILE, known_secrets
    from licet.clients.known import Unusable

    try:
        return known_secrets(state_directory(Path.cwd()) / SECRETS_FILE)
    except (Unusable, NoHome):
        return {}


def _without_secrets(words: Sequence[str]) -> list[str]:
    """The command with every word that is probably a token, or contains one, replaced."""
    kept, start = list(words), 0
    while (place := secret_word(kept[start:])) is not None:
        start += place + 1
        flag, equals, _ = kept[start - 1].partition("=")
        kept[start - 1] = f"{flag}={_REDACTED}" if equals and flag.startswith("-") else _REDACTED
    return kept


# The report ----------------------------------------------------------------------------------------------------------


def _report(observed: Observed, output: Path | None) -> None:
    """Print on stderr what was recorded, and what could not be; stdout belongs to the command."""
    found = observed.summary
    document = {
        "recording": observed.recording,
        "exit_code": observed.ended.exit_code,
        "read": found.read,
        "written": found.written,
        "deleted": found.deleted,
        "made": found.made,
        "hosts": found.hosts,
        "programs": found.programs,
        "processes": found.processes,
        "ended_with_it": observed.ended.left,
        "host_names": observed.names,
        "inspected": observed.inspected,
        "not_seen": _not_seen(observed),
    }
    print_report(document, lambda _: _show(observed, output), err=True)


def _show(observed: Observed, output: Path | None) -> None:
    found = observed.summary
    files = f"{counted(found.read, 'file')} read, {found.written} written, {found.deleted} deleted"
    others = f"{counted(len(found.hosts), 'host')}, {counted(len(found.programs), 'program')}"
    show(f"licet: recorded {files}; {others}; {counted(found.processes, 'process', 'processes')}", err=True)
    if observed.ended.left:
        left = counted(observed.ended.left, "process", "processes")
        show(f"licet: ended with the command: {left} that it left running", err=True)
    for line in _not_seen(observed):
        show(f"licet: not recorded: {line}", err=True, colour="yellow")
    if here := [shown_path(path) for path in found.made if inside(path, (os.getcwd(),))]:
        made = ", ".join(here[:NOTE_TARGETS_SHOWN]) + ", …" * (len(here) > NOTE_TARGETS_SHOWN)
        show(f"licet: made {made}, which the next run finds: observe that run, too", err=True, colour="yellow")
    show(f"  recording     {observed.recording}", err=True)
    show(f"  next          licet learn{f' {shlex.quote(str(output))}' if output is not None else ''}", err=True)


def _not_seen(observed: Observed) -> Iterator[str]:
    found = observed.summary
    if not observed.names:
        why = f", because this machine has no network namespaces: {observed.without_names}"
        yield f"host names, only addresses{why if observed.without_names else ''}"
    for kind, text in _NOTES.items():
        if targets := found.notes.get(kind):
            more = ", …" if len(targets) > NOTE_TARGETS_SHOWN else ""
            yield text.format(", ".join(targets[:NOTE_TARGETS_SHOWN]) + more)
    if found.unreadable:
        yield f"{counted(found.unreadable, 'call')} of processes that hide their memory"
