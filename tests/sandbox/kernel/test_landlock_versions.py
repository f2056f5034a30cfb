"""What each version of Landlock leaves open, by really doing it behind such a ruleset, and what closes it.

A newer kernel takes the ruleset of an older version, and then refuses no more than the older kernel would.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import Programs, both_kinds, place
from licet.sandbox.kernel import landlock
from licet.sandbox.kernel.landlock import DELETE, READ, WRITE
from licet.sandbox.probe import Attempted, Support
from sandbox.walled import needs_filter, needs_landlock, run

pytestmark = [needs_landlock, needs_filter]

VERSIONS = range(1, 8)
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
FILES = (1 << 13) - 1

HANDLED = {
    1: (FILES, 0, 0),
    2: (FILES | REFER, 0, 0),
    3: (FILES | REFER | TRUNCATE, 0, 0),
    4: (FILES | REFER | TRUNCATE, 0b11, 0),
    5: (FILES | REFER | TRUNCATE | IOCTL_DEV, 0b11, 0),
    6: (FILES | REFER | TRUNCATE | IOCTL_DEV, 0b11, 0b11),
    7: (FILES | REFER | TRUNCATE | IOCTL_DEV, 0b11, 0b11),  # it added how refusals are logged
}


def here(version: int) -> int:
    """Skip a version that is newer than this kernel's."""
    if landlock.abi() < version:
        pytest.skip(f"Landlock {version} is not in this kernel")
    return version


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_refuses_all_that_it_can(version: int) -> None:
    assert tuple(landlock.handled(version)) == HANDLED[version]
    words = 1 + bool(HANDLED[version][1]) + bool(HANDLED[version][2])
    assert len(landlock.handled(version).packed()) == 8 * words  # what that version of the kernel reads


@pytest.mark.parametrize("version", [0, -1])
def test_without_landlock_there_is_no_ruleset(version: int) -> None:
    with pytest.raises(OSError, match="this kernel has no Landlock"):
        landlock.ruleset([], version=version)


# What is tried with `d`, a directory of which nothing is granted but to read it: the version that refuses it by itself.
ATTACKS = {
    "write": ("open(d + '/file', 'a')", 1),
    "create": ("os.mknod(d + '/new')", 1),
    "delete": ("os.unlink(d + '/empty')", 1),
    "make a link": ("os.symlink('/', d + '/link')", 1),
    "cut by name": ("os.truncate(d + '/file', 0)", 3),
    "cut while reading": ("os.close(os.open(d + '/file', os.O_RDONLY | os.O_TRUNC))", 3),
    "connect": ("socket.socket().connect(('127.0.0.1', g['port']))", 4),
    "listen": ("socket.create_server(('127.0.0.1', 0))", 4),
    "resize a terminal": (
        "__import__('fcntl').ioctl(os.open(g['tty'], os.O_RDONLY | os.O_NOCTTY), 0x5414, bytes(8))",
        5,
    ),
    "signal": ("os.kill(OUTSIDE_PARENT, 0)", 6),
    "talk to an abstract socket": ("socket.socket(socket.AF_UNIX).connect(chr(0) + g['name'])", 6),
}
CODE = """
g = spec["given"]
d, OUTSIDE_PARENT = g["d"], os.getppid()
socket.socket().close()
def each(code):
    walls()
    return attempt(lambda: eval(code))
answer = {name: apart(lambda code=code: each(code)) for name, code in g["attacks"].items()}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What is attacked."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").touch()
    with ExitStack() as closed:
        server = closed.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = closed.enter_context(socket.socket(socket.AF_UNIX))
        name = f"licet-{os.getpid()}-{id(unix):x}"
        unix.bind(f"\0{name}")
        unix.listen()
        near, far = os.openpty()
        closed.callback(os.close, near)
        closed.callback(os.close, far)
        attacks = {name: code for name, (code, _) in ATTACKS.items()}
        port = server.getsockname()[1]
        yield {"d": str(tmp_path), "port": port, "name": name, "tty": os.ttyname(far), "attacks": attacks}


def stopped(outcomes: dict[str, Any]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome in ("EACCES", "EPERM", "ENOTTY", "EXDEV")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.sampled(3)
def test_what_a_version_leaves_open_the_filter_closes(version: int, world: dict[str, Any]) -> None:
    rules = [(world["d"], READ), (world["tty"], READ)]
    alone = run(CODE, rules=rules, version=here(version), given=world)
    assert stopped(alone) == {name for name, (_, since) in ATTACKS.items() if version >= since}, alone
    both = run(CODE, rules=rules, version=version, filtered={"abi": version}, own_pid=True, given=world)
    assert stopped(both) == set(ATTACKS), both
    assert Path(world["d"], "empty").exists()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.sampled(4)
def test_moving_to_another_directory_is_never_allowed_by_too_little(version: int, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "file").write_text("text")
    code = "walls()\nd = spec['given']\nanswer = attempt(lambda: os.rename(d + '/a/file', d + '/b/file'))"
    rules = [(str(tmp_path), READ | WRITE | DELETE)]
    assert run(code, rules=rules, version=here(version), given=str(tmp_path)) == ("EXDEV" if version == 1 else None)


PROGRAM = """
def tried(act):
    try:
        act()
    except OSError:
        return 0
    return 1
