"""What programs see because keys are placed for them, and what they do not find: the keys, and the authority's."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from attacks.walled_programs import Programs, open_programs, without_namespaces
from guard.grants import grant
from licet import Manifest
from licet.core.decision.foreseen import process_reach
from licet.core.decision.placing import inspection_of
from licet.core.decision.reach import reach_of
from licet.core.policy.inspection import Inspection, StandIn
from licet.core.policy.manifest import COMMANDS, with_commands
from licet.core.policy.servers import servers_of
from licet.core.values import Origin
from licet.errors import Refused
from licet.guard.execution import Command, Finished, SandboxUnavailable, TakesSecrets
from licet.sandbox import probe
from licet.sandbox.inspection import operator_files, shown
from licet.sandbox.inspection.operator_files import other_names, read_key_file
from licet.sandbox.inspection.stand_ins import CannotPlace
from licet.sandbox.limits import LARGEST_KEY_FILE
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
from sandbox.inspection.behind import PYTHON, Inspected, Keys

needs_namespaces = pytest.mark.skipif(not probe.support().namespaces, reason="user namespaces are not to be had here")
pytestmark = needs_namespaces

SECRET, STAND_IN = "real-key-0123456789", "fake-key-9876543210"


def home(tmp: Path) -> Path:
    """A home directory with a file that has a key in it."""
    where = tmp.resolve() / "home"
    (where / ".config").mkdir(parents=True)
    (where / ".config" / "credentials").write_text(f"token = {SECRET}\n")
    (where / "other").write_text("other")
    return where


def keys(where: Path) -> Keys:
    copy = f"token = {STAND_IN}\n".encode()
    return Keys({"TOKEN": STAND_IN}, {str(where / ".config" / "credentials"): copy})


# Takes the key wherever it finds it: in files below some directories, in the environment, and in /proc.
THIEF = """
import glob
NEEDLE = b"real" + b"-key"  # in two parts, so that it is not found in its own command
def text(path):
    if not os.path.isfile(path): return b""  # a pipe would be waited for
    try:
        with open(path, "rb") as file: return file.read(1 << 20)
    except OSError: return b""
files = [os.path.join(folder, name) for top in WHERE for folder, _, names in os.walk(top) for name in names]
files += [f"/proc/{p}/{n}" for p in os.listdir("/proc") if p.isdigit() for n in ("environ", "cmdline")]
files += glob.glob("/proc/*/root" + WHERE[0] + "/.config/credentials") + glob.glob("/proc/*/cwd/.config/credentials")
files += glob.glob("/proc/*/fd/*")
print([path for path in files if NEEDLE in text(path)], NEEDLE.decode() in str(os.environ))
"""


def thief(*where: Path) -> str:
    return f"WHERE = {[str(one) for one in where]}\n{THIEF}"


@pytest.mark.who
@pytest.mark.parametrize(
    "rules",
    [
        ["fs:read:{}/.config/credentials"],
        ["fs:read:{}/other"],
        ["fs:read:{}/other", "fs:write:{}/written"],
        ["fs:read:{}/.config/credentials", "fs:write:{}/.config/beside"],
    ],
)
def test_a_program_sees_the_copy_alone(rules: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    (where / "written").mkdir()
    (where / ".config" / "beside").touch()
    # Without the walls it finds the key in the file.
    assert str(where / ".config" / "credentials") in open_programs().python(thief(where))
    walled = Inspected(monkeypatch, [rule.format(where) for rule in rules], keys=keys(where))
    read = f"print(open('{where}/.config/credentials').read(), os.environ['TOKEN'])"
    assert walled.python(read).split() == ["token", "=", STAND_IN, STAND_IN]
    assert walled.python(thief(where)) == "[] False\n"
    changed = walled.python(f"open('{where}/.config/credentials', 'w')")
    assert "PermissionError" in changed or "Read-only" in changed
    assert (where / ".config" / "credentials").read_text() == f"token = {SECRET}\n"


IN_REACH = {
    "read": ["fs:read:{}/.config"],
    "written": ["fs:read:{}/.config/credentials", "fs:write:{}/.config"],
    "above": ["fs:read:{}"],
    "by a link": ["fs:read:{}-link"],
}


@pytest.mark.who
@pytest.mark.parametrize("case", [*IN_REACH, "a link that is replaced"])
def test_a_key_in_a_directory_that_a_program_reaches_is_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log-in on the host replaces the file, and the copy over it is gone: a program that reads it all the time sees
    the new key before it can be stopped."""
    where = home(tmp_path)
    (tmp_path / "home-link").symlink_to("home/.config")
    if case == "a link that is replaced":
        (where / ".config" / "credentials").rename(where / "real")
        (where / ".config" / "credentials").symlink_to("../real")
    rules = IN_REACH.get(case, ["fs:read:{}/.config"])
    walled = Inspected(monkeypatch, [rule.format(where) for rule in rules], keys=keys(where))
    with pytest.raises(SandboxUnavailable, match=r"in a directory that programs reach.* grant the file alone"):
        walled.said("true")


