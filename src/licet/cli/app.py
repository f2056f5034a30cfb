"""The entry point of the command line: the list of commands, the help, and the exit code of every run.

Commands are modules of this package, imported when they run or when their own help is asked for; nothing of the
library is imported here.
"""

import errno
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click
from msgspec import Struct

from licet import __version__

USAGE = 2  # what click reports for a bad command line
INTERRUPTED = 130  # what shells report for Ctrl-C
CLOSED_PIPE = 141  # what shells report for a reader that went away
INTERNAL_ERROR = 70  # EX_SOFTWARE
NO_OUTPUT = 74  # EX_IOERR
# Errors of an output stream that takes no more. Commands report errors of the files that they write themselves.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Command(Struct, frozen=True):
    """One command in the list: its purpose, and an example that a newcomer can type."""

    name: str
    about: str
    example: str


FIRST = (
    Command("init", "write a policy for tools, or for a coding agent", "licet init tools.py"),
    Command("run", "run any command behind walls, with flags or a policy", "licet run --allow-read . -- make test"),
    Command("check", "find every problem in policy files", "licet check"),
    Command(
        "explain",
        "show why a use is allowed or denied, and what would allow it",
        "licet explain fetch_weather https://api.weather.gov",
    ),
    Command("surface", "show everything that an agent can reach", "licet surface"),
)
FURTHER = (
    Command("allow", "allow what was refused, by the smallest change of the policy", "licet allow write out"),
    Command("call", "call one tool under a manifest", "licet call fetch_weather city=oslo"),
    Command("gateway", "govern MCP servers: an MCP server in front of them", "licet gateway research.yaml"),
    Command(
        "hook", "answer one event of a coding agent, which calls this", "licet hook claude PreToolUse < event.json"
    ),
    Command("hooks", "install the hooks of coding agents, test them, remove them", "licet hooks install"),
    Command("trust", "accept the policy of this directory", "licet trust"),
    Command("approvals", "list and answer the calls that wait for approval", "licet approvals list"),
    Command("receipts", "list, show, verify and export the records of calls", "licet receipts list --since 1d"),
    Command(
        "diff",
        "show what a new version of a policy allows more, or less",
        "licet diff ../before/.licet/licet.yaml",
    ),
    Command(
        "flow",
        "try other rules of flow on calls that were made",
        "licet flow replay ledger.sqlite strict.yaml",
    ),
    Command("lock", "write down what was reviewed, so that anything else is refused", "licet lock"),
    Command("test", "check that a policy decides its examples as they say", "licet test --coverage"),
    Command("lint", "compare the source of tools with what they declare", "licet lint tools.py"),
    Command("observe", "run a command without walls, and record what it touches", "licet observe -- git fetch"),
    Command("learn", "draft the least policy from recordings of what was used", "licet learn"),
    Command("serve", "offer the tools of a workspace as an MCP server", "licet serve research.yaml"),
    Command("demo", "show what licet does, in commands that really run", "licet demo"),
    Command("doctor", "test which levels this machine supports", "licet doctor"),
    Command("db", "make the tables of a state in PostgreSQL", "licet db status"),
    Command("session", "list the sessions of calls, and end one", "licet session end main"),
    Command("freeze", "stop all calls of a state, of an agent or of a tool", 'licet freeze --why "strange mails"'),
    Command("thaw", "let calls go on that were frozen", "licet thaw --all"),
    Command("state", "set up a state: the keys of its operators", "licet state init --operator anna.pub"),
    Command("wasm", "look into WASM modules without running them", "licet wasm inspect count.wasm"),
    Command("schema", "print the JSON Schema of a kind of file, for editors", "licet schema manifest"),
    Command("completion", "print the completion script for your shell", "licet completion bash"),
)
COMMANDS = {entry.name: entry for entry in (*FIRST, *FURTHER)}
# What still works under an organisation file that cannot be used: finding out why, and reading records. `run` refuses
# with an exit code of its own. And stopping everything.
_WITHOUT_ORGANISATION = ("check", "doctor", "schema", "receipts", "completion", "run", "hook", "freeze", "thaw")