out, port, name = sys.argv[1] + "/secret", int(sys.argv[2]), sys.argv[3]
print(tried(lambda: os.truncate(out, 0)), tried(lambda: os.open(out, os.O_RDONLY | os.O_TRUNC)),
      tried(lambda: socket.socket().connect(("127.0.0.1", port))), tried(lambda: os.kill(int(sys.argv[4]), 0)),
      tried(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + name)),
      tried(lambda: os.rename(out, sys.argv[5] + "/moved")), tried(lambda: os.link(out, sys.argv[5] + "/linked")))
"""


@both_kinds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.sampled(5)
def test_programs_are_held_by_every_version(
    kind: str, version: int, world: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    where = place(tmp_path_factory.mktemp("programs"))
    rules = [f"fs:{action}:{where}/in" for action in ("read", "write", "delete")]
    programs = Programs(kind, rules, effect="destructive", landlock=here(version))
    words = (f"{where}/out", str(world["port"]), world["name"], str(os.getpid()), f"{where}/in")
    assert programs.python(PROGRAM, *words) == "0 0 0 0 0 0 0\n"
    assert (where / "out" / "secret").read_text() == "CANARY"
    layers = programs.grant.programs
    assert layers is not None
    assert f"landlock-{version}" in layers.in_force


@both_kinds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.sampled(5)
def test_programs_work_with_every_version(kind: str, version: int, tmp_path: Path) -> None:
    where = place(tmp_path) / "in"
    rules = [f"fs:{action}:{where}" for action in ("read", "write", "delete")]
    programs = Programs(kind, rules, effect="destructive", landlock=here(version))
    line = f"cd {where} && echo new > file && cat file && rm file && sh -c 'exit 3' || echo $?"
    assert programs.run("sh", "-c", line).stdout_bytes == b"new\n3\n"


@pytest.mark.parametrize("level", ["restricted", "isolated"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_keeps_every_level_if_it_was_seen_to_hold(version: int, level: Any) -> None:
    walls = ("landlock", "seccomp", "hardening")
    holds = Support(version, tuple(Attempted(wall, "x", "holds") for wall in walls))
    assert (holds.keeps(level), holds.layers(level)[0]) == (True, f"landlock-{version}")
    fails = Support(
        version, tuple(Attempted(wall, "x", "does not hold" if wall == "landlock" else "holds") for wall in walls)
    )
    assert (fails.keeps(level), fails.missing(level)) == (False, ("landlock: does not hold (tried to x)",))
