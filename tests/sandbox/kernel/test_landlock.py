"""What a ruleset allows and refuses, by really doing it behind one."""

import socket
from pathlib import Path

import pytest

from licet.sandbox.kernel import landlock
from licet.sandbox.kernel.landlock import DELETE, EXECUTE, READ, READ_FILE, WRITE
from sandbox.walled import needs_abi, needs_landlock, run

pytestmark = needs_landlock

# Each way to touch a file: what it is called, and how it is done in `d`, a directory with `file`, `sub/` and `empty/`.
WAYS = {
    "list": "os.listdir(d)",
    "read": "open(d + '/file').read()",
    "stat": "os.stat(d + '/file') and None",
    "append": "open(d + '/file', 'a').write('x')",
    "cut": "os.truncate(d + '/file', 0)",
    "open to cut": "os.close(os.open(d + '/file', os.O_RDONLY | os.O_TRUNC))",
    "create": "open(d + '/new', 'x').close()",
    "make directory": "os.mkdir(d + '/newdir')",
    "make symlink": "os.symlink('file', d + '/link')",
    "make hard link": "os.link(d + '/file', d + '/hard')",
    "make fifo": "os.mkfifo(d + '/fifo')",
    "make socket": "raw('mknodat', -100, d + '/sock', 0o140600, 0)",
    "delete": "os.unlink(d + '/file')",
    "delete directory": "os.rmdir(d + '/empty')",
    "rename": "os.rename(d + '/file', d + '/other')",
    "rename across": "os.rename(d + '/file', d + '/sub/file')",
    "execute": "os.execv(d + '/program', ['program'])",
}
DONE: dict[str, object] = dict.fromkeys(WAYS) | {
    "list": ["empty", "file", "program", "sub"], "read": "text", "append": 1, "make socket": 0, "execute": "RAN",
}  # fmt: skip
CODE = """
walls()
def each(way):
    def do():
        d = spec["given"]["dirs"][way]
        # Its output is the answer of a program that was really started.
        if way == "execute":
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                os.dup2(writing, 1)
                try:
                    eval(spec["given"]["ways"][way])
                except OSError as wrong:
                    os.write(1, errno.errorcode[wrong.errno].encode())
                os._exit(0)
            os.waitpid(child, 0)
            return os.read(reading, 100).decode().strip()
        value = eval(spec["given"]["ways"][way])
        return sorted(value) if isinstance(value, list) else value
    return attempt(do)
answer = {way: each(way) for way in spec["given"]["ways"]}
"""
# Programs need their loader and libraries, which are no part of what is tested.
LIBRARIES = [(path, EXECUTE | READ) for path in ("/lib", "/lib64", "/usr/lib", "/usr/bin", "/bin")]


def made(where: Path) -> dict[str, str]:
    """A directory for each way, so that none sees what another did."""
    dirs = {}
    for way in WAYS:
        directory = where / way
        directory.mkdir()
        (directory / "file").write_text("text")
        (directory / "sub").mkdir()
        (directory / "empty").mkdir()
        (directory / "program").write_bytes(Path("/bin/echo").read_bytes())
        (directory / "program").chmod(0o755)
        dirs[way] = str(directory)
    return dirs


def outcomes(where: Path, access: int | None) -> dict[str, object]:
    ways = WAYS | {"execute": "os.execv(d + '/program', ['program', 'RAN'])"}
    rules = None if access is None else [(str(where), access), *LIBRARIES]
    found: dict[str, object] = run(CODE, rules=rules, given={"dirs": made(where), "ways": ways})
    return found


READS = {"list", "read", "stat"}
WRITES = {"append", "cut", "create", "make directory", "make symlink", "make hard link", "stat"}
DELETES = {"delete", "delete directory"}


@pytest.mark.parametrize(
    ("access", "works"),
    [
        (None, set(WAYS)),
        (0, {"stat"}),
        (READ, READS),
        (READ_FILE, {"read", "stat"}),
        (EXECUTE, {"execute", "read", "stat"}),
        (WRITE, WRITES),
        (READ | WRITE, READS | WRITES | {"open to cut"}),
        (DELETE, DELETES | {"stat"}),
        (READ | WRITE | DELETE, READS | WRITES | DELETES | {"open to cut", "rename", "rename across"}),
    ],
    ids=["no walls", "nothing", "read", "read file", "execute", "write", "read+write", "delete", "read+write+delete"],
)
@needs_abi(3)
@pytest.mark.sampled(5)
def test_each_right_allows_its_own_ways_alone(tmp_path: Path, access: int | None, works: set[str]) -> None:
    found = outcomes(tmp_path, access)
    if access is None:
        found["open to cut"] = None
    assert {way for way, outcome in found.items() if outcome == DONE[way]} == works
    assert {outcome for way, outcome in found.items() if way not in works} <= {"EACCES", "EXDEV"}


