"""Tools of installed packages: a gate loads the file that was reviewed, and the lock pins their distribution."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from licet import Backends, Gate, load_manifest, tool
from licet.assemble.importing import imported_tools
from licet.cli.app import licet
from licet.core.policy.lock import LockedDistribution, read_lock, write_lock
from licet.errors import ManifestError, Refused
from licet.packages.distributions import distributions_of
from licet.source.imports import InstalledModule, find_installed
from wheels import install, record_hash, wheel

SOURCE = """
from licet import tool
from .words import GREETING

@tool(needs=[], effect="read_only", sandbox="native")
def hello() -> str:
    "Greet."
    return GREETING
"""
FILES = {
    "acme/__init__.py": "",
    "acme/tools.py": SOURCE,
    "acme/words.py": "GREETING = 'hello'\n",
    "acme/data/words.csv": "a,b\n",
    "acme_single.py": SOURCE.replace("from .words import GREETING", "GREETING = 'single'"),
    "acme_space/tools.py": SOURCE.replace("from .words import GREETING", "GREETING = 'space'"),
}
AGENT = """
agent: a
tools: {hello: {from: "acme.tools:hello"}}
capabilities: {tools: [hello], native: [hello]}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    finders = list(sys.meta_path)
    install(wheel(tmp_path / "built", "acme-kit", "1.0", FILES), tmp_path / "site")
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    Path("agent.yaml").write_text(AGENT)
    yield tmp_path
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("acme")]:
        del sys.modules[name]


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, list(words), catch_exceptions=False)


def lock(*words: str) -> None:
    said = run("lock", "agent.yaml", *words)
    assert said.exit_code == 0, said.output


def said_by_a_gate() -> str:
    async def once() -> str:
        async with gate.session("s") as session:
            return str((await session.call("hello", {})).value)

    gate = Gate.load("agent.yaml", Backends.memory())
    return asyncio.run(once())


MODULES = {"acme.tools": "hello", "acme_single": "single", "acme_space.tools": "space"}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("is_locked", [False, True])
def test_a_tool_of_a_package_is_reviewed_and_called(here: Path, module: str, is_locked: bool) -> None:
    Path("agent.yaml").write_text(AGENT.replace("acme.tools", module))
    if is_locked:
        lock()
        assert run("check", "--locked", "agent.yaml").exit_code == 0
    assert run("check", "agent.yaml").exit_code == 0
    assert said_by_a_gate() == MODULES[module]


def test_the_lock_has_distribution_version_and_hash(here: Path) -> None:
    lock()
    [(name, locked)] = read_lock(Path("licet.lock").read_bytes()).distributions.items()
    assert (name, locked.version, len(locked.files)) == ("acme-kit", "1.0", 1)
    assert str(here) not in Path("licet.lock").read_text()  # it has no path of this machine


# What is not as it was locked -----------------------------------------------------------------------------------------


def reinstalled(version: str, **changed: str) -> Callable[[Path], object]:
    def change(here: Path) -> None:
        for info in (here / "site").glob("*.dist-info"):
            (info / "RECORD").unlink()
            info.rename(here / "old")
        files = {**FILES, **{path.replace("__", "/").replace("_py", ".py"): text for path, text in changed.items()}}
        install(wheel(here / "again", "acme-kit", version, files), here / "site")

    return change


def without_record(here: Path) -> None:
    next((here / "site").glob("*.dist-info/RECORD")).unlink()


def link_to_a_directory(here: Path) -> None:
    (here / "site" / "acme" / "more").symlink_to(here / "built")


