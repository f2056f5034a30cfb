"""Programs try to remove what was there before them, though nobody has approved deletes."""

import os
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import Programs, both_kinds, needs_namespaces, open_programs
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decision import CapabilityDenied
from licet.sandbox.kernel import births
from licet.sandbox.limits import MOST_REFUSED_DELETES

pytestmark = needs_namespaces

RAW = "import ctypes\nraw = ctypes.CDLL(None, use_errno=True)\nraw.syscall.restype = ctypes.c_long\n"
NUMBERS = {  # of x86_64 and aarch64
    "unlinkat": (263, 35),
    "renameat2": (316, 276),
    "io_uring_setup": (425, 425),
}


def number(name: str) -> int:
    return NUMBERS[name][os.uname().machine == "aarch64"]


# Each removes `file`, which was there before, or the empty directory `dir`.
REMOVALS = {
    "unlink": "os.unlink('file')",
    "by a whole path": "os.unlink(os.path.abspath('file'))",
    "through an open directory": "os.unlink('file', dir_fd=os.open('.', os.O_PATH))",
    "through /proc/self/cwd": "os.unlink('/proc/self/cwd/file')",
    "through /proc/self/fd": "os.unlink('/proc/self/fd/%d/file' % os.open('.', os.O_RDONLY))",
    "through /dev/fd": "os.unlink('/dev/fd/%d/file' % os.open('.', os.O_RDONLY))",
    "through a link on the way": "os.symlink('.', 'here'); os.unlink('here/file')",
    "through dots": "os.mkdir('new'); os.unlink('new/.././file')",
    "from another directory": "os.mkdir('new'); os.chdir('new'); os.unlink('../file')",
    "after its times were set": "os.utime('file', (2**31, 2**31)); os.unlink('file')",
    "after its mode was set": "os.chmod('file', 0o600); os.unlink('file')",
    "after it was written": "open('file', 'a').write('x'); os.unlink('file')",
    "after it was moved": "os.rename('file', 'moved'); os.unlink('moved')",
    "after it was moved into what is new": "os.mkdir('new'); os.rename('file', 'new/file'); os.unlink('new/file')",
    "after it was exchanged with what is new": (
        f"{RAW}open('new', 'w')\n"
        f"assert raw.syscall({number('renameat2')}, -100, b'file', -100, b'new', 2) == 0\n"
        "os.unlink('new')"
    ),
    "in a thread": (
        "import threading\nt = threading.Thread(target=os.unlink, args=('file',))\nt.start(); t.join()\n"
        "assert not os.path.exists('file')"
    ),
    "in a child that has moved on": ("os.system('cd dir && rm -f ../file'); assert not os.path.exists('file')"),
    "by a raw call": f"{RAW}assert raw.syscall({number('unlinkat')}, -100, b'file', 0) == 0",
    "an empty directory": "os.rmdir('dir')",
    "an empty directory with a slash": "os.rmdir('dir/')",
    "an empty directory by unlinkat": f"{RAW}assert raw.syscall({number('unlinkat')}, -100, b'dir', 0x200) == 0",
    "all of a tree": "import shutil\nos.chdir('..'); shutil.rmtree('in/dir')",
    "while the path changes": (
        f"{RAW}import threading, time\n"
        "path, done = ctypes.create_string_buffer(b'none', 8), []\n"
        "def change():\n"
        "    while not done:\n"
        "        ctypes.memmove(path, b'file', 5); ctypes.memmove(path, b'none', 5)\n"
        "thread = threading.Thread(target=change); thread.start()\n"
        "for _ in range(3000):\n"
        "    open('none', 'a').close()\n"
        f"    raw.syscall({number('unlinkat')}, -100, path, 0)\n"
        "done.append(1); thread.join()\n"
        "assert not os.path.exists('file')"
    ),
}


def project(tmp: Path) -> Path:
    """A directory `in` with a file and an empty directory that were there before."""
    where = tmp.resolve() / "in"
    (where / "dir").mkdir(parents=True)
    (where / "file").write_text("old\n")
    return where


def held(where: Path) -> list[str]:
    return [f"fs:{action}:{where}" for action in ("read", "write", "delete")]


def run(
    where: Path, code: str, *, deletes: str = "call", kind: str = "namespaces", **given: Any
) -> tuple[str, Programs]:
    programs = Programs(kind, held(where), effect="full", deletes=deletes, **given)
    return programs.python(f"{code}\nprint('done')", cwd=str(where)), programs


def names(where: Path) -> set[str]:
    """Which of the two are still there: the file by what is in it."""
    files = {"file" for path in where.rglob("*") if path.is_file() and path.read_text()[:3] == "old"}
    return files | ({"dir"} if (where / "dir").is_dir() else set())


