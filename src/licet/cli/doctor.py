"""`licet doctor`: tests which levels this machine supports, and says what the others need."""

import asyncio
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from licet.assemble.states import DatabaseState, State
from licet.cli.options import json_option, state_option
from licet.cli.output import coloured, print_report, show
from licet.core.algebra.scope import visible
from licet.core.policy.layer import LEVELS, Level
from licet.errors import ManifestError
from licet.guard.execution import SandboxUnavailable
from licet.guard.ports import LedgerUnavailable, Unavailable
from licet.policy_files.organisation import machine_file, machine_organisation
from licet.sandbox.namespace_access import apply, is_applied, remedy
from licet.sandbox.probe import SOCKETS, SUPERVISED, WALLS, WORKER_WALLS, Machine, Support, help_with, look
from licet.wasm.cache import on_linux, wasmtime_version
from licet.wasm.python.build import BuildFailed, kept_runner

if TYPE_CHECKING:
    from licet.backends.postgres.health import Check

_WALLED: tuple[Level, ...] = tuple(level for level in LEVELS if level != "native")
_WASM_DEGRADED = (
    "refused, unless the manifest says `sandbox: {allow_degraded: true}`; each receipt then names what was missing"
)
# What a person should know; the table in docs/sandbox.md has all of it.
_WITHOUT_NAMESPACES = (
    "without namespaces: a supervisor makes their calls, and what the policy denies is denied",
    "seen are names of foreign files and processes, and their command lines",
    "shared is the loopback: others on this machine reach the ports of a program; /tmp is closed",
)
_NO_PYTHON = "the Python of `licet.tools.python` is not built: `licet wasm build` does it ahead of the first call"
_COLOURS = {"yes": "green", "no": "red", "degraded": "yellow"}


@click.command(name="doctor")
@click.option("--fix", "fixes", is_flag=True, help="As root: give ordinary users the namespaces that programs want.")
@click.option("--attempts", "every", is_flag=True, help="Also list every attempt to break a wall.")
@state_option("Also look at this state, if it is a database.")
@json_option
@click.pass_context
def command(ctx: click.Context, every: bool, fixes: bool, state: State | None) -> None:
    """Test which levels this machine supports.

    Each wall is built in a process of its own, which then tries what the wall forbids. A level whose walls do not hold
    is refused when a tool needs it. Programs have namespaces where the machine gives them, and else a supervisor that
    makes their calls; with `--fix`, root changes the one setting that refuses namespaces, after showing what it does.
    WASM tools need wasmtime: the walls are a second layer around it, which a manifest can do without.
    If this machine has an organisation file, it is shown too, and so is a state in a database: whether it answers,
    what a failover loses, and what holds its ledger back. The exit code is 1 if a level is not supported, or if that
    file or that state cannot be used: everything is refused then.
    """
    if fixes:
        _fix(ctx)
    found, above, health = look(), _organisation(), _health(state)
    print_report(_Checked(found, above, health), lambda _: _show(found, every, above, health))
    is_usable = not (above and above["problems"]) and not (health and health.is_broken)
    ctx.exit(0 if all(map(found.keeps, _WALLED)) and is_usable else 1)


def _fix(ctx: click.Context) -> None:
    """Give the user of `sudo` namespaces. Exits if there is nothing to do, or it cannot be done."""
    user, group = (int(os.environ.get(name) or own) for name, own in (("SUDO_UID", _user()), ("SUDO_GID", _group())))
    wanted = remedy(Machine.here(), user, group)
    if wanted is None or not wanted.changes:
        show(wanted.hint if wanted else "no setting of this machine refuses namespaces: there is nothing to fix")
        ctx.exit(0 if wanted is None else 1)
    for line in wanted.lines():
        show(line, err=True)
    if _user():
        show(f"this takes root: run `sudo {' '.join(map(visible, _own_command()))}`", err=True, colour="red")
        ctx.exit(2)
    if not user:
        show("run it with `sudo` as the user who will use licet: root needs no fix", err=True, colour="red")
        ctx.exit(2)
    if is_applied(wanted):
        show("all of that is there already", err=True)
    try:
        apply(wanted)
    except (OSError, subprocess.SubprocessError) as error:
        show(f"that failed: {error}", err=True, colour="red")
        ctx.exit(1)


def _own_command() -> tuple[str, ...]:
    return (os.path.abspath(sys.argv[0]), "doctor", "--fix")


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 1


