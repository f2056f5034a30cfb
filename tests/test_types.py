"""The public types: importable, free of `Any`, and enough for tools and backends of users under `mypy --strict`."""

import asyncio
import functools
import inspect
import shutil
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import licet
from licet import Context, Gate, Manifest, handles, ports, tool
from typed.user_backends import ListLedger, by_name, user_backends, with_functions

ROOT = Path(__file__).parents[1]
TYPED = ROOT / "tests" / "typed"
LINTED = ROOT / ".mypy_cache"
FACES = (handles, ports)
EXAMPLES = ("weather/weather.py", "coding/tools.py", "payments/tools.py", "research/tools.py", "inbox/tools.py")


def test_the_front_door_stays_small() -> None:
    """What only annotations and backends need is behind the two faces, not in `licet` itself."""
    assert len(licet.__all__) <= 45
    assert {"Kv", "Files", "Fetch", "FileSystem", "Json"}.isdisjoint(licet.__all__)


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_a_face_lists_exactly_what_it_has(face: types.ModuleType) -> None:
    promised: list[str] = face.__all__
    assert promised == sorted(promised)
    public = {name for name in vars(face) if not name.startswith("_")}
    assert public == set(promised)


def test_every_handle_and_every_port_has_its_type() -> None:
    """Whatever `ctx` has, and whatever `Backends` takes, can be named by a user."""
    for context in (handles.Context, handles.SyncContext):
        for name, value in vars(context).items():
            if isinstance(value, property):
                kind = typing.get_type_hints(value.fget)["return"]
                assert kind is getattr(handles, kind.__name__), name
    listed = {getattr(ports, name) for name in ports.__all__ if isinstance(getattr(ports, name), type)}
    for part, hint in typing.get_type_hints(ports.Ports).items():
        if part in ("environ", "argument_rules", "state"):
            continue
        assert listed & set(typing.get_args(hint)), part


def _hints(kind: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function) and function.__module__.startswith("licet."):
            yield name, typing.get_type_hints(function)
            yield from ((name, typing.get_type_hints(one)) for one in typing.get_overloads(function))


@pytest.mark.parametrize("name", handles.__all__)
def test_no_handle_says_any(name: str) -> None:
    kind = getattr(handles, name)
    for method, hints in _hints(kind) if isinstance(kind, type) and kind is not object else ():
        assert "Any" not in str(hints), method
    assert "Any" not in str(kind)


# `--disallow-any-expr` names each expression whose type is unknown: with the handles there is none in a tool.
STRICT = """[mypy]
strict = true
[mypy-user_tools]
disallow_any_expr = true
disallow_any_explicit = true
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy reports of files of a user, elsewhere, with licet as it is installed; one run, since it is slow."""
    pytest.importorskip("mypy")  # of the group `lint`
    folder = tmp_path_factory.mktemp("types")
    if LINTED.is_dir():  # what mypy knows of licet since `make lint`; a copy, since other processes may do the same
        shutil.copytree(LINTED, folder / "cache")
    for file in ("user_tools.py", "user_modules.py", "user_refusals.py", "user_backends.py", "wrong_uses.py"):
        shutil.copy(TYPED / file, folder / file)
    for example in EXAMPLES:
        shutil.copy(ROOT / "examples" / example, folder / f"example_{example.replace('/', '_')}")
    # The same file without its `ignore` comments has an error in each of those lines.
    lines = (folder / "wrong_uses.py").read_text().splitlines()
    (folder / "bare_uses.py").write_text("\n".join(line.partition("  # type:")[0] for line in lines))
    (folder / "strict.ini").write_text(STRICT)
    options = ["--config-file", "strict.ini", "--no-error-summary", "--cache-dir", "cache"]
    command = [sys.executable, "-m", "mypy", *options]
    files = sorted(file.name for file in folder.glob("*.py"))
    done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    return (done.stdout + done.stderr).splitlines()


def test_tools_and_backends_of_users_type_check(reports: list[str]) -> None:
    assert [line for line in reports if not line.startswith("bare_uses.py:")] == []