@both_kinds
@pytest.mark.parametrize("code", REMOVALS.values(), ids=REMOVALS.keys())
@pytest.mark.sampled(6)
def test_what_was_there_before_stays(kind: str, code: str, tmp_path: Path) -> None:
    approved, judged = project(tmp_path / "a"), project(tmp_path / "b")
    said, _ = run(approved, code, deletes="session", kind=kind)
    assert (said, names(approved) < {"file", "dir"}) == ("done\n", True)
    said, programs = run(judged, code, kind=kind)
    assert "done" not in said
    assert names(judged) == {"file", "dir"}
    refused = [event for event in programs.grant.events if isinstance(event, CapabilityDenied)]
    assert [event.reason for event in refused[:1]] == ["APPROVAL_REQUIRED"]
    assert refused[0].capability.startswith(f"fs:delete:{judged}/")


OWN = {
    "a file": "open('new', 'w'); os.unlink('new')",
    "a lock file that is moved": "open('l', 'x'); os.rename('l', 'm'); os.unlink('m')",
    "a file that has replaced an old one": (
        "open('l', 'x'); os.replace('l', 'file'); os.unlink('file'); open('file', 'w').write('old')"
    ),
    "a link to an old file": "os.symlink('file', 'new'); os.unlink('new')",
    "a second name of a new file": "open('a', 'w'); os.link('a', 'b'); os.unlink('a'); os.unlink('b')",
    "a named pipe": "os.mkfifo('new'); os.unlink('new')",
    "a socket": "socket.socket(socket.AF_UNIX).bind('new'); os.unlink('new')",
    "a tree": "import shutil\nos.makedirs('a/b/c'); open('a/b/c/f', 'w'); shutil.rmtree('a')",
    "what a child has made": "os.system('mkdir -p x/y; touch x/y/z'); import shutil; shutil.rmtree('x')",
    "in scratch": "import tempfile\nwith tempfile.TemporaryDirectory() as d: open(d + '/f', 'w')",
    "in shared memory": "open('/dev/shm/f', 'w'); os.unlink('/dev/shm/f')",
    "a name of 255 bytes, below many": "p = '/'.join(['d' * 200] * 15); os.makedirs(p); os.rmdir(p)",
    "a name that is no text": "open(b'\\xff\\n', 'w'); os.unlink(b'\\xff\\n')",
    "at the end of a page": (
        f"{RAW}import mmap\nopen('new', 'w')\nm = mmap.mmap(-1, 2 * 4096)\n"
        "m[4092:4096] = b'new\\0'\n"
        "a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "assert raw.mprotect(ctypes.c_void_p(a + 4096), 4096, 0) == 0\n"
        f"assert raw.syscall({number('unlinkat')}, -100, ctypes.c_void_p(a + 4092), 0) == 0"
    ),
}


@both_kinds
@pytest.mark.parametrize("code", OWN.values(), ids=OWN.keys())
@pytest.mark.sampled(4)
def test_what_it_has_made_itself_may_go(kind: str, code: str, tmp_path: Path) -> None:
    where = project(tmp_path)
    said, programs = run(where, code, kind=kind)
    assert said == "done\n"
    assert names(where) == {"file", "dir"}
    assert not [event for event in programs.grant.events if isinstance(event, CapabilityDenied)]


# Calls that the kernel refuses, and that programs act upon: the same error as without walls.
ERRORS = """
def error(call, *words):
    ctypes.set_errno(0)
    return raw.syscall(call, *words), ctypes.get_errno()
os.mkdir('full'); open('full/f', 'w'); os.symlink('loop', 'loop'); open('new', 'w'); os.symlink('full', 'led')
print([error(UNLINKAT, -100, path, flags) for path in (
    b'missing', b'missing/x', b'file/x', b'', b'.', b'..', b'/', b'full/', b'full', b'full/.', b'full/..', b'new/',
    b'led/', b'loop/x', b'x' * 256, b'x/' * 2100, 0, 1, b'new/f', b'//', b'full/f/',
) for flags in (0, 0x200, 1, 0x1000)], [error(UNLINKAT, fd, b'x', 0) for fd in (99, -1, 1)])
"""


@both_kinds
def test_errors_are_those_of_the_kernel(kind: str, tmp_path: Path) -> None:
    code = f"{RAW}UNLINKAT = {number('unlinkat')}\n{ERRORS}"
    bare, judged = project(tmp_path / "a"), project(tmp_path / "b")
    expected = open_programs(*held(bare), effect="full").python(f"{code}\nprint('done')", cwd=str(bare))
    assert "done" in expected
    assert run(judged, code, kind=kind)[0] == expected


