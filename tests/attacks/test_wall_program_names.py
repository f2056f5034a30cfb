"""Without namespaces a supervisor opens and makes what lies beside closed names: a program tries to be led to these."""

import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from attacks.programs import until
from attacks.walled_programs import CANARY, Programs, needs_walls, without_namespaces

pytestmark = [
    needs_walls,
    pytest.mark.skipif(not without_namespaces().supervised, reason="no calls can be supervised here"),
]
each_landlock = pytest.mark.parametrize("landlock", [1, None], ids=["Landlock 1", "this Landlock"])

# What the policy closes in a directory that may be read, written and deleted from:
# - `.env`, which is there, to everything
# - `lock`, which is missing, to writing
# - `hooks`, a directory, to writing, and `later/tasks`, of which neither is there
CLOSED = ("fs:*:{at}/.env", "fs:write:{at}/lock", "fs:write:{at}/hooks", "fs:write:{at}/later/tasks")
MOVES = """
import ctypes
libc = ctypes.CDLL(None)
def exchange(a, b): return libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
"""
ATTACKS = {
    "writing": "open('.env', 'w')",
    "writing to the end": "open('.env', 'a').write('x')",
    "cutting": "os.truncate('.env', 0)",
    "cutting while reading": "os.open('.env', os.O_RDONLY | os.O_TRUNC)",
    "reading": "print(open('.env').read())",
    "reading by a full path": "print(open(os.getcwd() + '/.env').read())",
    "reading by dots": "os.mkdir('d'); print(open('d/../.env').read())",
    "reading by a directory": "d = os.open('.', os.O_RDONLY); print(os.read(os.open('.env', 0, dir_fd=d), 99))",
    "reading by a mere path": "d = os.open('.', os.O_PATH); print(os.read(os.open('.env', 0, dir_fd=d), 99))",
    "reading by a link": "os.symlink('.env', 's'); print(open('s').read())",
    "reading by a link to its directory": "os.symlink('.', 's'); print(open('s/.env').read())",
    "reading by a second name": "os.link('.env', 'n'); print(open('n').read())",
    "reading by another name": "os.rename('.env', 'n'); print(open('n').read())",
    "reading in a directory that was moved": "os.chdir('..'); os.rename('at', 'on'); print(open('on/.env').read())",
    "reading by an exchange": f"{MOVES}open('n', 'w').close(); exchange('n', '.env'); print(open('n').read())",
    "reading by the root in /proc": "print(open('/proc/self/root' + os.getcwd() + '/.env').read())",
    "reading by the directory in /proc": "print(open('/proc/self/cwd/.env').read())",
    "reading by an open file in /proc": "f = os.open('.env', os.O_PATH); print(open(f'/proc/self/fd/{f}').read())",
    "removing": "os.unlink('.env')",
    "making": "open('lock', 'w').write('x')",
    "making alone": "os.close(os.open('lock', os.O_CREAT | os.O_EXCL | os.O_WRONLY))",
    "making by a full path": "open(os.getcwd() + '/lock', 'w').write('x')",
    "making in capitals": "open('LOCK', 'w').write('x'); os.rename('LOCK', 'lock')",
    "making a directory": "os.mkdir('lock')",
    "making a link": "os.symlink('/etc', 'lock')",
    "making a pipe": "os.mkfifo('lock')",
    "making a socket": "socket.socket(socket.AF_UNIX).bind('lock')",
    "making a second name": "open('n', 'w').close(); os.link('n', 'lock')",
    "moving a file there": "open('n', 'w').close(); os.rename('n', 'lock')",
    "moving a directory there": "os.mkdir('d'); os.rename('d', 'lock')",
    "exchanging it": f"{MOVES}open('n', 'w').close(); exchange('n', 'hooks')",
    "making by a link that leads there": "os.symlink('lock', 's'); open('s', 'w').write('x')",
    "making without a name": f"""{MOVES}
f = os.open('.', os.O_TMPFILE | os.O_RDWR)
libc.linkat(-100, b'/proc/self/fd/%d' % f, -100, b'lock', 0x400)
""",
    "making below": "open('hooks/commit', 'w').write('x')",
    "making below by a link": "os.symlink('hooks', 's'); open('s/commit', 'w').write('x')",
    "making below by a directory": "os.close(os.open('commit', os.O_CREAT | 1, dir_fd=os.open('hooks', 0)))",
    "changing below": "open('hooks/old', 'w').write('x')",
    "its mode below": "os.chmod('hooks/old', 0o777)",
    "moving the directory": "os.rename('hooks', 'n'); os.mkdir('hooks'); open('hooks/commit', 'w').write('x')",
    "removing below": "os.unlink('hooks/old')",
    "making what is to be above it": "os.mkdir('later'); open('later/tasks', 'w').write('x')",
    "moving what is above it": "os.mkdir('d'); open('d/tasks', 'w').write('x'); os.rename('d', 'later')",
    "linking what is above it": "os.mkdir('d'); open('d/tasks', 'w').write('x'); os.symlink('d', 'later')",
    "moving it back": "os.mkdir('later'); os.rename('later', 'd'); open('d/tasks', 'w'); os.rename('d', 'later')",
    "from a child": "os.fork() or (open('lock', 'w').write('x'), os._exit(0)); os.wait()",
    "after it restricted itself": """
import ctypes, struct
libc = ctypes.CDLL(None)
rules = libc.syscall(444, struct.pack('=QQQ', 0, 0, 1), 24, 0)
libc.prctl(38, 1, 0, 0, 0); libc.syscall(446, rules, 0)
open('lock', 'w').write('x')
""",
}


