"""What the rows of `rows.yaml` run in: a project, the servers on loopback, and what a run leaves behind."""

import fnmatch
import importlib.metadata
import json
import os
import pty
import re
import select
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct, convert

from licet.backends.memory import Answer
from licet.guard.ports import Exchange
from licet.sandbox import probe
from loopback import authority_file, serving
from packages.made import Index, Registry, wheel

ROOT = Path(__file__).resolve().parents[2]
# Programs of other people that the environment of the tests does not have: `pip install` and `npm install` there.
FURTHER = Path(os.environ.get("LICET_PROGRAMS", ROOT / ".venv-programs"))
HOST = "127.0.0.2"  # 127.0.0.1 is the loopback of the program itself behind walls
PATIENCE = 240  # seconds: for a run that hangs, not for one that is slow


class Refusal(Struct, frozen=True, forbid_unknown_fields=True):
    """How a line fails under a policy: its exit code, what the program says, and what licet says about it."""

    code: int
    says: str
    hint: str


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """One line that people type; `rows.yaml` says what the fields mean."""

    name: str
    line: str
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] | None = None
    modules: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    home: Mapping[str, str] = {}
    below: str = "/var/tmp"  # where hard-coded names in /tmp are not those of the project
    setup: tuple[str, ...] = ()
    terminal: str | None = None
    policy: Mapping[str, Any] = {}
    varies: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    bare: bool = True
    preset: str | Refusal = "works"
    learned: str | Refusal = "works"
    note: str = ""


def rows() -> list[Row]:
    """All rows, in the order of the table."""
    return convert(yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text("utf-8")), list[Row])


def words_of(line: str) -> list[str]:
    """A line as a command: the program itself where a shell has nothing to do, and a shell otherwise."""
    return ["sh", "-c", line] if re.search(r"[|&;<>()$`\\\"'*?\[#~=%\n]", line) else shlex.split(line)


# What a run leaves behind ---------------------------------------------------------------------------------------------


class Outcome(Struct, frozen=True):
    """How a run ended, what it printed, and the files of the project afterwards."""

    code: int
    out: str
    err: str
    files: dict[str, str]