def test_what_restricts_itself_removes_nothing(tmp_path: Path) -> None:
    """The supervisor would do for it what its own rules forbid."""
    where = project(tmp_path)
    code = (
        f"{RAW}open('new', 'w')\n"
        "rights = (ctypes.c_uint64 * 1)(1 << 5)\n"  # it gives up to remove files
        "fd = raw.syscall(444, rights, 8, 0)\n"
        "assert fd >= 0 and raw.prctl(38, 1, 0, 0, 0) == 0 and raw.syscall(446, fd, 0) == 0\n"
        "os.unlink('new')"
    )
    for deletes in ("session", "call"):
        said, _ = run(where, code, deletes=deletes)
        assert "PermissionError" in said
        (where / "new").unlink()


@both_kinds
def test_no_other_way_to_remove_is_open(kind: str, tmp_path: Path) -> None:
    where = project(tmp_path)
    ring = f"{RAW}print(raw.syscall({number('io_uring_setup')}, 8, ctypes.create_string_buffer(120)))"
    said, _ = run(where, ring, kind=kind)
    assert said == "-1\ndone\n"
    said, _ = run(where, "os.rename('file', os.environ['TMPDIR'] + '/file')", kind=kind)
    assert "Invalid cross-device link" in said
    assert names(where) == {"file", "dir"}
    said, _ = run(where, "os.rename('dir', os.environ['TMPDIR'] + '/dir')", kind=kind)
    assert "Invalid cross-device link" in said
    assert names(where) == {"file", "dir"}


@both_kinds
def test_a_denied_delete_stays_denied_also_for_what_is_new(kind: str, tmp_path: Path) -> None:
    where = project(tmp_path)
    (where / "dir" / "sub").mkdir()
    said, programs = run(
        where, "open('dir/new', 'w'); os.unlink('dir/new')", deny=(f"fs:delete:{where}/dir",), kind=kind
    )
    assert "PermissionError" in said
    assert not [event for event in programs.grant.events if isinstance(event, CapabilityDenied)]  # no approval helps


def test_a_class_without_deletes_removes_nothing(tmp_path: Path) -> None:
    where = project(tmp_path)
    programs = Programs("namespaces", held(where))
    assert programs.grant.reach.judged_deletes == CapabilitySet()
    assert "PermissionError" in programs.python("open('new', 'w'); os.unlink('new')", cwd=str(where))


def test_many_refusals_are_counted_and_few_are_named(tmp_path: Path) -> None:
    where = project(tmp_path)
    for index in range(300):
        (where / f"{index}-{'n' * 240}").write_text("")
    code = (
        "for name in os.listdir('.'):\n"
        "    for _ in range(3):\n"
        "        try: os.unlink(name)\n"
        "        except OSError: pass"
    )
    said, programs = run(where, code)
    assert said == "done\n"
    events = [event for event in programs.grant.events if isinstance(event, CapabilityDenied)]
    assert 5 < len(events) <= MOST_REFUSED_DELETES + 1
    assert f"{301 * 3 - len(events) + 1} more checks were refused" in events[-1].rule
    assert len(list(where.iterdir())) == 302


def test_a_path_of_any_characters_is_told(tmp_path: Path) -> None:
    where = project(tmp_path)
    (where / 'a\n\x1b[31m{"paths": []}').write_text("")
    _, programs = run(where, "[os.unlink(n) for n in os.listdir('.') if n.startswith('a')]")
    refused = [event for event in programs.grant.events if isinstance(event, CapabilityDenied)]
    assert len(refused) <= 1  # a name with control characters is one that no rule can name


def test_scratch_is_judged_by_its_mount_and_not_by_its_name(tmp_path: Path) -> None:
    """A granted directory inside of `/tmp` is no scratch."""
    where = project(tmp_path)
    assert str(where).startswith("/tmp/")
    said, _ = run(where, "os.unlink('/tmp/' + os.path.relpath('file', '/tmp'))")
    assert "PermissionError" in said


def test_births_count_only_where_this_clock_tells_them(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    known = births.Births(births.now(), [str(tmp_path), "/proc", "/missing"])
    known.wait()
    (tmp_path / "new").write_text("")
    directory = os.open(tmp_path, os.O_PATH)
    try:
        old, new = births.made(directory, b"old"), births.made(directory, b"new")
    finally:
        os.close(directory)
    assert (known.is_new(old), known.is_new(new)) == (False, True)
    assert not known.is_new(new._replace(born=None))
    assert not known.is_new(new._replace(mount=(new.mount or 0) + 1000))
    assert not known.is_new(new._replace(born=(new.born or 0) + 10**15))  # from the future: the clock was set back
    assert not births.Births(births.now(), ["/proc"]).is_new(new)
