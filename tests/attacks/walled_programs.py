"""Programs behind real walls and without any, so that an attack can be seen to work and then to fail."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attacks.programs import NoWalls
from guard.grants import grant
from licet.guard.grant import Grant
from licet.guard.handles.processes import ScopedProcesses
from licet.ports import Finished, Http, Walls
from licet.sandbox import probe
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls

PYTHON = os.path.realpath(sys.executable)
CANARY = "CANARY"


@cache
def without_namespaces() -> probe.Support:
    """What this machine could keep if nobody gave it namespaces."""
    return probe.look(namespaces=False)


def degraded() -> probe.Support:
    """What it could keep if nobody could make the calls of programs for them either."""
    support = probe.support()
    optional = (*probe.NAMESPACES, probe.SUPERVISED)
    return replace(support, findings=tuple(finding for finding in support.findings if finding.wall not in optional))


def without_unix_sockets() -> probe.Support:
    """What this machine could keep if nobody could judge connections to unix sockets."""
    found = probe.support()
    return replace(found, findings=tuple(one for one in found.findings if one.wall != probe.SOCKETS))


def _older(support: Callable[[], probe.Support], landlock: int) -> probe.Support:
    return replace(support(), landlock=landlock)


_KINDS: dict[str, Callable[[], probe.Support]] = {
    "namespaces": probe.support,
    "no-namespaces": without_namespaces,
    "no-unix-sockets": without_unix_sockets,
    "degraded": degraded,
}

needs_walls = pytest.mark.skipif(not probe.support().keeps("isolated"), reason="no walls are to be had here")
needs_namespaces = pytest.mark.skipif(not probe.support().namespaces, reason="user namespaces are not to be had here")
needs_programs = pytest.mark.skipif(
    not (probe.support().namespaces or probe.support().supervised), reason="programs have no whole walls here"
)
both_kinds = pytest.mark.parametrize(
    "kind", [pytest.param("namespaces", marks=needs_namespaces), pytest.param("no-namespaces", marks=needs_walls)]
)


class _Sandbox:
    def __init__(self, walls: Callable[[Grant], Walls]) -> None:
        self.walls = walls

    def layers(self, level: str) -> tuple[str, ...]:
        return ()

    async def run(self, level: str, call: Any, context: Any) -> Any:
        raise NotImplementedError


class Programs:
    """The programs of one call, which may start any unless it is said otherwise: what stops them is the walls."""

    def __init__(
        self,
        kind: str,
        rules: Sequence[str] = (),
        *,
        deny: Sequence[str] = (),
        effect: Any = "write_limited",
        limits: Mapping[str, int] | None = None,
        http: Http | None = None,
        private: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        named: bool = True,
        anything: bool = True,
        path: str = "/usr/bin:/bin",
        landlock: int | None = None,
        deletes: Any = "call",
        written: bool = True,
        **given: Any,
    ) -> None:
        programs = (*(["process:exec:*"] if anything else []), *([f"process:exec:{PYTHON}"] if named else []))
        held = {"deletes": deletes, "written": written}
        self.grant = grant([*rules, *programs], deny=deny, effect=effect, private=private, **held)
        manifest = replace(self.grant.reach.manifest, limits=dict(limits or {}), allow_degraded=True)
        self.grant.reach = replace(self.grant.reach, manifest=manifest)
        support = _KINDS.get(kind, probe.support)
        if landlock is not None:  # what an older machine could keep
            support = partial(_older, support, landlock)
        walls = (lambda _: NoWalls()) if kind == "open" else ProgramWalls(http, support).walls
        self.handle = ScopedProcesses(
            self.grant,
            LocalProcesses(path),
            _Sandbox(walls),
            binaries={},
            environ=environ,
            seconds=seconds,
            **given,
        )

    def run(self, *command: str, **given: Any) -> Finished:
        """Run a program to its end."""
        return asyncio.run(self.handle.spawn(command[0], command[1:], **given))

    def python(self, code: str, *arguments: str, **given: Any) -> str:
        """What some Python prints; an exception is printed by its name."""
        text = "\n".join(f"    {line}" for line in code.strip().splitlines())
        whole = f"import os, socket, sys\ntry:\n{text}\nexcept BaseException as e:\n    print(type(e).__name__, e)"
        ended = self.run(PYTHON, "-I", "-S", "-c", whole, *arguments, **given)
        return (ended.stdout_bytes + ended.stderr_bytes).decode(errors="replace")


def open_programs(*rules: str, **given: Any) -> Programs:
    """The same without walls."""
    return Programs("open", rules, **given)


def place(tmp: Path) -> Path:
    """A granted directory `in`, and `out/secret` beside it; everybody may read both, as far as the system cares."""
    tmp = tmp.resolve()
    (tmp / "in").mkdir()
    (tmp / "out").mkdir()
    (tmp / "in" / "file").write_text("granted\n")
    (tmp / "out" / "secret").write_text(CANARY)
    return tmp