def test_outside_of_the_rules_nothing_is_read_or_written(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("s")
    code = """
walls()
o = spec["given"]
answer = [attempt(lambda: open(o + "/secret").read()), attempt(lambda: open(o + "/new", "w")),
          attempt(lambda: open("/proc/self/environ").read()), attempt(lambda: os.listdir(o)),
          attempt(lambda: os.rename(o + "/secret", o + "/t"))]
"""
    assert run(code, rules=[(str(inside), READ | WRITE | DELETE)], given=str(outside)) == ["EACCES"] * 5
    assert (outside / "secret").read_text() == "s"


def test_a_rule_for_one_file_does_not_reach_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("m")
    (tmp_path / "theirs").write_text("t")
    code = "walls()\nanswer = [attempt(lambda n=n: open(spec['given'] + n).read()) for n in ('/mine', '/theirs')]"
    assert run(code, rules=[(str(tmp_path / "mine"), READ | WRITE)], given=str(tmp_path)) == ["m", "EACCES"]


def test_a_link_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    code = "walls()\nanswer = attempt(lambda: open(spec['given']).read())"
    link = str(tmp_path / "in" / "link")
    assert run(code, rules=[(str(tmp_path / "in"), READ)], given=link) == "EACCES"
    assert run(code, given=link) == "s"


def test_a_path_that_is_not_there_allows_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "file").write_text("b")
    # It appears after the rules are made and before they hold: the name was allowed, and means nothing.
    code = """
d = spec["given"]
ruleset = landlock.ruleset(landlock.PathRule(d + path, access) for path, access in spec["later"])
os.mkdir(d + "/missing")
open(d + "/missing/file", "w").write("m")
hardening.no_new_privs()
landlock.restrict(ruleset)
answer = [attempt(lambda: open(d + "/beside/file").read()), attempt(lambda: open(d + "/missing/file").read()),
          attempt(lambda: os.listdir(d + "/missing")), attempt(lambda: open(d + "/missing/new", "w"))]
"""
    later = [("/missing", READ | WRITE | DELETE), ("/beside/file/below", READ), ("/beside", READ)]
    code = f"spec['later'] = {later!r}\n{code}"
    assert run(code, given=str(tmp_path)) == ["b", "EACCES", "EACCES", "EACCES"]


def test_a_hard_link_cannot_move_a_file_to_where_more_is_allowed(tmp_path: Path) -> None:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    (tmp_path / "read" / "file").write_text("text")
    code = "walls()\nd = spec['given']\nanswer = attempt(lambda: os.link(d + '/read/file', d + '/write/file'))"
    rules = [(str(tmp_path / "read"), READ | DELETE), (str(tmp_path / "write"), READ | WRITE | DELETE)]
    assert run(code, rules=rules, given=str(tmp_path)) == "EXDEV"


@needs_abi(4)
@pytest.mark.parametrize("ports", ["none", "this", "unhandled"])
def test_tcp_reaches_the_ports_that_are_named(ports: str) -> None:
    code = """
walls()
def connect():
    with socket.socket() as s:
        s.connect(("127.0.0.1", spec["given"]))
def bind():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
answer = [attempt(connect), attempt(bind)]
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        allowed = {"none": [], "this": [port], "unhandled": None}[ports]
        expected = {"none": ["EACCES", "EACCES"], "this": [None, "EACCES"], "unhandled": [None, None]}[ports]
        assert run(code, rules=[], tcp_ports=allowed, given=port) == expected


@needs_abi(6)
def test_signals_and_abstract_sockets_stay_inside() -> None:
    code = """
server = socket.socket(socket.AF_UNIX); server.bind(""); server.listen()
name = server.getsockname()
def tries():
    def connect():
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(name)
    return [attempt(lambda: os.kill(OUTSIDE, 0)), attempt(connect), attempt(lambda: os.kill(os.getpid(), 0))]
free = apart(tries)
def behind():
    walls()
    return tries()
answer = [free, apart(behind)]
"""
    assert run(code, rules=[]) == [[None, None, None], ["EPERM", "EPERM", None]]


def test_rules_only_narrow(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    code = """
walls()
first = attempt(lambda: open(spec["given"] + "/file").read())
landlock.restrict(landlock.ruleset([]))
again = attempt(lambda: landlock.restrict(landlock.ruleset([landlock.PathRule("/", landlock.READ)])))
answer = [first, again, attempt(lambda: open(spec["given"] + "/file").read())]
"""
    # The root cannot even be named any more by the third; what counts is that it opens nothing.
    first, _, last = run(code, rules=[(str(tmp_path), READ)], given=str(tmp_path))
    assert (first, last) == ("text", "EACCES")


@pytest.mark.parametrize(
    ("version", "files", "tcp", "scope", "size"),
    [(1, 0x1FFF, 0, 0, 8), (2, 0x3FFF, 0, 0, 8), (3, 0x7FFF, 0, 0, 8), (4, 0x7FFF, 3, 0, 16), (5, 0xFFFF, 3, 0, 16),
     (6, 0xFFFF, 3, 3, 24), (7, 0xFFFF, 3, 3, 24)],
)  # fmt: skip
def test_everything_that_a_version_knows_is_refused_by_default(
    version: int, files: int, tcp: int, scope: int, size: int
) -> None:
    handled = landlock.handled(version)
    assert (*handled, len(handled.packed())) == (files, tcp, scope, size)