_VARIES = (
    (r"\d+(\.\d+)?\s?(s|ms|seconds)\b( \(\d+:\d\d:\d\d\))?", "TIME"),
    (r"/tmp/[\w./-]+", "/tmp/NAME"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*", "DATE"),
)


def steady(text: str, row: Row, project: Path) -> str:
    """A text without times and temporary names."""
    text = text.replace(str(project), "PROJECT").replace("\r", "")
    for pattern, word in (*_VARIES, *((one, "VARIES") for one in row.varies)):
        text = re.sub(pattern, word, text)
    return text


def files_of(project: Path, loose: Sequence[str]) -> dict[str, str]:
    """Every file of a project with its kind and contents; of loose ones the name alone.

    Policy and compiled Python, which has times in it, are left out; so are names inside `.git/objects`.
    """
    found = {}
    for path in sorted(project.rglob("*")):
        name = path.relative_to(project).as_posix()
        if name.split("/")[0] == ".licet" or "__pycache__" in name or name.startswith(".git/objects/"):
            continue
        mode = path.lstat().st_mode
        if any(fnmatch.fnmatch(name, one) for one in loose):
            found[name] = stat.filemode(mode)[0]
        elif stat.S_ISREG(mode):
            found[name] = f"{stat.filemode(mode)} {path.read_bytes()!r}"
        else:
            found[name] = stat.filemode(mode) + (f" {path.readlink()}" if stat.S_ISLNK(mode) else "")
    return found


# The project ----------------------------------------------------------------------------------------------------------


class Place:
    """A project in which one row is run again and again, always from the same files."""

    def __init__(self, place: Path, row: Row, servers: "Servers") -> None:
        self.row, self.servers = row, servers
        self.project, self._kept = place / "project", place / "kept"
        self.state, self._home = place / "state", place / "home"
        self.line = servers.filled(row.line)
        self._make()

    def environment(self) -> dict[str, str]:
        """An empty home, and few variables: a policy passes on few."""
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir()
        _write(self._home, self.row.home)
        own = (str(self._home / ".local" / "bin"),) if self.row.home else ()
        path = (*own, os.path.join(sys.base_prefix, "bin"), "/usr/local/bin", "/usr/bin", "/bin")
        return {
            "PATH": os.pathsep.join(path),
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "XDG_STATE_HOME": str(self.state),
        }

    def _make(self) -> None:
        self.project.mkdir(parents=True)
        _write(self.project, self.row.files)
        if self.row.packages is not None:
            _virtual_environment(self.project / ".venv", self.row.packages)
        for module in self.row.modules:
            _module(self.project / "node_modules", module)
        for line in self.row.setup:
            subprocess.run(self.servers.filled(line), shell=True, cwd=self.project, env=self.environment(), check=True)
        self.keep()

    def keep(self) -> None:
        """Take the project as it is for the start of every further run."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self.project, self._kept, symlinks=True)

    def restore(self) -> None:
        """Put every file back."""
        shutil.rmtree(self.project)
        shutil.copytree(self._kept, self.project, symlinks=True)

    @property
    def policy(self) -> Path:
        """The policy of the project."""
        return self.project / ".licet" / "licet.yaml"

    def adds(self) -> dict[str, Any]:
        """What a person adds to the preset."""
        adds: dict[str, Any] = json.loads(self.servers.filled(json.dumps(dict(self.row.policy))))
        read = adds.get("fs_reach", {}).get("read", [])
        return {**adds, "fs_reach": {"read": [*read, *self.servers.files(self.line)]}}

    def settle(self, command: Sequence[str]) -> str:
        """Run a command that must succeed, and is not the one that is looked at."""
        ended = subprocess.run(
            command, cwd=self.project, env=self.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, (command[-4:], ended.stdout, ended.stderr)
        return ended.stdout + ended.stderr

    def run(self, command: Sequence[str]) -> Outcome:
        """Run a command in the project, at a terminal if the row has one."""
        if self.row.terminal is not None:
            code, out, err = _at_a_terminal(command, self.row.terminal, self.project, self.environment())
        else:
            ended = subprocess.run(
                command, cwd=self.project, env=self.environment(), stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False,
            )  # fmt: skip
            code, out, err = ended.returncode, ended.stdout, ended.stderr
        out, err = (steady(text, self.row, self.project) for text in (out, err))
        return Outcome(code, out, err, files_of(self.project, self.row.loose))


def _write(directory: Path, files: Mapping[str, str]) -> None:
    """Write files; scripts can be executed."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        path.chmod(0o755 if text.startswith("#!") else 0o644)


def _at_a_terminal(
    command: Sequence[str], typed: str, project: Path, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """Type something as soon as the program has shown something; what it draws is not compared."""
    terminal, other = pty.openpty()
    child = subprocess.Popen(
        ["setsid", "--ctty", *command], cwd=project, env=environment, stdin=other, stdout=other, stderr=other
    )
    os.close(other)
    shown, sent = b"", False
    try:
        while True:
            if not select.select([terminal], [], [], PATIENCE)[0]:
                child.kill()
                pytest.fail(f"nothing happens at the terminal: {shown!r}")
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # EIO: nobody has the other side any more
                break
            shown += piece
            if not sent and b"\x1b[" in shown:
                os.write(terminal, typed.encode())
                sent = True
    finally:
        os.close(terminal)
        code = child.wait(PATIENCE)
    return code, "", shown.decode("utf-8", "replace") if code else ""


@cache
def _distributions() -> dict[str, importlib.metadata.Distribution]:
    further = [str(path) for path in FURTHER.glob("lib/python3*/site-packages")]
    found = [*importlib.metadata.distributions(path=further), *importlib.metadata.distributions()]
    return {_plain(one.metadata["Name"]): one for one in found}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# Rows that need a terminal, or a /tmp, of their own.
_ONLY_WITH_NAMESPACES = ("script", "mktemp and /tmp", "mktemp and /tmp, in a project below /tmp")


def missing(row: Row) -> str:
    """Why a row cannot be run here, or nothing."""
    if row.name in _ONLY_WITH_NAMESPACES and not probe.support().namespaces:
        return "it takes namespaces"
    for program in row.needs:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    for package in row.packages or ():
        if package not in _distributions():
            return f"{package} is not installed: neither here nor in {FURTHER.name}"
    for module in row.modules:
        if module != "greet" and not (FURTHER / "node_modules" / module).is_dir():
            return f"{module} is not installed in {FURTHER.name}"
    return ""


def _virtual_environment(place: Path, packages: Sequence[str]) -> None:
    """A virtual environment with copies of packages that are installed here, and of what they need."""
    venv.create(place, symlinks=True)
    site = next(place.glob("lib/python3*/site-packages"))
    todo, done = [*packages], set()
    while todo:
        name = _plain(todo.pop())
        if name in done or name not in _distributions():
            continue
        done.add(name)
        one = _distributions()[name]
        for file in one.files or ():
            source = Path(str(one.locate_file(file)))
            if not source.is_file():  # an ordinary user has a copy of the environment without its scripts
                continue
            if file.parts[0] == ".." and file.parts[-2] == "bin":
                target = place / "bin" / file.name
            elif file.parts[0] == ".." or "__pycache__" in file.parts:
                continue
            else:
                target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
            if target.parent.name == "bin" and (head := target.read_bytes())[:2] == b"#!":
                target.write_bytes(f"#!{place}/bin/python".encode() + head[head.index(b"\n") :])
        todo += [re.split(r"[^\w.-]", wanted)[0] for wanted in one.requires or () if "extra ==" not in wanted]


def _module(place: Path, name: str) -> None:
    if name != "greet":
        _copy_with_needed(place, name)
        return
    (place / name).mkdir(parents=True)
    (place / name / "package.json").write_text('{"name": "greet", "version": "1.0.0", "bin": "index.js"}')
    (place / name / "index.js").write_text("#!/usr/bin/env node\nconsole.log('hello')\n")
    (place / name / "index.js").chmod(0o755)
    (place / ".bin").mkdir()
    (place / ".bin" / name).symlink_to(f"../{name}/index.js")


def _copy_with_needed(place: Path, module: str) -> None:
    """Copy a package of npm with everything that it needs, and its programs."""
    todo, source = [module], FURTHER / "node_modules"
    while todo:
        name = todo.pop()
        if (place / name).exists() or not (source / name).is_dir():  # of another system
            continue
        shutil.copytree(source / name, place / name, symlinks=True)
        about = json.loads((source / name / "package.json").read_text("utf-8"))
        todo += [
            needed
            for key in ("dependencies", "optionalDependencies", "peerDependencies")
            for needed in about.get(key, ())
        ]
    (place / ".bin").mkdir(exist_ok=True)
    for link in (source / ".bin").iterdir():
        target = place / ".bin" / link.name
        if not target.is_symlink() and (place / ".bin" / link.readlink()).exists():
            target.symlink_to(link.readlink())


# Servers --------------------------------------------------------------------------------------------------------------


class Servers:
    """The servers of all rows, each started when a row names it."""

    def __init__(self, place: Path, opened: ExitStack) -> None:
        self._place, self._opened = place, opened
        self._values: dict[str, str] = {}

    def filled(self, text: str) -> str:
        """A text with the addresses of the servers that it names."""
        for name in re.findall(r"@([A-Z]+)(?:_PORT)?@", text):
            if name not in self._values:
                self._values[name] = getattr(self, f"_{name.lower()}")()
            text = text.replace(f"@{name}@", self._values[name])
            text = text.replace(f"@{name}_PORT@", self._values[name].rpartition(":")[2])
        return text

    def files(self, line: str) -> list[str]:
        """The files outside of the project that a line names: a person lets the program read them."""
        return [value for name, value in self._values.items() if name == "CA" and value in line]

    def _ca(self) -> str:
        self._place.chmod(0o755)
        return authority_file(self._place)

    def _web(self) -> str:
        server = self._opened.enter_context(serving(_hello, HOST))
        return f"http://{HOST}:{server.port}"

    def _secure(self) -> str:
        server = self._opened.enter_context(serving(_hello, HOST, names=(HOST,)))
        return f"https://{HOST}:{server.port}"

    def _index(self) -> str:
        wheel(self._place / "wheels", "greet")
        made = Index(self._place / "wheels")
        server = self._opened.enter_context(serving(made.answer, HOST))
        return f"http://{HOST}:{server.port}"

    def _registry(self) -> str:
        made = Registry()
        made.add("greet")
        server = self._opened.enter_context(serving(made.answer, HOST))
        made.origin = f"http://{HOST}:{server.port}"
        return made.origin

    def _git(self) -> str:
        """A repository as plain files, which git fetches without a program on the other side."""
        work, bare = self._place / "work", self._place / "repo.git"
        me = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
        quiet = {"env": {"PATH": os.environ["PATH"], "HOME": str(self._place)}, "check": True}
        for words in (
            ["init", "-q", "-b", "main", str(work)],
            ["-C", str(work), *me, "commit", "-q", "--allow-empty", "-m", "Fetched"],
            ["clone", "-q", "--bare", str(work), str(bare)],
            ["-C", str(bare), "update-server-info"],
        ):
            subprocess.run(["git", *words], **quiet)  # type: ignore[call-overload]

        def answer(exchange: Exchange) -> Answer:
            file = self._place / exchange.url.split("/", 3)[3].partition("?")[0]
            return Answer(body=file.read_bytes()) if file.is_file() else Answer.text("not found", status=404)

        server = self._opened.enter_context(serving(answer, HOST, names=(HOST,)))
        return f"https://{HOST}:{server.port}"

    def _socket(self) -> str:
        path = str(self._place / "socket")
        listener = self._opened.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        os.chmod(path, 0o777)
        listener.listen()
        threading.Thread(target=_answering, args=(listener,), daemon=True).start()
        return path


def _hello(exchange: Exchange) -> Answer:
    return Answer.text("hello from the web\n")


@contextmanager
def serving_rows(place: Path) -> Iterator[Servers]:
    """The servers of a test session."""
    with ExitStack() as opened:
        yield Servers(place, opened)


# Policies -------------------------------------------------------------------------------------------------------------


def merged(policy: Path, adds: Mapping[str, Any]) -> None:
    """Write a policy again with further lines in its `capabilities`; `deny` replaces what it says of `.git`."""
    document = yaml.safe_load(policy.read_text("utf-8"))
    held = document["capabilities"]
    for key, value in adds.items():
        if key == "deny":
            held[key] = [one for one in held.get(key) or () if "/.git" not in one] + value
        elif isinstance(value, dict):
            lists = {k: [*held[key].get(k, []), *v] if isinstance(v, list) else v for k, v in value.items()}
            held[key] = {**(held.get(key) or {}), **lists}
        else:
            held[key] = [*(held.get(key) or ()), *value]
    policy.write_text(json.dumps(document, indent=1), "utf-8")


def agreed(policy: Path) -> None:
    """Turn the commented lines of a draft into lines, as a person does who agrees to all of them.

    What was used and denied is denied no more, and the class is the one that `learn` has named.
    """
    text = re.sub(r"^(\s*)# (fs_reach:|output:|grants:|- \")", r"\1\2", policy.read_text("utf-8"), flags=re.MULTILINE)
    text = re.sub(r"^  deny:\n(    .*\n)*", _never_used, text, flags=re.MULTILINE)
    document = yaml.safe_load(text)
    held = document["capabilities"]
    grants = held.get("grants", ())
    if any(one.startswith("fs:delete") for one in grants):
        held["max_side_effect_class"] = "full"
        held["approvals"] = {"write": "session", "delete": "session"}
        held["budget"] = {"max_calls_per_session": 100}
    elif any(one.startswith(("fs:write", "network:tcp")) for one in grants):
        held["max_side_effect_class"] = "write_limited"
    policy.write_text(json.dumps(document, indent=1), "utf-8")


def _never_used(denies: re.Match[str]) -> str:
    head, *lines = denies[0].splitlines(keepends=True)
    kept = [line for line in lines if "# learned: never used" in line]
    return "".join([head, *kept]) if kept else ""


def _answering(listener: socket.socket) -> None:
    """Answer each client of a socket as a web server does, until the listener is closed."""
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nup\n")