def test_mistakes_are_found(reports: list[str]) -> None:
    lines = (TYPED / "wrong_uses.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if "# type: ignore" in line}
    found = {int(line.split(":")[1]) for line in reports if line.startswith("bare_uses.py:") and ": error: " in line}
    assert found == expected


# They are also what really stands behind a call ----------------------------------------------------------------------


@tool(
    needs=["fs:*:/srv", "network:https:api.example.com", "secret:read:*", "process:exec:git", "storage:*:session"],
    effect="write_limited",
    sandbox="isolated",
)
async def note(ctx: Context, text: str) -> list[object]:
    """Use every handle."""
    await ctx.fs.write("/srv/note", text)
    await ctx.kv.set("last", text)
    answer = await ctx.fetch("https://api.example.com/", "POST", json={"token": ctx.secrets.ref("api/token")})
    ended = await ctx.process.spawn("git", ["log"])
    return [await ctx.fs.list("/srv"), await ctx.kv.get("last"), answer.json(), ended.stdout, ended.exit_code]


def test_calls_run_on_backends_of_a_user() -> None:
    manifest = Manifest.from_data(
        {
            "agent": "typed",
            "capabilities": {
                "tools": ["note"],
                "max_side_effect_class": "write_limited",
                "fs_reach": {"read": ["/srv"], "write": ["/srv"]},
                "destinations": {"allow": ["api.example.com"]},
                "secrets": ["api/token"],
                "process": {"allowed_binaries": ["git"]},
                "budget": {"max_calls_per_session": 1},
            },
        }
    )
    files: dict[str, bytes] = {}
    ledger = ListLedger()
    gate = Gate(manifest, [note], user_backends(files, ledger), unchecked_imports=True)

    async def calls() -> tuple[licet.Result, licet.Result]:
        session = gate.session("s")
        return await session.call("note", {"text": "hello"}), await session.call("note", {"text": "again"})

    first, second = asyncio.run(calls())
    assert first.unwrap() == [["note"], "hello", {"token": "[redacted api/token]"}, "git log", 0]
    assert first.layers[0] == "virtual machine"
    assert files == {"/srv/note": b"hello"}
    assert second.reason == "BUDGET_EXCEEDED"
    assert [entry.kind for entry in ledger.entries] == ["decision", "receipt", "receipt"]


def test_functions_stand_for_ports_of_one_method() -> None:
    parts = with_functions()
    assert parts.secrets is not None
    assert parts.approver is not None


def test_parts_are_replaced_by_name(tmp_path: Path) -> None:
    in_memory, here = by_name(tmp_path)
    assert type(in_memory.kv).__name__ == "DictKv"
    assert in_memory.clock is None
    assert type(here.ledger).__name__ == "ListLedger"


class _HalfAStore:
    async def get(self, scope: str, key: str) -> None:
        """The one method that it has."""


KV = "an object with `get`, `set`, `delete`, `list`, `clear` as in `licet.ports.Kv`"
WRONG_PARTS: list[tuple[dict[str, object], str]] = [
    ({"kv": {}}, f"`kv=` must be {KV}, of which it lacks `set`, `delete`, `list`; found a dict"),
    ({"kv": _HalfAStore()}, f"`kv=` must be {KV}, of which it lacks `set`, `delete`, `list`, `clear`; found a _HalfAS"),
    ({"kv": 5}, f"`kv=` must be {KV}; found a int"),
    ({"kv": _HalfAStore}, "`kv=` must be an object, not the class: `kv=_HalfAStore(…)`; found the class `_HalfAStore`"),
    ({"files": "/srv"}, "`files=` must be an object with `pin`, `open`, `write`, "),
    ({"http": 5}, "`http=` must be an object with `resolve`, `send`, `close` as in `licet.ports.Http`; found a int"),
    ({"processes": []}, "`processes=` must be an object with `find`, `run`, `start` as in `licet.ports.Processes`"),
    ({"ledger": "ledger.sqlite"}, "`ledger=` must be an object with `record` as in `licet.ports.Ledger`; found a str"),
    ({"budgets": 5}, "`budgets=` must be an object with `usage`, `reserve`, `settle`, `refund` as in `licet.ports."),
    ({"approver": True}, "`approver=` must be an object with `ask` as in `licet.ports.Approver` or a function;"),
    ({"sandbox": "isolated"}, "`sandbox=` must be an object with `layers`, `run`, `walls` as in `licet.ports.Sandbox`"),
    ({"clock": 0.0}, "`clock=` must be an object with `now`, `monotonic` as in `licet.ports.Clock`; found a float"),
    ({"environ": ["PATH"]}, "`environ=` must be a mapping such as `os.environ`; found a list"),
    ({"argument_rules": {}}, "`argument_rules=` must be a function; found a dict"),
    ({"state": "/srv"}, "`state=` must be a tuple of paths as text; found a str"),
]


@pytest.mark.parametrize(("part", "said"), WRONG_PARTS, ids=[next(iter(part)) for part, _ in WRONG_PARTS])
def test_a_part_that_is_no_such_part_is_refused_at_once(part: dict[str, object], said: str, tmp_path: Path) -> None:
    ways: tuple[typing.Any, ...] = (
        licet.Backends,
        licet.Backends.memory,
        functools.partial(licet.Backends.local, tmp_path),
    )
    for make in ways:
        with pytest.raises(TypeError, match="must be") as refused:
            make(**part)
        assert said in str(refused.value)


def test_what_cannot_hold_secrets_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"`secrets=` must be an object with `get` as in `licet\.ports\.Secrets`"):
        licet.Backends.memory(secrets=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a source of secrets is a Path, a mapping"):
        licet.Backends.local(tmp_path, secrets=5)  # type: ignore[arg-type]