class Licet(click.Group):
    """The commands, by name; each is imported when it is first needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"licet.cli.{cmd_name}").command
        gc.freeze()  # modules stay until the end: nothing looks through them for garbage
        gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was named, or a refusal that names the nearest one. `help` shows the help."""
        if args[0] == "help":
            named = [word for word in args[1:] if word in COMMANDS]
            if named:
                return super().resolve_command(ctx, [named[0], "--help"])
            click.echo(ctx.get_help())
            ctx.exit()
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            from licet.core.values import near_hint

            hint = near_hint(args[0], COMMANDS) or f"expected one of {', '.join(COMMANDS)}"
            ctx.fail(f"there is no command `{args[0]}`; {hint}")
        if args[0] not in _WITHOUT_ORGANISATION and not ctx.resilient_parsing and not _asks_for_help(args):
            _require_organisation(ctx)
        if args[0] == "run" and "--" in args and not ctx.resilient_parsing and not _asks_for_help(args):
            # It starts, and tests the walls, on another core while this process imports the command.
            from licet.sandbox.programs.early_supervisor import AHEAD, supervisor_ahead

            ctx.meta[AHEAD] = ctx.with_resource(supervisor_ahead())
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The commands and options that begin with what was typed."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(entry.name, help=entry.about) for entry in COMMANDS.values()]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [item for item in found if item.value.startswith(incomplete)] + options

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, each with an example."""
        for title, entries in (("Getting started", FIRST), ("More commands", FURTHER)):
            with formatter.section(title):
                for entry in entries:
                    formatter.write(f"  {entry.name:<12}{entry.about}\n{'':<14}$ {entry.example}\n")
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what applies to all commands."""
        formatter.write(
            "\nMore about one command: licet COMMAND --help. Every command but hook takes --json.\n"
            "Exit codes: 0 success; 1 denied, a problem, or (diff) more allowed;\n"
            "2 bad command line; 70 internal error; 74 the output cannot be written.\n"
        )

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the options before the command."""
        with _reported(), _spelled_out():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        if hasattr(sys.stdout, "reconfigure"):  # a character that the terminal does not support must not stop a report
            sys.stdout.reconfigure(errors="backslashreplace")
        with _reported(), _spelled_out():
            return super().invoke(ctx)


def _asks_for_help(words: list[str]) -> bool:
    own = words[: words.index("--")] if "--" in words else words
    return "--help" in own or "-h" in own


def _require_organisation(ctx: click.Context) -> None:
    """End the command if the organisation file of this machine is there and cannot be used."""
    from licet.errors import ManifestError
    from licet.policy_files.organisation import machine_organisation

    try:
        machine_organisation()
    except ManifestError as wrong:
        from licet.cli.output import show_problems

        show_problems(list(wrong.problems), err=True)
        ctx.exit(1)


@contextmanager
def _reported() -> Iterator[None]:
    """Report an error as one line and an exit code, not as a traceback."""
    if sys.stdout is None:  # otherwise the next opened file would get its number, and all output
        _end(NO_OUTPUT, "cannot write its output: it is closed")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (click.exceptions.Exit, click.ClickException):
        raise
    except click.Abort as ended:
        if isinstance(ended.__context__, KeyboardInterrupt):  # at a prompt, click raises this for Ctrl-C
            _end(INTERRUPTED, "interrupted")
        raise
    except KeyboardInterrupt as pressed:
        _end(INTERRUPTED, str(pressed) or "interrupted")
    except BrokenPipeError:
        _let_go_of_output()
        _end(CLOSED_PIPE)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
            _let_go_of_output()
            _end(NO_OUTPUT, f"cannot write its output: {error.strerror or error}")
        if os.environ.get("LICET_DEBUG") == "1":
            raise
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            _end(USAGE, "the current directory was removed: go to one that is there")
        if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "licet":
            # Only packages of this environment are imported, and pipx shares some of its own with it.
            missing = f"`{error.name}`, which licet needs, is not installed in {sys.prefix}: install licet there again"
            _end(USAGE, f"{missing} (pipx: `pipx runpip licet install --ignore-installed {error.name}`)")
        from licet.core.algebra.scope import visible
        from licet.errors import LicetError

        text = visible(" ".join(str(error).split()))[:500]
        if isinstance(error, LicetError):  # its text explains the problem; it is not an internal error
            _end(USAGE, text)
        _end(INTERNAL_ERROR, f"unexpected {type(error).__name__}: {text} (set LICET_DEBUG=1 to see where)")


@contextmanager
def _spelled_out() -> Iterator[None]:
    """Escape control characters in messages of click, which repeats words as they were typed."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:  # the help, line by line; nothing in it was typed by the user
        raise
    except click.ClickException as error:
        from licet.core.algebra.scope import visible

        # Only this part can contain what was typed. click may add lines of its own, such as a list of choices.
        vars(error)["message"] = visible(error.message)
        raise


def _is_nowhere() -> bool:
    """Whether the current directory was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _let_go_of_output() -> None:
    # The interpreter flushes once more when it exits, and must not get the same error again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(code: int, text: str = "") -> NoReturn:
    if text:
        click.echo(f"licet: {text}", err=True)
    raise click.exceptions.Exit(code)


@click.group(cls=Licet, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def licet() -> None:
    """Limit what an AI agent's tools may touch: a tool declares it, a manifest allows it, a call gets the overlap."""