def world(at: Path) -> Path:
    (at / "hooks").mkdir(parents=True)
    (at / ".env").write_text(CANARY)
    (at / "hooks" / "old").write_text("old")
    (at / "hooks" / "old").chmod(0o644)
    (at / "file").write_text("mine")
    return at


def closed_state(at: Path) -> object:
    env, old = at / ".env", at / "hooks" / "old"
    return (
        env.read_text() if env.is_file() else None,
        env.is_file() and env.stat().st_nlink,
        old.read_text() if old.is_file() else None,
        old.is_file() and oct(old.stat().st_mode),
        [os.path.lexists(at / name) for name in ("lock", "hooks/commit", "later/tasks")],
    )


def programs(kind: str, at: Path, landlock: int | None = None) -> Programs:
    rules = [f"fs:{action}:{at}" for action in ("read", "write", "delete")]
    closed = [rule.format(at=at) for rule in CLOSED]
    return Programs(kind, rules, deny=closed, deletes="session", effect="full", landlock=landlock, seconds=60.0)


@each_landlock
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.sampled(8)
def test_ways_to_a_closed_name(name: str, landlock: int | None, tmp_path: Path) -> None:
    code = f"os.chdir(sys.argv[1])\n{ATTACKS[name]}"
    at = world(tmp_path.resolve() / "walled" / "at")
    before = closed_state(at)
    said = programs("no-namespaces", at, landlock).python(code, str(at))
    assert closed_state(at) == before, said
    assert CANARY not in said
    if landlock is None and "restricted" not in name:
        open_at = world(tmp_path.resolve() / "open" / "at")
        said = programs("open", open_at).python(code, str(open_at))
        there = open_at if open_at.exists() else open_at.with_name("on")
        assert closed_state(there) != before or CANARY in said, said