def _group() -> int:
    return os.getegid() if hasattr(os, "getegid") else 1


class _Health(Struct, frozen=True):
    """What a look at a state in a database has found."""

    state: str
    checks: Sequence["Check"]

    @property
    def is_broken(self) -> bool:
        return any(one.verdict == "no" for one in self.checks)


def _health(state: State | None) -> _Health | None:
    if not isinstance(state, DatabaseState):  # a directory has nothing that could be told before it is used
        return None
    from licet.backends.postgres.health import health_of

    checks = [*health_of(state.database), *_of_node(state)]
    return _Health(state.shown, checks)


def _of_node(state: DatabaseState) -> Iterator["Check"]:
    """What this machine is to the state. A look begins no ledger, makes no key, and pins none."""
    from licet.backends.postgres.health import Check
    from licet.backends.postgres.node_keys import KEY_FILE

    if not (state.directory / KEY_FILE).exists():
        yield Check("node", "yes", "this machine is no node of it yet: its first call makes a key, to be enrolled")
        return
    try:
        node = state.node
        is_enrolled = asyncio.run(state.ledger().enrolled.check(node.public))
        frozen = asyncio.run(state.freezes().view())
    except (LedgerUnavailable, Unavailable) as wrong:
        yield Check("node", "no", str(wrong))
        return
    if is_enrolled:
        yield Check("node", "yes", f"this machine is enrolled: {node.public}")
    else:
        fix = f"an operator runs `licet state enrol {node.public} --key FILE`"
        yield Check("node", "no", f"this machine is not enrolled: {node.public}", fix)
    for one in frozen.freezes:
        limits = [f"{name} {value}" for name, value in (("agent", one.fact.agent), ("tool", one.fact.tool)) if value]
        text = f"calls{' of ' if limits else ''}{' and '.join(limits)} are frozen: {one.fact.why or 'no reason given'}"
        yield Check("freeze", "degraded", text, "`licet thaw` ends it")


def _show_health(health: _Health | None) -> Table | None:
    if health is None:
        return None
    table = _table("state", "well", "what was found, and what to do")
    for one in health.checks:
        table.add_row(one.about, _verdict(one.verdict), _text([one.text, *filter(None, [one.fix])]))
    return table


def _organisation() -> dict[str, Any] | None:
    """The organisation file of this machine: its digest, or why everything is refused; None if there is none."""
    try:
        found = machine_organisation()
    except ManifestError as wrong:
        return {"file": machine_file(), "digest": None, "problems": [str(problem) for problem in wrong.problems]}
    return None if found is None else {"file": found.origin.file, "digest": found.digest, "problems": []}


def _show_organisation(above: dict[str, Any] | None) -> None:
    if above is None:
        return
    click.echo()
    if above["problems"]:
        show(f"organisation  {above['file']} cannot be used, so everything is refused:", colour="red")
        for problem in above["problems"]:
            show(f"  {problem}")
    else:
        show(f"organisation  {above['file']} ({above['digest']}) narrows every policy here")


def _show(found: Support, every: bool, above: dict[str, Any] | None, health: _Health | None) -> None:
    console = Console(highlight=False, markup=False, emoji=False, color_system="auto" if coloured() else None)
    with console.capture() as drawn:
        console.print(_levels(found))
        console.print()
        console.print(_walls(found))
        if every:
            console.print()
            console.print(_attempts(found))
        if (table := _show_health(health)) is not None:
            console.print()
            console.print(table)
    for line in drawn.get().splitlines():
        click.echo(line.rstrip())
    _show_organisation(above)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _verdict(word: str) -> Text:
    return Text(word, style=_COLOURS[word])


def _levels(found: Support) -> Table:
    table = _table("level", "kept here", "what is missing, and how to get it")
    for level in _WALLED:
        lines = (*found.missing(level), *found.advice(level), *_uncounted(found, level))
        table.add_row(level, _verdict("yes" if found.keeps(level) else "no"), _text(lines))
    table.add_row("programs", _verdict(_programs(found)), _text(_about_programs(found)))
    wasm = _wasm(found)
    table.add_row("wasm tools", _verdict(wasm["kept"]), _text(wasm["notes"]))
    table.add_row("native", _verdict("yes"), "no walls: only for tools that the manifest names")
    return table


def _uncounted(found: Support, level: Level) -> Iterator[str]:
    """The note on a level that holds, on a machine where the files that its tools make cannot be counted."""
    if found.keeps(level):
        for wall in found.uncounted(level):
            yield "files that a tool makes without `ctx` are not counted against `limits.written_paths`"
            yield from found.faults(wall)
            yield help_with(wall)


