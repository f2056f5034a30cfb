"""A program without a private root fills its scratch with what is hard to remove; nothing may stay on the host."""

import os
import tempfile
from pathlib import Path

import pytest

from attacks.walled_programs import Programs, needs_walls

pytestmark = needs_walls

TREES = {
    "deeper than the stack of Python": "for _ in range(1500): os.mkdir('d'); os.chdir('d')",
    "longer than the longest path": "for _ in range(60): os.mkdir('n' * 250); os.chdir('n' * 250)",
    "deep, with files at each level": "for _ in range(1200): open('f', 'w').close(); os.mkdir('d'); os.chdir('d')",
    "directories that nobody may enter": "os.makedirs('a/b/c'); os.umask(0o777); os.mkdir('a/b/c/d'); os.mkdir('x')",
    "names that are no text": "os.makedirs(b'\\xff\\xfe/\\x80'); open(b'\\xff\\xfe/\\xc3', 'w').close()",
    "names of line ends and dashes": "os.makedirs('-rf\\n/ /*'); open('-rf\\n/\\t', 'w').close()",
    "links to what is outside": "os.symlink('/', 'root'); os.makedirs('d'); os.symlink('..', 'd/up')",
    "names that whoever removes could use": (
        "for n in range(1, 40): os.makedirs(f'.{sys.argv[1]}.{n}/kept')\n"
        "for n in range(1, 40): os.makedirs(f'a{n}/b/c')"
    ),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
@pytest.mark.sampled(2)
def test_whatever_a_program_leaves_in_its_scratch_is_removed(
    tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what `tempfile` remembers of the variable
    code = f"print(os.environ['TMPDIR'])\nos.chdir(os.environ['TMPDIR'])\n{tree}\nprint('made')"
    scratch, said = Programs("no-namespaces").python(code, str(os.getpid())).splitlines()
    assert said == "made"
    assert tmp_path in Path(scratch).parents
    assert [str(path) for path in tmp_path.rglob("*") if path.is_file() or path == Path(scratch)] == []
