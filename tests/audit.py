"""Runs a program with an audit hook in the host, the zygote and the supervisors, and tells what they load and open.

    python tests/audit.py LOG SCRIPT [ARGUMENT]...
    python tests/audit.py LOG -m MODULE [ARGUMENT]...

The hook writes a line for each file that is opened, executed or imported. Lines of the host say which code did it, so
that what tests and tools do themselves is told apart from what licet does. `read_log` reads the log.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Any, NamedTuple

EVENTS = ("open", "exec", "import", "compile")
# Installed in every interpreter that licet starts, before anything else; workers, which fork from it, are not watched.
CHILD = """
def _audit():
    import os, sys
    own, busy = os.getpid(), []
    kind = "supervisor" if len(sys.argv) < 4 else "zygote"
    def hook(event, given):
        if event not in {events!r} or busy or os.getpid() != own:
            return
        busy.append(1)
        try:
            place = given[1] if event in ("import", "compile") else given[0]
            place = getattr(place, "co_filename", place)
            if isinstance(place, bytes):
                place = os.fsdecode(place)
            if isinstance(place, str) and place.startswith("/"):
                file = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
                os.write(file, ("\\t".join((kind, event, place, "", "")) + "\\n").encode("utf-8", "replace"))
                os.close(file)
        finally:
            busy.clear()
    sys.addaudithook(hook)
_audit()
"""


class Line(NamedTuple):
    """One thing that happened: in which process, what, where, by which code, and on behalf of what."""

    process: str
    event: str
    path: str
    code: str
    of: str  # `handle`: a handle of a running call; `gate`: policy is read, a backend or a gate is made


# What happened --------------------------------------------------------------------------------------------------------


class Log(NamedTuple):
    """All that was written: what grants may write, and what happened once a gate was built, and once a tool had run."""

    roots: tuple[str, ...]
    built: tuple[Line, ...]
    ran: tuple[Line, ...]

    @property
    def violations(self) -> list[Line]:
        """Whatever licet loads from, or opens in, a grant that may be written, unless a handle does it for a call."""
        return [line for line in self.ran if self._granted(line.path) and not line.of]

    def late_imports(self, prefix: str) -> list[Line]:
        """Modules below a directory that the host loads once its gate is built."""
        loads = [line for line in self.built if line.process == "host" and line.event in ("exec", "import")]
        return [line for line in loads if line.path.startswith(prefix) and line.of != "gate"]

    def _granted(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in self.roots)


def read_log(file: Path) -> Log:
    """What a log tells."""
    roots: dict[str, None] = {}
    built: list[Line] | None = None
    ran: list[Line] | None = None
    for text in file.read_text("utf-8", "replace").splitlines():
        process, event, path, code, of = text.split("\t")
        if event == "root":
            roots[path] = None
        elif event == "built":
            built = built if built is not None else []
        elif event == "ran":
            ran = ran if ran is not None else []
        else:
            line = Line(process, event, path, code, of)
            for kept in (built, ran):
                if kept is not None:
                    kept.append(line)
    return Log(tuple(roots), tuple(built or ()), tuple(ran or ()))


# In the host ----------------------------------------------------------------------------------------------------------

_LICET = f"{Path(__file__).resolve().parents[1] / 'src' / 'licet'}/"
_HANDLES = tuple(f"{_LICET}{name}" for name in ("backends/files", "sandbox/native"))
_BACKENDS = f"{_LICET}backends/"
_GATES = tuple(f"{_LICET}{name}" for name in ("policy_files/load", "assemble/importing", "guard/registration"))
_PYTHON = (os.path.dirname(os.__file__), "<frozen", "<string")


def _whose() -> tuple[str, str]:
    """The code that is at work, if licet is: the innermost file that is not Python's; and on behalf of what."""
    files, made, frame = [], False, sys._getframe(2)
    while frame is not None:
        files.append(frame.f_code.co_filename)
        made = made or (frame.f_code.co_name == "__init__" and files[-1].startswith(_BACKENDS))
        frame = frame.f_back  # type: ignore[assignment]
    files = [file for file in files if file != __file__ and ("site-packages" in file or not file.startswith(_PYTHON))]
    if not files or not any(file.startswith(_LICET) for file in files):
        return "", ""
    ours = files[0].startswith(_LICET) or "site-packages" in files[0]
    if made or any(file.startswith(_GATES) for file in files):
        return files[0] if ours else "", "gate"
    return files[0] if ours else "", "handle" if any(file.startswith(_HANDLES) for file in files) else ""


def _install(log: str) -> None:
    busy: list[int] = []
    own = os.getpid()

    def write(*words: str) -> None:
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        os.write(file, ("\t".join(words).replace("\n", " ") + "\n").encode("utf-8", "replace"))
        os.close(file)

    def hook(event: str, given: Any) -> None:
        if event not in EVENTS or busy or os.getpid() != own:
            return
        busy.append(1)
        try:
            place = given[1] if event in ("import", "compile") else given[0]
            place = getattr(place, "co_filename", place)
            place = os.fsdecode(place) if isinstance(place, bytes) else place
            if isinstance(place, str) and place and not place.startswith("<"):
                code, of = _whose()
                if code:
                    write("host", event, os.path.abspath(place), code, of)
        finally:
            busy.clear()

    from licet.sandbox.programs import supervisor_client

    supervisor_client.PRELUDE = CHILD.format(events=EVENTS, log=log)
    _watch(write)
    sys.addaudithook(hook)


def _watch(write: Any) -> None:
    """Note what grants may write, when the first gate is built, and when the first tool has run."""
    from licet.guard.gate import BareGate
    from licet.guard.held_paths import held_paths
    from licet.guard.import_path import ways
    from licet.guard.session import Session

    reload, call = BareGate.reload, Session.call

    def reloaded(self: BareGate, manifest: Any) -> None:
        reload(self, manifest)
        for one in self._policy.tools.values():
            for root in held_paths(one.reach.grant).allowed("write") if one.reach is not None else ():
                for way in ways(root):
                    write("host", "root", way, "", "")
        write("host", "built", "", "", "")

    async def called(self: Session, *words: Any, **named: Any) -> Any:
        result = await call(self, *words, **named)
        write("host", "ran", "", "", "")
        return result

    BareGate.reload = reloaded  # type: ignore[method-assign]
    Session.call = called  # type: ignore[method-assign]


def _main() -> None:
    log, target, *rest = sys.argv[1:]
    _install(os.path.abspath(log))
    sys.path.pop(0)
    if target == "-m":
        sys.argv[:] = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = [target, *rest]
        sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
        runpy.run_path(target, run_name="__main__")


if __name__ == "__main__":
    _main()