def a_second_owner(here: Path) -> None:
    install(wheel(here / "built", "other", "1.0", {"acme/tools.py": SOURCE}), here / "site")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another version": (reinstalled("1.1"), "acme-kit has version 1.0 -> 1.1 since it was locked"),
    "another build": (
        reinstalled("1.0", acme__words_py="GREETING = 'other'\n"),
        "acme-kit 1.0 has other files than were locked: it is another build of this version",
    ),
    "a changed helper": (
        lambda here: (here / "site/acme/words.py").write_text("GREETING = 'changed'\n"),
        "acme/words.py has changed",
    ),
    "changed data": (
        lambda here: (here / "site/acme/data/words.csv").write_text("x\n"),
        "acme/data/words.csv has changed",
    ),
    "a changed package": (
        lambda here: (here / "site/acme/__init__.py").write_text("import os\n"),
        "acme/__init__.py has",
    ),
    "a changed module beside it": (
        lambda here: (here / "site/acme_single.py").write_text(""),
        "acme_single.py has changed",
    ),
    "changed metadata": (
        lambda here: (here / "site/acme_kit-1.0.dist-info/WHEEL").write_text(""),
        "acme_kit-1.0.dist-info/WHEEL has changed",
    ),
    "an added module": (lambda here: (here / "site/acme/more.py").write_text(""), "acme/more.py was added"),
    "added compiled code without source": (
        lambda here: (here / "site/acme/x.pyc").write_text(""),
        "acme/x.pyc was added",
    ),
    "an added link": (link_to_a_directory, "acme/more was added"),
    "a removed file": (lambda here: (here / "site/acme/data/words.csv").unlink(), "acme/data/words.csv is missing"),
    "no RECORD": (
        without_record,
        "which no installed distribution lists in its RECORD (acme_kit-1.0.dist-info: no RECORD)",
    ),
    "two owners": (
        a_second_owner,
        "acme/tools.py, which more than one distribution lists: acme_kit-1.0.dist-info and other",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_distribution_that_is_not_as_locked_is_refused_and_the_change_named(here: Path, case: str) -> None:
    lock()
    change, said = CHANGES[case]
    change(here)
    with pytest.raises(Refused, match="MANIFEST_CHANGED") as refused:
        imported_tools(load_manifest("agent.yaml"))
    assert said in refused.value.explain()
    assert "acme" not in sys.modules  # nothing of it ran
    checked = run("check", "--locked", "agent.yaml")
    assert checked.exit_code == 1
    if case not in ("another version", "another build"):  # there the difference of the locks is shown
        assert said in checked.output
        assert said in run("lock", "--update", "--yes", "agent.yaml").output
    else:
        assert "distribution acme-kit 1." in checked.output
        lock("--update", "--yes")
        assert said_by_a_gate() in ("hello", "other")
    called = run("call", "agent.yaml", "hello")
    assert (called.exit_code, said in called.output) == (0 if "another" in case else 1, "another" not in case)


def compiled_files(here: Path) -> None:
    (here / "site/acme/__pycache__").mkdir()
    (here / "site/acme/__pycache__/tools.pyc").write_text("x")


KEPT: dict[str, Callable[[Path], object]] = {
    "compiled files": compiled_files,
    "another installer": lambda here: (here / "site/acme_kit-1.0.dist-info/INSTALLER").write_text("uv\n"),
    "another distribution in its package": lambda here: install(
        wheel(here / "built", "plugin", "1.0", {"acme/plugin.py": ""}), here / "site"
    ),
    "another distribution": lambda here: install(wheel(here / "built", "plugin", "1.0", {"p.py": ""}), here / "site"),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_differs_between_two_installs_does_not_count(here: Path, case: str) -> None:
    lock()
    KEPT[case](here)
    assert run("check", "--locked", "agent.yaml").exit_code == 0
    assert said_by_a_gate() == "hello"


def test_two_installs_of_one_wheel_have_the_same_hash(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(site: Path) -> str:
        monkeypatch.setattr(sys, "path", [str(site)])
        found = find_installed("acme.tools")
        assert isinstance(found, InstalledModule)
        [one] = distributions_of(found)
        assert one.changes == []
        return one.digest

    [built] = (here / "built").iterdir()
    install(built, here / "second" / "lib", installer="uv")
    first = digest(here / "site")
    assert digest(here / "second" / "lib") == first
    (here / "second" / "lib" / "acme" / "data" / "words.csv").unlink()
    again = distributions_of(InstalledModule("acme", f"{here}/second/lib/acme/__init__.py", f"{here}/second/lib"))
    assert [one.digest != first for one in again] == [True]


# platform -> hash in the lock (`same` and `other` than what is installed), and whether a gate accepts it
PLATFORMS: dict[str, tuple[dict[str, str], bool]] = {
    "another platform, the same files": ({"macos-arm64-cp313": "same"}, True),
    "another platform, other files": ({"macos-arm64-cp313": "other"}, False),
    "this platform, other files": ({"here": "other", "macos-arm64-cp313": "same"}, False),
    "two platforms": ({"here": "same", "macos-arm64-cp313": "other"}, True),
}


@pytest.mark.parametrize("case", PLATFORMS)
def test_the_hash_of_this_platform_counts(here: Path, case: str) -> None:
    lock()
    written = read_lock(Path("licet.lock").read_bytes())
    [(this, same)] = written.distributions["acme-kit"].files.items()
    stated, accepted = PLATFORMS[case]
    files = {
        this if one == "here" else one: same if it == "same" else f"sha256:{'0' * 64}" for one, it in stated.items()
    }
    changed = replace(written, distributions={"acme-kit": LockedDistribution("1.0", files)})
    Path("licet.lock").write_bytes(write_lock(changed))
    assert (run("check", "--locked", "agent.yaml").exit_code == 0) is accepted
    assert (run("call", "agent.yaml", "hello").exit_code == 0) is accepted
    lock("--update", "--yes")
    now = read_lock(Path("licet.lock").read_bytes()).distributions["acme-kit"].files
    assert now == (files if accepted else {**files, this: same})


# What is loaded -------------------------------------------------------------------------------------------------------


def test_a_compiled_file_is_not_loaded_in_place_of_its_source(here: Path) -> None:
    import importlib.util
    import py_compile

    file = here / "site" / "acme" / "words.py"
    true, planted = file.read_text(), "GREETING = 'HELLO'\n"
    stamp = file.stat()
    file.write_text(planted)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    py_compile.compile(str(file), importlib.util.cache_from_source(str(file)))
    file.write_text(true)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    lock()
    assert said_by_a_gate() == "hello"


def test_another_file_that_this_process_has_loaded_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "other").mkdir()
    (here / "other" / "acme_single.py").write_text(FILES["acme_single.py"])
    Path("agent.yaml").write_text(AGENT.replace("acme.tools", "acme_single"))
    with monkeypatch.context() as first:
        first.setattr(sys, "path", [str(here / "other"), *sys.path])
        __import__("acme_single")
    with pytest.raises(ManifestError, match="expected the file that was reviewed"):
        said_by_a_gate()


def test_a_function_of_another_file_is_refused_under_a_lock(here: Path) -> None:
    @tool(name="hello", needs=[], effect="read_only", sandbox="native")
    def hello() -> str:
        """Greet."""
        return "planted"

    lock()
    with pytest.raises(Refused, match="the code of `hello` is not in a file that was locked"):
        Gate(load_manifest("agent.yaml"), [hello], Backends.memory())
    assert Gate(load_manifest("agent.yaml"), imported_tools(load_manifest("agent.yaml")), Backends.memory())


def test_tools_of_a_project_and_of_a_package_with_one_name_are_refused(here: Path) -> None:
    Path("acme_space").mkdir()
    Path("acme_space/own.py").write_text(FILES["acme_single.py"].replace("hello()", "own()"))
    Path("agent.yaml").write_text(
        AGENT.replace("acme.tools", "acme_space.tools")
        .replace('hello"}', 'hello"}, own: {from: "acme_space.own:own"}')
        .replace("[hello]", "[hello, own]")
    )
    with pytest.raises(ManifestError, match=r"in the project .* and of an installed package of that name"):
        said_by_a_gate()


def test_a_wheel_that_lists_its_hashes_wrongly_is_not_locked(here: Path) -> None:
    record = next((here / "site").glob("*.dist-info/RECORD"))
    record.write_text(record.read_text().replace(record_hash(b""), "sha256=AAAA"))
    said = run("lock", "agent.yaml", "--json")
    assert said.exit_code == 1
    assert "acme/__init__.py has changed" in json.dumps(json.loads(said.stdout))
