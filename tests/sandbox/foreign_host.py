"""A host on another system, as far as Python can be made to believe it: what is missing there is taken away here.

It says what `licet` comes to: whether everything imports, what runs, and what is refused.
"""

import importlib
import json
import pathlib
import pkgutil
import socket
import sys
import tempfile

# Loaded while this is still Linux: the standard library and others must find what they need to be there at all.
_BEFORE = """
    asyncio concurrent.futures ctypes logging multiprocessing os signal sqlite3 ssl subprocess tempfile threading
    urllib.request uuid zoneinfo can_ada click cryptography httpcore2 httpx2 pydantic rich.console
    wasmtime.component yaml
"""
_NEITHER = """
    pidfd_open memfd_create sched_setaffinity O_PATH O_TMPFILE pipe2 unshare setns getrandom
    posix_fadvise copy_file_range eventfd
"""
LACKING = {
    "darwin": {
        "os": _NEITHER,
        "socket": "SO_PASSCRED SO_PEERCRED",
        "signal": "SIGRTMIN SIGRTMAX sigtimedwait sigwaitinfo",
        "modules": "",
    },
    "win32": {
        "os": f"""
            {_NEITHER} fork register_at_fork getuid geteuid getgid setsid killpg wait4 waitid uname O_NOFOLLOW
            O_DIRECTORY O_CLOEXEC O_NONBLOCK chown fchown fchmod mkfifo sysconf statvfs WNOHANG posix_spawn getpgid
            getloadavg
        """,
        "socket": "AF_UNIX send_fds recv_fds SCM_RIGHTS CMSG_SPACE CMSG_LEN MSG_DONTWAIT",
        "signal": "SIGKILL SIGSTOP SIGCHLD SIGXCPU SIGXFSZ SIGPIPE pthread_sigmask alarm",
        "modules": "resource fcntl pwd grp termios tty pty syslog",
    },
}


_ADD = '(module (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1))))'


def take_away(system: str) -> None:
    """Make this the given system, as far as can be."""
    for name in _BEFORE.split():
        importlib.import_module(name)
    lacks = LACKING[system]
    pair, family = socket.socketpair, socket.AF_UNIX
    # Every system has some kind of pair, which event loops need.
    socket.socketpair = lambda *_: pair(family)
    for name in lacks["modules"].split():
        sys.modules[name] = None  # type: ignore[assignment]
    for module in ("os", "socket", "signal"):
        for name in lacks[module].split():
            if hasattr(sys.modules[module], name):
                delattr(sys.modules[module], name)
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]  # it looked while this was Linux
    sys.platform = system


def main(system: str, folder: str) -> None:
    """Be on that system, import everything, and make calls."""
    import wasmtime

    wasm = wasmtime.wat2wasm(_ADD)
    take_away(system)
    import licet
    from licet import run
    from licet.sandbox import probe

    found = (module.name for module in pkgutil.walk_packages(licet.__path__, "licet."))
    # Adapters import agent frameworks. The guest of the Python runner imports what exists only in its component.
    names = [name for name in found if "adapters" not in name and "wasm.python.guest" not in name]
    for name in names:
        importlib.import_module(name)
    from sandbox.foreign_tools import add, add_slowly, start
    from sandbox.levels import WALLED, gate

    place = pathlib.Path(folder)
    said: dict[str, object] = {"modules": len(names)}
    at = gate(place, "native", add, add_slowly)
    said["native"] = [run(at, name, {"a": 2, "b": 3}).value for name in ("add", "add_slowly")]
    for level in WALLED:
        result = run(gate(place, level, add), "add", {"a": 2, "b": 3})
        said[level] = [result.code, result.reason, result.error]
    if system == "darwin":
        (place / "add.wasm").write_bytes(wasm)
        tool = licet.Tool.wasm(str(place / "add.wasm"), function="add", capabilities={}, effect="read_only")
        result = run(gate(place, "restricted", tool), "add", {"a": 2, "b": 3})
        said["wasm"] = [result.error, result.value, *result.layers]
    result = run(gate(place, "native", start, backends=licet.Backends.memory()), "start")
    said["program"] = [result.code, result.reason, result.error]
    said["doctor"] = {level: probe.look().keeps(level) for level in ("restricted", "isolated", "native")}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