@pytest.mark.who
@pytest.mark.parametrize("case", ["the prefix of its interpreter", "libraries beside it"])
def test_a_key_in_a_directory_that_licet_itself_shows_is_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule names it, and the program reads it all the same."""
    where = home(tmp_path)
    (where / "ve" / "bin").mkdir(parents=True)
    tool = Path(shutil.copy("/bin/true", where / "ve" / "bin" / "tool"))
    folder = where / "ve" if case == "the prefix of its interpreter" else where / "ve" / "lib"
    folder.mkdir(exist_ok=True)
    (where / ".config" / "credentials").rename(folder / "credentials")
    copies = Keys({}, {str(folder / "credentials"): f"token = {STAND_IN}\n".encode()})
    rules = [f"fs:read:{folder}/credentials", *([f"process:exec:{tool}"] if folder.name == "lib" else [])]
    walled = Inspected(monkeypatch, rules, keys=copies)
    runtime = (str(folder),) if folder.name == "ve" else ()

    async def run(runtime: tuple[str, ...], file: str) -> Finished:
        await walled.authority()
        command = Command(file, (file,), walled.environment, "/", b"", 60.0, 1 << 20, runtime=runtime)
        return await LocalProcesses("/usr/bin:/bin").run(command, walled.walls)

    with pytest.raises(SandboxUnavailable, match=r"in a directory that programs reach.* grant the file alone"):
        asyncio.run(run(runtime, str(tool)))
    assert asyncio.run(run((), "/usr/bin/true")).exit_code == 0


def test_a_key_below_a_closed_directory_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    rules = [f"fs:read:{where}", f"fs:read:{where}/.config/credentials"]
    walled = Inspected(monkeypatch, rules, keys=keys(where), deny=[f"fs:*:{where}/.config"])
    assert walled.python(thief(where)) == "[] False\n"


@pytest.fixture
def unrefused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds besides where programs reach the directory of a key: nobody relies on the refusal alone."""
    monkeypatch.setattr(shown, "_check_directory", lambda *_: None)


def test_a_hard_link_does_not_show_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    (where / "more").mkdir()
    os.link(where / ".config" / "credentials", where / "more" / "linked")
    rules = [f"fs:read:{where}/more", f"fs:write:{where}/more"]
    assert Inspected(monkeypatch, rules, keys=keys(where)).python(thief(where)) == "[] False\n"
    with monkeypatch.context() as without:
        without.setattr("licet.sandbox.inspection.operator_files.second_names", lambda *_: ())
        assert "linked" in Inspected(without, rules, keys=keys(where)).python(thief(where))


def test_a_link_to_the_file_leads_to_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    (where / ".config" / "credentials").rename(where / "real")
    (where / ".config" / "credentials").symlink_to("../real")
    walled = Inspected(monkeypatch, [f"fs:read:{where}/other"], keys=keys(where))
    assert STAND_IN in walled.python(f"print(open('{where}/.config/credentials').read())")
    assert walled.python(thief(where)) == "[] False\n"