WORK = """
os.chdir(sys.argv[1])
import shutil, stat, tempfile
os.umask(0o027)
with open('new', 'w') as file: file.write('one')
assert open('new').read() == 'one' and stat.S_IMODE(os.stat('new').st_mode) == 0o640
with open('new', 'a') as file: file.write(' two')
with open('new', 'r+') as file: file.truncate(3)
os.truncate('new', 2)
assert sorted(os.listdir('.')) == ['.env', 'file', 'hooks', 'new']
os.makedirs('d/e/f', 0o755)
with open('d/e/f/g', 'x') as file: file.write('deep')
try:
    open('d/e/f/g', 'x')
except FileExistsError:
    print('there')
os.rename('d/e/f/g', 'moved' if sys.argv[2] != '1' else 'd/e/f/moved')
with tempfile.NamedTemporaryFile('w', dir='.', delete=False) as file: file.write('swap')
os.replace(file.name, 'file')
assert open('file').read() == 'swap'
os.symlink('file', 's'); assert open('s').read() == 'swap'
with open('s', 'w') as through: through.write('through')
os.link('file', 'second'); os.unlink('second')
os.mkfifo('pipe'); os.unlink('pipe')
os.chmod('new', 0o755); os.utime('new', (1, 1))
shutil.copytree('d', 'copied'); shutil.rmtree('d'); shutil.rmtree('copied')
os.mkdir('later'); open('later/other', 'w').close()
d = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
os.close(os.open('by', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=d))
os.rename('by', 'by2', src_dir_fd=d, dst_dir_fd=d); os.unlink('by2', dir_fd=d)
os.mkdir('x', dir_fd=d); os.rmdir('x', dir_fd=d)
print(open('hooks/old').read())
import subprocess
subprocess.run(['sh', '-c', 'echo a > sh1; echo b >> sh1; cat sh1 > sh2; rm sh1; mv sh2 sh3'], check=True)
print('DONE')
"""


@each_landlock
def test_work_beside_closed_names(landlock: int | None, tmp_path: Path) -> None:
    at = world(tmp_path.resolve() / "at")
    said = programs("no-namespaces", at, landlock).python(WORK, str(at), str(landlock))
    assert said == "there\nold\nDONE\n"
    assert closed_state(at) == closed_state(world(tmp_path.resolve() / "other"))


EXCHANGED = """
os.chdir(sys.argv[1])
import ctypes, threading
libc = ctypes.CDLL(None)
os.mkdir('own'); open('own/old', 'w').close()
os.symlink('own', 'one'); os.symlink('hooks', 'two')
def exchange():
    while True:
        libc.renameat2(-100, b'one', -100, b'two', 2)
threading.Thread(target=exchange, daemon=True).start()
for attempt in range(int(sys.argv[2])):
    try:
        with open('one/old', 'w') as file: file.write('x')
        open('one/commit', 'w').close()
    except OSError:
        pass
os._exit(0)
"""


def test_a_race_for_what_is_closed(tmp_path: Path) -> None:
    for kind, attempts in (("open", "5000"), ("no-namespaces", "400")):
        at = world(tmp_path.resolve() / kind)
        before = closed_state(at)
        programs(kind, at).python(EXCHANGED, str(at), attempts)
        assert (closed_state(at) == before) is (kind != "open")


WAITING = """
os.chdir(sys.argv[1])
open('ready', 'w').close()
while not os.path.exists('go'): pass
for name in ('moved', '.env'):
    try:
        print(open(name).read())
    except OSError as error:
        print(type(error).__name__)
try:
    open('moved', 'w')
except OSError as error:
    print(type(error).__name__)
"""


def test_a_closed_file_that_somebody_outside_moves_stays_closed(tmp_path: Path) -> None:
    at, said = world(tmp_path.resolve() / "at"), list[str]()
    walled = programs("no-namespaces", at)
    running = threading.Thread(target=lambda: said.append(walled.python(WAITING, str(at))))
    running.start()
    until((at / "ready").exists)
    (at / ".env").rename(at / "moved")
    (at / ".env").write_text(CANARY + " anew")
    (at / "go").touch()
    running.join()
    assert said == ["PermissionError\n" * 3]
    assert (at / "moved").read_text() == CANARY


def test_what_is_made_counts(tmp_path: Path) -> None:
    at = world(tmp_path.resolve() / "at")
    walled = programs("no-namespaces", at)
    manifest = walled.grant.reach.manifest
    walled.grant.reach = replace(walled.grant.reach, manifest=replace(manifest, limits={"written_paths": 4}))
    line = f"cd {at}; for i in 1 2 3 4 5 6; do echo x > n$i || exit 7; done"
    ended = walled.run("sh", "-c", line)
    assert (ended.exit_code, ended.reason) == (2, "LIMIT_PATHS") or ended.exit_code == 7
    assert len([path for path in at.iterdir() if path.name.startswith("n")]) == 4
