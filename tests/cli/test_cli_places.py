"""How commands name the files of a policy: all in the same way, and relative below the current directory."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from licet.cli.app import licet

TOOL = """from licet import Context, tool


@tool(needs=["fs:read:/srv/a"], effect="read_only", sandbox="native")
async def look(ctx: Context, path: str) -> str:
    \"\"\"Look into a file.\"\"\"
    return await ctx.fs.read(path)
"""
MANIFEST = """agent: a
tools:
  look: {from: "placed:look"}
capabilities:
  tools: [look]
  native: [look]
  fs_reach: {read: [/srv]}
"""
_PLACE = re.compile(r"""(?<![^\s("'`])(?!fs:)[^\s("'`]*(?:\.py|\.yaml)[:0-9]*""")


@pytest.fixture(autouse=True)
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "beside").mkdir()
    below = tmp_path / "below"
    below.mkdir()
    (below / "placed.py").write_text(TOOL)
    (below / "n.yaml").write_text(MANIFEST)
    known = set(sys.modules)
    yield below
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in ("placed", "broken", "helper", "pack"):
            del sys.modules[name]


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


WAYS = [  # the current directory, the typed words, and the expected file names
    ("below", "m.yaml", ""),
    ("below", "./m.yaml", ""),
    ("below", "{below}/m.yaml", ""),
    (".", "below/m.yaml", "below/"),
    (".", "{below}/m.yaml", "below/"),
    ("beside", "../below/m.yaml", "../below/"),
    ("beside", "{below}/m.yaml", "{below}/"),
    ("/", "{below}/m.yaml", "{below}/"),
    ("/", "{below}/../below/m.yaml", "{below}/../below/"),
]


REFUSED = {"{p}:4", "{m}:4", "{m}:7", "{p}", "{m}"}
COMMANDS: dict[str, tuple[str, list[str], set[str]]] = {  # the typed words, and all expected places
    "call": ("/srv", ["call", "{m}", "look", "path=/etc/a"], REFUSED),
    "explain": ("/srv", ["explain", "{m}", "look", "/etc/a"], REFUSED),
    "check": ("/srv/b", ["check", "{m}"], {"{p}:4:1:", "{m}:4", "{m}"}),
    "surface": ("/srv", ["surface", "{m}", "--json"], {"{p}:4:1", "{m}:7:21", "{m}"}),
    "diff": ("/srv/a/b", ["diff", "{m}", "{n}"], {"{n}:7"}),
}


@pytest.mark.parametrize(("stand", "typed", "named"), WAYS)
@pytest.mark.parametrize(("held", "words", "places"), COMMANDS.values(), ids=COMMANDS)
@pytest.mark.sampled(12)
def test_every_command_names_files_in_the_same_way(
    stand: str,
    typed: str,
    named: str,
    held: str,
    words: list[str],
    places: set[str],
    below: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(below.parent / stand)
    (below / "m.yaml").write_text(MANIFEST.replace("/srv", held))
    typed, named = typed.format(below=below), named.format(below=below)
    result = run(*(word.format(m=typed, n=typed.replace("m.yaml", "n.yaml")) for word in words))
    expected = {one.format(m=f"{named}m.yaml", n=f"{named}n.yaml", p=f"{named}placed.py") for one in places}
    # Paths that no grant may write are absolute, whatever the current directory is.
    said = re.sub(r'"never_writable": \[.*?\n  \]', "", result.output, flags=re.DOTALL)
    assert set(_PLACE.findall(said)) == expected


ONLY_NAMED = "only installed modules and project files that an `import` statement names are loaded"
HERE = (
    "from licet import tool\n@tool(name='look', needs=[], effect='read_only', sandbox='native')\ndef t() -> None: ...\n"
)
BROKEN: dict[str, tuple[dict[str, str], str, str]] = {
    "the module itself": ({"broken.py": f"{HERE}\n1 / 0\n"}, "ZeroDivisionError: division by zero", "broken.py:5"),
    "a function of it": ({"broken.py": f"{HERE}def f():\n    {{}}['k']\n\n\nf()\n"}, "KeyError: 'k'", "broken.py:5"),
    "what it imports": (
        {"broken.py": f"{HERE}import helper\n", "helper.py": "\n\nraise ValueError('no')\n"}, "ValueError: no",
        "helper.py:3",
    ),
    "the syntax of what it imports": (
        {"broken.py": f"{HERE}import helper\n", "helper.py": "\n)\n"}, "SyntaxError: ", "helper.py:2",
    ),
    "a package that is missing": (
        {"broken.py": f"{HERE}\nimport no_such_package\n"}, "ModuleNotFoundError: No module named 'no_such_package'",
        "broken.py:5",
    ),
    "what a library says": (
        {"broken.py": f"{HERE}import json\njson.loads('{{')\n"}, "JSONDecodeError: ", "broken.py:5",
    ),
}  # fmt: skip
# What the source shows is reported before anything is imported.
UNREADABLE: dict[str, tuple[dict[str, str], str]] = {
    "its syntax": ({"broken.py": "import os\n\ndef f(:\n"}, "below/broken.py:3:7: error: found a syntax error"),
    "its declaration": (
        {"broken.py": "from licet import tool\n\n@tool(needs=['nonsense'])\ndef t() -> None: ...\n"},
        "below/broken.py:3:13: error: found `nonsense`",
    ),
    "a module that is missing": ({}, "below/m.yaml:3:16: error: found no module `broken`"),
    "a function that is missing": (
        {"broken.py": "1 / 0\n"}, "below/m.yaml:3:16: error: found no `t` in below/broken.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_source_with_a_problem_is_reported_and_never_imported(
    files: dict[str, str], said: str, below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(below.parent)
    for name, text in files.items():
        (below / name).write_text(text)
    (below / "m.yaml").write_text(MANIFEST.replace("placed:look", "broken:t"))
    result = run("call", "below/m.yaml", "look")
    assert (result.exit_code, result.stderr.startswith(said)) == (1, True), result.stderr


@pytest.mark.parametrize(("files", "said", "place"), BROKEN.values(), ids=BROKEN)
def test_a_failed_import_is_reported_with_its_line(
    files: dict[str, str], said: str, place: str, below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(below.parent)
    (below / "m.yaml").write_text(MANIFEST.replace("placed:look", "broken:t"))
    for name, text in files.items():
        (below / name).write_text(text)
    result = run("call", "below/m.yaml", "look")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    found = "below/m.yaml:3:16: error: found `broken:t`, expected a tool that can be imported ("
    assert line.startswith(found + said)
    hints = [f"it stops at below/{place}"] if place else []
    hints += [ONLY_NAMED] if said.startswith("ModuleNotFoundError") else []
    assert line.endswith("); " + "; ".join(hints) if hints else ")")


STANDS = """from licet import Context, tool


@tool(needs=["fs:read:${workdir}/notes"], effect="read_only", sandbox="native")
async def look(ctx: Context, path: str) -> str:
    \"\"\"Look into a file.\"\"\"
    return await ctx.fs.read(path)
"""
UP = [  # the current directory, and the typed directories of a call
    ("below", [], "m.yaml"),
    ("below/deep", ["--workdir", ".."], "../m.yaml"),
    ("below/deep", ["--workdir", "../../below"], "../../below/m.yaml"),
    ("below/deep", ["--workdir", "..", "--state", "../../kept"], "../m.yaml"),
    ("below/deep", ["--workdir", "..", "--secrets", "../keys"], "../m.yaml"),
    ("away", ["--workdir", "../below/link/.."], "../below/m.yaml"),
]


@pytest.mark.parametrize(("stand", "options", "typed"), UP)
def test_a_path_with_dots_is_where_it_leads(
    below: Path, stand: str, options: list[str], typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deep", "notes", "../away"):
        (below / name).mkdir()
    (below / "notes" / "a").write_text("rain")
    (below / "link").symlink_to(below / "notes", target_is_directory=True)
    (below / "keys").touch(0o600)
    (below / "placed.py").write_text(STANDS)
    (below / "m.yaml").write_text(MANIFEST.replace("/srv", '"${workdir}/notes"'))
    monkeypatch.chdir(below.parent / stand)
    done = run("call", typed, "look", f"path={below}/notes/a", *options)
    assert (done.exit_code, done.stdout) == (0, "rain\n"), done.stderr


@pytest.mark.parametrize("typed", ["../m.yaml", "../../below/m.yaml", "../link/../m.yaml"])
def test_a_manifest_has_one_state_however_it_is_typed(below: Path, typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (below / "deep").mkdir()
    (below / "m.yaml").write_text(MANIFEST)
    (below / "link").symlink_to(below / "deep", target_is_directory=True)
    for stand, way in ((below, "m.yaml"), (below / "deep", typed)):
        monkeypatch.chdir(stand)
        assert run("call", way, "look", "path=/srv/a/nothing").exit_code == 1
    assert len(list((below.parent / "state" / "licet").iterdir())) == 1