def _programs(found: Support) -> str:
    if not found.keeps("isolated"):
        return "no"
    return "yes" if found.namespaces or found.supervised else "degraded"


def _about_programs(found: Support) -> tuple[str, ...]:
    """What programs lack without namespaces or without unix sockets, and what that takes."""
    if not found.keeps("isolated"):
        return (*found.missing("isolated"), *found.advice("isolated"))
    if found.namespaces:
        lacking = () if found.wall_holds(SOCKETS) else tuple(found.faults(SOCKETS))
        return ("without unix sockets between their processes", *lacking) if lacking else ()
    if found.supervised:
        return (*_WITHOUT_NAMESPACES, *found.without_namespaces())
    return (
        "refused, unless the manifest says `sandbox: {allow_degraded: true}`; each receipt then names what was missing",
        "behind Landlock and seccomp alone: no network, and names of foreign files can be seen",
        *(("no limit on the number of processes: this is root",) if hasattr(os, "getuid") and not os.getuid() else ()),
        *found.without_namespaces(),
        *found.faults(SUPERVISED),
    )


def _wasm(found: Support) -> dict[str, Any]:
    """Whether WASM tools run here, and behind which layers; and whether the Python of models is built."""
    try:
        version = wasmtime_version()
    except SandboxUnavailable as wrong:
        return {"kept": "no", "wasmtime": None, "missing": [], "python": None, "notes": [str(wrong)]}
    missing = [wall for wall in WORKER_WALLS if not found.wall_holds(wall)]
    notes = [f"wasmtime {version}, in a process of its own"]
    if missing:
        notes += [f"around it is missing: {', '.join(missing)}; wasmtime alone then keeps `restricted`"]
        notes += ["`isolated` needs them all, and is refused"]
        notes += [_WASM_DEGRADED] if on_linux() else []
    built = _python_runner()
    notes += ["the Python of `licet.tools.python` is built" if built else _NO_PYTHON]
    return {
        "kept": "degraded" if missing else "yes",
        "wasmtime": version,
        "missing": missing,
        "python": built,
        "notes": notes,
    }


def _python_runner() -> str | None:
    """The file of the built Python; None if there is none."""
    try:
        kept = kept_runner()
    except (BuildFailed, SandboxUnavailable):
        return None
    return kept.file if kept is not None else None


def _walls(found: Support) -> Table:
    table = _table("wall", "holds", "stops")
    # The supervised calls are tried only where they take the place of namespaces, and of what needs these.
    others = {SUPERVISED} if found.namespaces else {SOCKETS} if found.supervised else set()
    for wall in (wall for wall in WALLS if wall not in others):
        name = f"{wall} (version {found.landlock})" if wall == "landlock" and found.landlock else wall
        stopped = [finding.about for finding in found.findings if finding.wall == wall and finding.holds]
        table.add_row(name, _verdict("yes" if found.wall_holds(wall) else "no"), _text([", ".join(stopped)]))
    return table


def _attempts(found: Support) -> Table:
    table = _table("wall", "tried to", "outcome")
    for finding in found.findings:
        table.add_row(finding.wall, _text([finding.about]), _text([finding.outcome]))
    return table


def _text(lines: tuple[str, ...] | list[str]) -> Text:
    return Text("\n".join(map(visible, lines)))


class _Checked(Struct, frozen=True):
    """What this machine supports, its organisation file, and a state in a database."""

    support: Support
    organisation: dict[str, Any] | None
    health: _Health | None

    def document(self) -> dict[str, object]:
        """As plain data."""
        health = None if self.health is None else msgspec.to_builtins(self.health)
        return {**_document(self.support), "organisation": self.organisation, "state": health}


def _document(found: Support) -> dict[str, object]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "landlock": found.landlock,
        "levels": {
            level: {"kept": found.keeps(level), "missing": found.missing(level), "advice": found.advice(level)}
            for level in LEVELS
        },
        "programs": {"kept": _programs(found), "notes": _about_programs(found)},
        "wasm": _wasm(found),
        "walls": {wall: found.wall_holds(wall) for wall in WALLS},
        "attempts": [
            {"wall": finding.wall, "about": finding.about, "outcome": finding.outcome, "holds": finding.holds}
            for finding in found.findings
        ],
        "trouble": found.trouble or None,
    }