LATER = """
import time
path, says = os.environ["WATCHED"], os.environ["SAYS"]
while not os.path.exists(says + "-stop"):
    with open(path) as file: said = file.read()
    with open(says, "w"): pass
    if "fake-key" not in said: time.sleep(60)
    time.sleep(0.02)
print(said)
"""


@pytest.mark.usefixtures("unrefused")
@pytest.mark.parametrize("directory", [True, False])
def test_a_file_that_is_replaced_on_the_host_shows_no_key_for_long(
    directory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A log-in outside replaces the file, and the kernel removes what was mounted over it in a directory of the host:
    # then the program is ended. Where the file alone is granted, nothing changes.
    where, file = home(tmp_path), home(tmp_path / "again") / ".config" / "credentials"
    says = where / "says"
    rules = [f"fs:write:{where}", f"fs:read:{file.parent if directory else file}"]
    copies = Keys({}, {str(file): f"token = {STAND_IN}\n".encode()})
    walled = Inspected(monkeypatch, rules, keys=copies, environment={"WATCHED": str(file), "SAYS": str(says)})

    async def run() -> Finished:
        await walled.authority()
        program = asyncio.create_task(walled.run(PYTHON, "-I", "-S", "-c", f"import os\n{LATER}"))
        while not says.exists():
            await asyncio.sleep(0.01)
        (file.parent / "new").write_text(f"token = {SECRET}\n")
        (file.parent / "new").rename(file)
        if not directory:
            Path(f"{says}-stop").touch()
        return await program

    ended = asyncio.run(run())
    if directory:
        assert ended.exit_code in (-9, 137)
    else:
        assert ended.stdout == f"token = {STAND_IN}\n\n", ended.stderr


def test_a_file_that_a_link_of_a_tool_leads_to_is_not_read(tmp_path: Path) -> None:
    where = home(tmp_path)
    (where / "link").symlink_to("other")
    free, writes = grant([f"fs:read:{where}"]), grant([f"fs:read:{where}", f"fs:write:{where}"])
    assert read_key_file(str(where / "link"), free.reach.manifest.ceiling) == b"other"
    with pytest.raises(ValueError, match="a link that a tool may have made"):
        read_key_file(str(where / "link"), writes.reach.manifest.ceiling)
    assert read_key_file(str(where / "other"), writes.reach.manifest.ceiling) == b"other"


@pytest.mark.parametrize("name", ["long", "pipe", "missing", "directory"])
def test_only_files_of_a_sensible_size_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(bytes(LARGEST_KEY_FILE + 1))
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((ValueError, OSError)):
        read_key_file(str(tmp_path / name), grant([]).reach.manifest.ceiling)


def test_a_directory_that_is_mounted_twice_has_other_names(tmp_path: Path) -> None:
    where = home(tmp_path)
    real = os.stat(where)
    device = f"{os.major(real.st_dev)}:{os.minor(real.st_dev)}"
    # The table of a machine where the directory of the test is mounted, and again at a link that stands for a mount.
    (tmp_path / "again dir").symlink_to(where)
    again = f"{tmp_path.resolve()}/again\\040dir"
    table = [f"1 0 {device} / / rw - ext4 x rw", f"2 1 {device} {where} {where} rw - ext4 x rw"]
    table += [f"3 1 {device} {where} {again} rw - ext4 x rw", "4 1 9:99 / /elsewhere rw - ext4 y rw"]
    (tmp_path / "mountinfo").write_text("\n".join(table))
    path = str(where / ".config" / "credentials")
    name = f"{tmp_path.resolve()}/again dir/.config/credentials"
    assert other_names(path, (str(tmp_path.resolve()),), str(tmp_path / "mountinfo")) == (name,)
    assert other_names(path, (str(where),), str(tmp_path / "mountinfo")) == ()


MOUNTED_TWICE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
assert not libc.unshare(0x00020000), os.strerror(ctypes.get_errno())
assert not libc.mount(b"none", b"/", None, (1 << 14) | (1 << 18), None)
assert not libc.mount(sys.argv[1].encode(), sys.argv[2].encode(), None, 4096, None)
sys.path.insert(0, sys.argv[3])
from licet.sandbox.inspection.operator_files import other_names
print(other_names(sys.argv[1] + "/.config/credentials", (sys.argv[2],)))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a directory twice")
def test_a_second_mount_is_found_in_the_table_of_this_machine(tmp_path: Path) -> None:
    where, again = home(tmp_path), tmp_path.resolve() / "again"
    again.mkdir()
    source = str(Path(operator_files.__file__).parents[3])
    command = [sys.executable, "-c", MOUNTED_TWICE, str(where), str(again), source]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Operation not permitted" in ended.stderr:
        pytest.skip("nothing can be mounted here")
    assert ended.stdout == f"('{again}/.config/credentials',)\n", ended.stderr


# What is around a key stays in place: a copy covers a path, and what is moved is at another one -----------------------

FREE: dict[str, Any] = {
    "effect": "destructive",
    "deletes": "session",
}  # programs delete and so rename without a question
MOVED = {
    "its directory": "mv .config old",
    "the one above": "mv a b",
    "the file": "mv .config/credentials old",
    "into another": "mkdir old && mv .config old",
}


def moves(where: Path) -> list[str]:
    return [f"fs:{action}:{where}" for action in ("read", "write", "delete")]


def move(where: Path, case: str) -> tuple[str, ...]:
    """A command that moves the key, and then puts something else in its place."""
    again = "mkdir -p .config; echo token = another-key-01234567 > .config/credentials"
    return ("sh", "-c", f"cd {where} && {MOVED[case]}; {again}")


def with_key(tmp: Path, case: str) -> tuple[Path, Path, Keys]:
    """Where a program may write, the directory of the key in it, and the keys."""
    where = tmp.resolve() / "place"
    where.mkdir()
    inner = home(where / "a" if case == "the one above" else where)
    return (where, inner, keys(inner)) if case == "the one above" else (inner, inner, keys(inner))


@pytest.mark.usefixtures("unrefused")
@pytest.mark.parametrize("case", MOVED)
def test_a_key_is_not_moved_to_where_the_next_program_sees_it(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, inner, copies = with_key(tmp_path, case)
    Inspected(monkeypatch, moves(where), keys=copies, **FREE).said(*move(where, case))
    assert (inner / ".config" / "credentials").read_text() == f"token = {SECRET}\n"
    assert Inspected(monkeypatch, moves(where), keys=copies, **FREE).python(thief(where)) == "[] False\n"


@pytest.mark.usefixtures("unrefused")
@pytest.mark.parametrize("case", ["its directory", "the one above", "into another"])
def test_the_move_of_a_key_works_where_its_directories_are_not_held(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, inner, copies = with_key(tmp_path, case)
    with monkeypatch.context() as without:
        without.setattr(operator_files, "kept_in_place", lambda *_: ())
        Inspected(without, moves(where), keys=copies, **FREE).said(*move(where, case))
    (inner / ".config").mkdir(parents=True, exist_ok=True)
    (inner / ".config" / "credentials").write_text("token = another-key-01234567\n")
    assert "credentials" in Inspected(monkeypatch, moves(where), keys=copies, **FREE).python(thief(where))


@pytest.mark.usefixtures("unrefused")
def test_a_second_name_of_a_key_is_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    (where / "second").mkdir()
    os.link(where / ".config" / "credentials", where / "second" / "linked")
    walled = Inspected(monkeypatch, moves(where), keys=keys(where), **FREE)
    walled.said("sh", "-c", f"cd {where} && mv second third")
    assert (where / "second" / "linked").exists()
    assert Inspected(monkeypatch, moves(where), keys=keys(where), **FREE).python(thief(where)) == "[] False\n"


@pytest.mark.usefixtures("unrefused")
def test_a_grant_through_a_link_hides_and_keeps_a_key_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, way = home(tmp_path / "real"), tmp_path.resolve() / "way" / "home"
    way.parent.symlink_to("real")
    (where / "second").mkdir()
    os.link(where / ".config" / "credentials", where / "second" / "linked")
    Inspected(monkeypatch, moves(way), keys=keys(where), **FREE).said(
        "sh", "-c", f"cd {way} && mv .config a; mv second b"
    )
    assert sorted(one.name for one in where.iterdir()) == [".config", "other", "second"]
    assert Inspected(monkeypatch, moves(way), keys=keys(where), **FREE).python(thief(way)) == "[] False\n"


@pytest.mark.parametrize("case", MOVED)
@pytest.mark.parametrize("stated", ["agent", "server"])
def test_a_program_without_the_key_does_not_move_it_either(stated: str, case: str, tmp_path: Path) -> None:
    where, inner, _ = with_key(tmp_path, case)
    file = inner / ".config" / "credentials"
    entry = StandIn(name="T", file=str(file), field="token", hosts=("met.test",))
    for held in (False, True):
        rules = moves(where) if stated == "server" else moves(where)[1:]  # who reads the file has the key
        programs = Programs("namespaces", rules, **FREE)
        if held:
            manifest = programs.grant.reach.manifest
            secret = {"file": str(file), "field": "token", "hosts": ["met.test"]}
            changed: dict[str, dict[str, Any]] = {
                "agent": {"values": {**manifest.values, "stand_ins": (entry,)}},
                "server": {"servers": {"s": {"command": ["s"], "secrets": {"T": secret}}}},
            }
            given = replace(manifest, **changed[stated])
            programs.grant.reach = replace(programs.grant.reach, manifest=given)
        before = os.stat(file).st_ino
        programs.run(*move(where, case))
        assert (file.exists() and os.stat(file).st_ino == before) is held
        if not held:
            shutil.rmtree(tmp_path / "place")
            where, inner, _ = with_key(tmp_path, case)


def test_without_namespaces_no_program_starts_that_could_move_a_key(tmp_path: Path) -> None:
    where = home(tmp_path)
    entry = StandIn(name="T", file=str(where / ".config" / "credentials"), field="token", hosts=("met.test",))
    for rules, held in ((moves(where)[1:], FREE), ([f"fs:write:{where}"], {})):
        programs = Programs("no-namespaces", rules, **held)
        assert programs.run("true").exit_code == 0
        manifest = programs.grant.reach.manifest
        given = replace(manifest, values={**manifest.values, "stand_ins": (entry,)})
        programs.grant.reach = replace(programs.grant.reach, manifest=given)
        if held:
            with pytest.raises(Refused, match="could move a file with a key"):
                programs.run("true")
        else:
            assert programs.run("true").exit_code == 0


# The authority --------------------------------------------------------------------------------------------------------

SEARCH = """
import glob
needles = [bytes.fromhex(one) for one in NEEDLES]
def has(data): return any(needle in data for needle in needles) or b"PRIVATE KEY" in data
found, tried = [], 0
for process in filter(str.isdigit, os.listdir("/proc")):
    try: maps = open(f"/proc/{process}/maps").read().splitlines()
    except OSError: continue
    if int(process) == os.getpid(): continue
    for line in maps:
        begin, end = (int(one, 16) for one in line.split()[0].split("-"))
        try:
            with open(f"/proc/{process}/mem", "rb", 0) as memory:
                memory.seek(begin)
                tried += 1
                if has(memory.read(min(end - begin, 1 << 22))): found.append(line)
        except (OSError, OverflowError): continue
for top in ("/.licet-trust", "/.licet-beneath", "/etc/ssl/certs", "/tmp", "/dev/shm"):
    for folder, _, names in os.walk(top):
        for name in names:
            try: data = open(os.path.join(folder, name), "rb").read(1 << 22)
            except OSError: continue
            tried += 1
            if has(data): found.append(os.path.join(folder, name))
for name in os.listdir("/proc/self/fd"):
    if "memfd" in os.readlink(f"/proc/self/fd/{name}") if os.path.lexists(f"/proc/self/fd/{name}") else False:
        found.append(name)
print(found, tried > 0, "memory of", os.getppid())
"""


def test_no_program_finds_the_key_of_the_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> str:
        walled = Inspected(monkeypatch)
        authority = await walled.authority()
        authority.context("met.test")
        key = authority._key
        number = key.private_numbers().private_value.to_bytes(32, "big")
        der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        assert number in der
        needles = [number.hex(), number[::-1].hex()]
        ended = await walled.run(PYTHON, "-I", "-S", "-c", f"import os\nNEEDLES = {needles}\n{SEARCH}")
        return (ended.stdout_bytes + ended.stderr_bytes).decode()

    assert asyncio.run(run()).startswith("[] True")


def test_the_search_for_a_key_would_find_it(tmp_path: Path) -> None:
    code = SEARCH.replace('"/tmp"', repr(str(tmp_path)))
    (tmp_path / "key").write_bytes(b"x" * 100 + bytes(range(32)))
    said = subprocess.run(
        [sys.executable, "-c", f"import os\nNEEDLES = ['{bytes(range(32)).hex()}']\n{code}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert str(tmp_path / "key") in said


def test_trust_cannot_be_changed_from_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
names = ["/.licet-trust/roots.pem", "/.licet-trust/new", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/new"]
for name in names:
    try: open(name, "w"); print("written", name)
    except OSError: pass
    try: os.unlink(name); print("removed", name)
    except OSError: pass
print("tried")
"""
    assert Inspected(monkeypatch).python(code) == "tried\n"


# The orders, and when there is nothing to do --------------------------------------------------------------------------


def orders_of(walled: Inspected) -> dict[str, Any]:
    """What the launcher of a program is sent."""
    found: list[dict[str, Any]] = []

    async def run() -> None:
        await walled.authority()
        command = walled.walls.around(Command(PYTHON, (PYTHON,), walled.environment, "/", b"", 1.0, 1))
        watch: Any = command.watch
        for file in watch.files:
            os.close(file)
        await watch.ended()

    import licet.sandbox.programs.walls as module

    real = module.LauncherClient
    try:
        module.LauncherClient = lambda orders, *given: found.append(orders) or real(orders, *given)  # type: ignore[misc,assignment,func-returns-value]
        asyncio.run(run())
    finally:
        module.LauncherClient = real  # type: ignore[misc]
    return found[0]


def test_orders_have_no_secret_and_each_content_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    walled = Inspected(
        monkeypatch, [f"fs:read:{where}/.config/credentials"], keys=keys(where), environment={"TOKEN": SECRET}
    )
    orders = orders_of(walled)
    text = json.dumps(orders)
    assert SECRET not in text
    assert STAND_IN in text
    assert "PRIVATE" not in text
    assert len(set(orders["mounts"]["contents"])) == len(orders["mounts"]["contents"])
    modes = {path: mode for path, _, mode in orders["mounts"]["copies"]}
    assert modes[str(where / ".config" / "credentials")] == 0o400


def test_a_program_whose_keys_were_not_read_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        with pytest.raises(SandboxUnavailable, match="were not read before its start"):
            Inspected(monkeypatch).walls.around(Command(PYTHON, (PYTHON,), {}, "/", b"", 1.0, 1))

    asyncio.run(run())


def raising(error: Exception) -> Callable[..., Awaitable[Keys]]:
    async def places(inspection: Inspection, value: Any, read_file: Any) -> Keys:
        raise error

    return places


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CannotPlace("`AWS_KEY` signs instead of travelling"), "`AWS_KEY` signs instead of travelling"),
        (CannotPlace("it has 5 characters", "AWS_KEY"), "`AWS_KEY` cannot have a stand-in: it has 5 characters"),
    ],
)
def test_a_key_that_cannot_be_placed_is_refused_with_the_reason(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    walled = Inspected(monkeypatch, places=raising(error))
    with pytest.raises(SandboxUnavailable, match=said):
        asyncio.run(walled.authority())


PLACED = {"hosts": ["met.test"]}
ENTRIES: dict[str, dict[str, Any]] = {
    "a secret": {"secret": "k", **PLACED},
    "a file that is missing": {"file": "/nowhere/.npmrc", "field": "f", **PLACED},
    "no regular file": {"file": "/dev/zero", "field": "f", **PLACED},
}


@pytest.mark.parametrize("of_server", [False, True])
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_it_is_refused_with_the_place_of_its_entry(entry: dict[str, Any], of_server: bool) -> None:
    ceiling = {"inspect": ["met.test"], "secrets": ["k"], "fs_reach": {"read": ["/"]}}
    server = {"command": ["s"], "grants": ["fs:read:*"], "inspect": ["met.test"], "secrets": {"T": "k"}}
    if of_server:
        read = Manifest.from_data({"agent": "a", "capabilities": ceiling, "servers": {"s": server}})
        manifest = replace(read, servers={"s": {**server, "secrets": {"T": entry}}})
        reach = process_reach(manifest, servers_of(manifest.servers)["s"], ())
    else:
        found = reach_of(
            with_commands(Manifest.from_data({"agent": "a", "capabilities": ceiling | {"stand_ins": {"T": entry}}})),
            COMMANDS,
        )
        assert found is not None
        reach = found

    async def short(reference: str) -> str:
        return "short"

    with pytest.raises(SandboxUnavailable, match="`T` cannot have a stand-in") as refusal:
        asyncio.run(shown.begin(inspection_of(reach), short, reach))
    assert str(refusal.value.place) == ("/servers/s/secrets/T" if of_server else "/capabilities/stand_ins/T")


def test_a_program_that_is_refused_for_it_says_the_place(tmp_path: Path) -> None:
    entry = StandIn(name="T", file=str(tmp_path / "missing"), field="f", hosts=("met.test",))
    programs = Programs("namespaces", [f"fs:read:{tmp_path}"])
    manifest = programs.grant.reach.manifest
    values = {**manifest.values, "inspect": ("met.test",), "stand_ins": (entry,)}
    given = replace(manifest, values=values, places={"stand_ins.T": Origin("licet.yaml", 7, 5)})
    programs.grant.reach = replace(programs.grant.reach, manifest=given)
    with pytest.raises(Refused) as refusal:
        programs.run("true")
    assert "`T` cannot have a stand-in" in refusal.value.explain()
    assert "(licet.yaml:7)" in refusal.value.explain()
    (tmp_path / "missing").write_text(f"f = {SECRET}\n")
    with pytest.raises(Refused) as refusal:
        programs.run("true")
    assert "in a directory that programs reach" in refusal.value.explain()
    assert "(licet.yaml:7)" in refusal.value.explain()
    assert "licet.yaml" not in str(refusal.value)


def test_files_have_no_copies_without_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    walled = Inspected(monkeypatch, [f"fs:read:{where}"], keys=keys(where))
    walled.walls._spaces = False  # type: ignore[attr-defined]
    with pytest.raises(SandboxUnavailable, match="because there are no namespaces"):
        walled.said(PYTHON, "-c", "")
    assert without_namespaces().namespaces is False


def test_walls_without_inspection_take_no_secrets() -> None:
    plain = ProgramWalls().walls(grant(["process:exec:*"]))
    assert not isinstance(plain, TakesSecrets)


PLAIN = """
import asyncio, os, sys
from guard.grants import grant
from licet.guard.execution import Command
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
walls = ProgramWalls().walls(grant(["process:exec:*"]))
script = ("sh", "-c", "ls -d /.licet*; env | grep -c CERT")
command = Command(os.path.realpath("/bin/sh"), script, {"PATH": "/usr/bin:/bin"}, "/", b"", 60.0, 9999)
ended = asyncio.run(LocalProcesses("/usr/bin:/bin").run(command, walls))
print(ended.stdout.split(), [name for name in sys.modules if "inspection" in name and "sandbox" in name])
"""


def test_without_inspection_nothing_is_imported_and_nothing_is_shown() -> None:
    tests = str(Path(__file__).parents[2])
    ended = subprocess.run(
        [sys.executable, "-c", PLAIN],
        env={**os.environ, "PYTHONPATH": tests},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "['0'] []\n", ended.stderr
