"""A grant covers what the host, its helpers or another agent trusts: writing there would run code past every rule."""

import asyncio
import os
import site
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import licet
from attacks import trusting_helper
from attacks import trusting_tools as tools
from attacks.granted import granted, refused, scoped
from attacks.walled_programs import Programs, both_kinds, needs_namespaces, place
from licet import Gate, Manifest
from licet.assemble.never_writable import never_writable
from licet.core.policy.layer import KEY_FILE
from licet.sandbox import scratch
from sandbox.levels import WALLED, call, gate, local_backends, needs_walls

WAYS = {"by_handle": "native", "by_itself": "isolated", "by_program": "native"}
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories of this user that nothing else uses."""
    for name in ("STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home" / name.lower()))
        (tmp_path / "home" / name.lower() / "licet" / "other").mkdir(parents=True)
    return tmp_path / "home"


def at(folder: Path, way: str, *grants: str, **more: object) -> Gate:
    tool = getattr(tools, way)
    every, parts = [*grants, "process:exec:*"], local_backends(folder / "kept")
    # Some grants here cover the import path of the tests themselves, which is not what is tried.
    return gate(folder, WAYS[way], tool, backends=parts, grants=every, unchecked_imports=True, **more)  # type: ignore[arg-type]


def attempt(gate: Gate, way: str, what: str, path: Path) -> str:
    """What came of it: the text that was read, `done`, or `no`."""
    result = call(gate, way, {"what": what, "path": str(path)})
    if not result.ok or str(result.value).startswith("no: "):
        return "no"
    return str(result.value)


@pytest.fixture
def new_file() -> Iterator[Callable[[str], Path]]:
    """Names of files that do not exist, in directories that matter; what a test leaves there is removed."""
    made: list[Path] = []

    def name(directory: str) -> Path:
        made.append(Path(directory, f"planted_{os.getpid()}.py"))
        return made[-1]

    yield name
    for path in made:
        path.unlink(missing_ok=True)


TRUSTED: dict[str, Callable[[], str]] = {
    "the environment": lambda: sys.prefix,
    "the interpreter it was made from": lambda: os.path.join(sys.base_prefix, "lib"),
    "installed packages, where `.pth` files are read": lambda: site.getsitepackages()[0],
    "the standard library": lambda: os.path.dirname(os.__file__),
    "licet itself": lambda: os.path.dirname(licet.__file__),
}


@every_way
@pytest.mark.parametrize("trusted", TRUSTED)
@pytest.mark.sampled(3)
def test_libraries_are_not_written(tmp_path: Path, way: str, trusted: str, new_file: Callable[[str], Path]) -> None:
    directory = TRUSTED[trusted]()
    planted = new_file(directory)
    assert tools.unguarded("write", str(planted))  # any code of this user can
    planted.unlink()
    opened = at(tmp_path, way, f"fs:*:{os.path.dirname(directory)}", f"fs:*:{directory}", f"fs:*:{tmp_path}")
    assert attempt(opened, way, "write", planted) == "no"
    assert not planted.exists()


@every_way
@pytest.mark.parametrize("home", ["state", "data", "cache"])
@pytest.mark.sampled(3)
def test_what_licet_keeps_for_this_user_is_neither_read_nor_written(
    tmp_path: Path, homes: Path, way: str, home: str
) -> None:
    kept = homes / home / "licet" / "other" / "ledger.key"
    kept.write_text("secret of another workspace")
    (homes / "mine").write_text("fine")
    assert tools.unguarded("read", str(kept))
    opened = at(tmp_path, way, f"fs:*:{homes}")
    assert attempt(opened, way, "read", kept) == "no"
    for path in (kept, kept.with_name("approvals.sqlite"), homes / home / "licet" / "trust"):
        assert attempt(opened, way, "write", path) == "no"
    assert kept.read_text() == "secret of another workspace"
    assert attempt(opened, way, "read", homes / "mine") == "fine"


@every_way
@pytest.mark.sampled(2)
def test_a_module_that_a_tool_imports_is_not_written(tmp_path: Path, way: str) -> None:
    helper = Path(trusting_helper.__file__)
    before = helper.read_text()
    opened = at(tmp_path, way, f"fs:*:{helper.parent}")
    assert attempt(opened, way, "read", helper) == before
    assert attempt(opened, way, "write", helper) == "no"
    assert helper.read_text() == before


@every_way
@pytest.mark.sampled(2)
def test_the_scratch_of_another_call_is_neither_read_nor_written(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of the granted directory is searched for second names: that of the whole machine may be large.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    other = Path(scratch.new())
    try:
        (other / "draft").write_text("of another session")
        opened = at(tmp_path, way, f"fs:*:{other.parent.parent}")
        assert attempt(opened, way, "read", other / "draft") == "no"
        assert attempt(opened, way, "write", other / "draft") == "no"
        assert (other / "draft").read_text() == "of another session"
    finally:
        scratch.remove(str(other))


def test_scratch_is_not_made_below_a_directory_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "theirs").mkdir()
    Path(scratch.parent()).symlink_to("theirs")
    with pytest.raises(PermissionError, match="not a directory of this user"):
        scratch.new()


def test_the_entry_script_is_on_the_list(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "from licet.assemble.never_writable import never_writable\n"
        "print(*(one.path for one in never_writable('/')), sep='\\n')\n"
    )
    listed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert str(script) in listed.splitlines()


# Directories on the way ----------------------------------------------------------------------------------------------


MOVES = {
    "renaming the directory": "mv {a} {a}-away && mkdir -p {keep} && echo x > {keep}/licet.yaml",
    "renaming a directory above it": "mv {top} {top}-away && mkdir -p {keep} && echo x > {keep}/licet.yaml",
    "removing it": "rm -rf {top} && mkdir -p {keep} && echo x > {keep}/licet.yaml",
    "a file in its place": "mv {keep}/licet.yaml {keep}/old && echo x > {keep}/licet.yaml",
    "a rename over it": "echo x > {a}/new && mv {a}/new {keep}/licet.yaml",
    "exchanging the directory": "mkdir -p {top}/other/keep && echo x > {top}/other/keep/licet.yaml && "
    "mv --exchange {top}/other {a} 2>/dev/null || (mv {a} {top}/was && mv {top}/other {a})",
}


# Both let programs remove and rename: the class whose call was approved, and a policy that approves deletes.
may_delete = pytest.mark.parametrize("held", [{"effect": "destructive"}, {"effect": "full", "deletes": "manifest"}])


@both_kinds
@may_delete
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.sampled(4)
def test_no_directory_on_the_way_to_a_closed_file_moves(
    kind: str, move: str, held: dict[str, Any], tmp_path: Path
) -> None:
    for number, walls in enumerate(("open", kind)):
        where = tmp_path / str(number)
        keep = where / "in" / "top" / "a" / "keep"
        keep.mkdir(parents=True)
        (keep / "licet.yaml").write_text("closed")
        words = {"top": where / "in" / "top", "a": keep.parent, "keep": keep}
        rules = [f"fs:{action}:{where}/in" for action in ("read", "write", "delete")]
        deny = [f"fs:{action}:{keep}/licet.yaml" for action in ("write", "delete")]
        Programs(walls, rules, deny=deny, **held).run("sh", "-c", MOVES[move].format(**words))
        stays = (keep / "licet.yaml").exists() and (keep / "licet.yaml").read_text() == "closed"
        assert stays is (walls == kind), f"{walls}: {move}"


@needs_namespaces
@may_delete
def test_next_to_a_closed_file_a_program_writes_and_deletes_as_granted(held: dict[str, Any], tmp_path: Path) -> None:
    where = place(tmp_path) / "in"
    (where / ".licet").mkdir()
    (where / ".licet" / "licet.yaml").write_text("closed")
    rules = [f"fs:{action}:{where}" for action in ("read", "write", "delete")]
    deny = [f"fs:{action}:{where}/.licet" for action in ("write", "delete")]
    line = f"cd {where} && mkdir new && echo x > new/x && mv new newer && rm file && rm -r .licet; ls -A"
    ended = Programs("namespaces", rules, deny=deny, **held).run("sh", "-c", line)
    assert ended.stdout_bytes.decode().split() == [".licet", "newer"]
    assert (where / ".licet" / "licet.yaml").read_text() == "closed"


LINKS = {
    "the closed directory is a link": (".venv", "outside", ".venv/bin/python"),
    "a link on the way": ("deep/conf", "../../outside", "deep/conf/bin/python"),
    "a link inside the grant": ("mid", "real", "mid/bin/python"),
}


@both_kinds
@may_delete
@pytest.mark.parametrize("case", LINKS)
@pytest.mark.sampled(4)
def test_a_link_on_the_way_to_a_closed_file_stays(kind: str, case: str, held: dict[str, Any], tmp_path: Path) -> None:
    name, target, closed = LINKS[case]
    for number, walls in enumerate(("open", kind)):
        where = tmp_path / str(number) / "in"
        (where / "deep").mkdir(parents=True)
        for place_ in (tmp_path / str(number) / "outside", where / "real"):
            (place_ / "bin").mkdir(parents=True)
            (place_ / "bin" / "python").write_text("trusted")
        (where / name).symlink_to(target if target != "outside" else tmp_path / str(number) / "outside")
        line = f"cd {where} && mv {name} gone; mkdir -p {name}/bin && echo planted > {closed}"
        rules = [f"fs:{action}:{where}" for action in ("read", "write", "delete")]
        deny = [f"fs:{action}:{where}/{closed}" for action in ("write", "delete")]
        Programs(walls, rules, deny=deny, **held).run("sh", "-c", line)
        assert ((where / closed).read_text() == "trusted") is (walls == kind), f"{walls}: {case}"


def test_a_handle_moves_no_link_that_leads_to_a_closed_file(tmp_path: Path) -> None:
    root = granted(tmp_path)
    (root / "real").mkdir()
    (root / "real" / "python").write_text("trusted")
    (root / "hop").symlink_to("real")
    (root / "venv").symlink_to("hop")
    fs = scoped(root, True, [f"{root}/venv/python"])
    for name in ("venv", "hop", "real"):
        assert refused(fs.rename(name, "gone")) == "PATH_NOT_REACHABLE"
        assert refused(fs.delete(name)) == "PATH_NOT_REACHABLE"
    (root / "other").symlink_to("real")
    asyncio.run(fs.rename("other", "another"))  # no closed path leads through it


def test_compiled_code_that_python_itself_would_run_is_closed() -> None:
    listed = never_writable("/", tools=[tools.by_itself])
    compiled = os.path.join(os.path.dirname(trusting_helper.__file__), "__pycache__")
    assert {one.why for one in listed if one.path == compiled} == {"the code of a tool is never writable"}


# Files with keys ------------------------------------------------------------------------------------------------------


def with_key(folder: Path, **capabilities: Any) -> dict[str, Any]:
    """A policy for a directory with a file that has a key, as data."""
    entry = {"file": str(folder / "home" / ".npmrc"), "field": "_authToken", "hosts": ["npm.test"]}
    stated = {"inspect": ["npm.test"], "stand_ins": {"NPM": entry}, **capabilities}
    return {"agent": "tester", "capabilities": {**stated}}


CHANGES = {
    "writing it": ("write", ".npmrc"),
    "moving it": ("move away", ".npmrc"),
    "moving another file over it": ("move over", ".npmrc"),
    "deleting it": ("delete", ".npmrc"),
    "moving its directory": ("move away", ""),
}


@pytest.mark.parametrize("level", WALLED)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_with_a_key_is_not_replaced(tmp_path: Path, change: str, level: str) -> None:
    what, name = CHANGES[change]
    for closed in (False, True):
        folder = tmp_path / str(closed)
        (folder / "home").mkdir(parents=True)
        (file := folder / "home" / ".npmrc").write_text("_authToken=x")
        stated = with_key(folder)["capabilities"] if closed else {}
        stated |= {"grants": [f"fs:*:{folder}"], "approvals": DELETES, "budget": BUDGET}
        backends = local_backends(folder / "kept", approver=lambda _: "approved")
        opened = gate(
            folder, level, tools.by_moving, backends=backends, effect="full", unchecked_imports=True, **stated
        )
        assert attempt(opened, "by_moving", "read", file) == "_authToken=x"
        # The attack works where no policy names the file.
        assert (attempt(opened, "by_moving", what, folder / "home" / name) == "no") is closed
        assert (file.exists() and file.read_text() == "_authToken=x") is closed


DELETES, BUDGET = {"write": "manifest", "delete": "call"}, {"max_calls_per_session": 100}
PERSONALITY = {"id": "p", "fs_reach": {"write": ["~"]}}
TOOLS_OF_A_BUNDLE = {"t": {"needs": ["fs:write:*"], "effect": "write_limited"}}


def of_a_bundle(folder: Path) -> Manifest:
    bundle = {"tools": ["t"], "stand_ins": with_key(folder)["capabilities"]["stand_ins"]}
    workspace = {"tools": TOOLS_OF_A_BUNDLE, "bundles": {"b": bundle}}
    return Manifest.from_data({"agent": "a", "capabilities": {}}, workspace=workspace)


def of_a_server(folder: Path) -> Manifest:
    entry = with_key(folder)["capabilities"]["stand_ins"]["NPM"]
    return replace(
        Manifest.from_data({"agent": "a", "capabilities": {}}),
        servers={"s": {"command": ["s"], "secrets": {"NPM": entry}}},
    )


STATED: dict[str, Callable[[Path], Manifest]] = {
    "the agent": lambda folder: Manifest.from_data(with_key(folder)),
    "the agent, whose personality has no key": lambda folder: Manifest.from_data(
        with_key(folder), personality=PERSONALITY
    ),
    "a bundle that is not assigned": of_a_bundle,
    "a server": of_a_server,
}


@pytest.mark.parametrize("by", STATED)
def test_a_file_with_a_key_is_closed_whoever_names_it(tmp_path: Path, by: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to("real")
    manifest = STATED[by](tmp_path)
    for known in (manifest, manifest.expand("/work", str(tmp_path))):
        closed = {one.path for one in never_writable("/work", known) if one.why == KEY_FILE}
        assert closed == {str(tmp_path / "home" / ".npmrc"), str(tmp_path.resolve() / "real" / ".npmrc")}


@pytest.mark.parametrize("by", STATED)
def test_a_file_with_a_key_is_closed_in_a_home_too(by: str, homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(homes))
    manifest = STATED[by](Path("~"))
    for known in (manifest, manifest.expand("/work", str(homes))):
        closed = [one.path for one in never_writable("/work", known) if one.why == KEY_FILE]
        assert closed == [str(homes / "home" / ".npmrc")]


# Hard links ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@every_way
@pytest.mark.parametrize("beside", [True, False], ids=["in one directory", "in two"])
def test_a_denied_file_is_not_reached_by_a_second_name(tmp_path: Path, way: str, beside: bool) -> None:
    inside = tmp_path / "in"
    (inside / "deep").mkdir(parents=True)
    denied, second = inside / ".env", inside / "notes" if beside else inside / "deep" / "notes"
    denied.write_text("CANARY")
    os.link(denied, second)
    (inside / "fine").write_text("fine")
    assert tools.unguarded("read", str(second)) == "CANARY"
    opened = at(tmp_path, way, f"fs:*:{inside}", deny=[f"fs:*:{denied}"])
    assert attempt(opened, way, "read", inside / "fine") == "fine"
    for name in (denied, second):
        assert attempt(opened, way, "read", name) == "no"
        assert attempt(opened, way, "write", name) == "no"
    assert denied.read_text() == "CANARY"


@pytest.mark.parametrize("way", ["by_itself", "by_program", "by_handle"])
@pytest.mark.sampled(1)
def test_a_file_below_a_denied_directory_is_not_written_by_a_second_name(tmp_path: Path, way: str) -> None:
    (tmp_path / "in" / "work").mkdir(parents=True)
    (tmp_path / "in" / "keys").mkdir()
    kept, second = tmp_path / "in" / "keys" / "id", tmp_path / "in" / "work" / "id"
    kept.write_text("CANARY")
    os.link(kept, second)
    opened = at(tmp_path, way, f"fs:*:{tmp_path}/in", deny=[f"fs:*:{tmp_path}/in/keys"])
    assert attempt(opened, way, "write", second) == "no"
    assert kept.read_text() == "CANARY"


@every_way
@pytest.mark.sampled(1)
def test_a_library_is_not_written_by_a_second_name(tmp_path: Path, way: str, new_file: Callable[[str], Path]) -> None:
    (tmp_path / "cache").mkdir()
    library = new_file(site.getsitepackages()[0])
    library.write_text("installed")
    try:
        os.link(library, tmp_path / "cache" / "library.py")
    except OSError:
        pytest.skip("the libraries are on another file system, where no link leads")
    opened = at(tmp_path, way, f"fs:*:{tmp_path}/cache")
    assert attempt(opened, way, "write", tmp_path / "cache" / "library.py") == "no"
    assert library.read_text() == "installed"
    assert attempt(opened, way, "write", tmp_path / "cache" / "new") != "no" or way == "by_itself"


def test_the_list_names_a_reason_for_each_path() -> None:
    listed = never_writable("/", tools=[tools.by_itself])
    assert {one.why for one in listed if one.path == trusting_helper.__file__} == {
        "the code of a tool is never writable"
    }
    assert all(one.path.startswith("/") and one.why for one in listed)
