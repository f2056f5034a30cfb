"""The frame of the command line: the list of commands, help that teaches, and how every run ends.

Commands are modules of this package, imported when they run or when their own help is asked for; nothing of the
library is imported here.
"""

import errno
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import click

from licet import __version__

USAGE = 2  # what click reports for words that it does not understand
INTERRUPTED = 130  # what shells report for Ctrl-C
CLOSED_PIPE = 141  # what shells report for a reader that went away
INTERNAL_ERROR = 70  # EX_SOFTWARE
NO_OUTPUT = 74  # EX_IOERR
# What a stream says when it takes no more. Commands say themselves what is wrong with a file that they write.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Entry(NamedTuple):
    """One command in the list: what it is for, and a line that a newcomer can type."""

    name: str
    about: str
    example: str


FIRST = (
    Entry("init", "write the manifest that fits the tools in a file exactly", "licet init tools.py"),
    Entry("check", "find everything that is wrong in policy files", "licet check"),
    Entry("surface", "show everything that an agent can reach", "licet surface"),
    Entry(
        "explain",
        "say why a use is allowed or refused, and what would allow it",
        "licet explain fetch_weather https://api.weather.gov",
    ),
    Entry("diff", "show what grew and what shrank between two versions", "licet diff ../before/.licet/licet.yaml"),
)
FURTHER = (
    Entry("trust", "accept the policy of this directory, as it is now", "licet trust"),
    Entry("call", "call one tool under a manifest", "licet call fetch_weather city=oslo"),
    Entry("run", "run any command under a manifest", "licet run -- git log"),
    Entry("approvals", "answer calls that wait for a person", "licet approvals list"),
    Entry("receipts", "list, show, verify and export what happened", "licet receipts list --since 1d"),
    Entry("doctor", "try which levels this machine can keep", "licet doctor"),
    Entry("schema", "print the JSON Schema of a kind of file, for editors", "licet schema manifest"),
    Entry("completion", "print the script that completes `licet` in your shell", "licet completion bash"),
)
COMMANDS = {entry.name: entry for entry in (*FIRST, *FURTHER)}


class Licet(click.Group):
    """The commands, by name; each is imported when it is first needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"licet.surfaces.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was named, or a refusal that names the nearest one."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"expected one of {', '.join(COMMANDS)}"
            ctx.fail(f"there is no command `{args[0]}`; {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The commands and options that begin with what was typed."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(entry.name, help=entry.about) for entry in COMMANDS.values()]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [item for item in found if item.value.startswith(incomplete)] + options

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, in the order in which a newcomer meets them, each with an example."""
        for title, entries in (("From the first minute on", FIRST), ("Also", FURTHER)):
            with formatter.section(title):
                for entry in entries:
                    formatter.write(f"  {entry.name:<12}{entry.about}\n{'':<14}$ {entry.example}\n")
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what holds for all commands."""
        formatter.write(
            "\nMore about one command: licet COMMAND --help. Every command takes --json.\n"
            "Exit codes: 0 fine; 1 denied, wrong or grown; 2 not a sensible command line;\n"
            "70 a fault of licet itself; 74 its output cannot be written.\n"
        )

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the words before the command."""
        with _told(), _spelled_out():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        if hasattr(sys.stdout, "reconfigure"):  # a terminal that lacks a character must not stop a report
            sys.stdout.reconfigure(errors="backslashreplace")
        with _told(), _spelled_out():
            return super().invoke(ctx)


@contextmanager
def _told() -> Iterator[None]:
    """Whatever goes wrong ends in one line and a code, not in a traceback; and so does output that goes nowhere."""
    if sys.stdout is None:  # a file that is opened later would take its place, and get what is printed
        _end(NO_OUTPUT, "cannot write its output: it is closed")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (click.exceptions.Exit, click.ClickException):
        raise
    except click.Abort as ended:
        if isinstance(ended.__context__, KeyboardInterrupt):  # at a question, where click makes this of it
            _end(INTERRUPTED)
        raise
    except KeyboardInterrupt:
        _end(INTERRUPTED)
    except BrokenPipeError:
        _let_go_of_output()
        _end(CLOSED_PIPE)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
            _let_go_of_output()
            _end(NO_OUTPUT, f"cannot write its output: {error.strerror or error}")
        if os.environ.get("LICET_DEBUG") == "1":
            raise
        from licet.core.algebra.scope import visible
        from licet.errors import LicetError

        text = visible(" ".join(str(error).split()))[:500]
        if isinstance(error, LicetError):  # it says itself what is wrong, and nothing is wrong with licet
            _end(USAGE, text)
        _end(INTERNAL_ERROR, f"unexpected {type(error).__name__}: {text} (set LICET_DEBUG=1 to see where)")


@contextmanager
def _spelled_out() -> Iterator[None]:
    """Let no complaint pass with characters that act on a terminal: click repeats words as they were typed."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:  # the help, line by line; nothing in it was typed
        raise
    except click.ClickException as error:
        from licet.core.algebra.scope import visible

        # Only this part can hold what was typed. Around it click may write lines of its own, such as a list of choices.
        vars(error)["message"] = visible(error.message)
        raise


def _let_go_of_output() -> None:
    # The interpreter flushes once more on its way out; that must not meet the same output again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(code: int, said: str = "") -> NoReturn:
    if said:
        click.echo(f"licet: {said}", err=True)
    raise click.exceptions.Exit(code)


@click.group(cls=Licet, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s")
def licet() -> None:
    """Tools declare, a manifest allows, and each call holds exactly the overlap."""
