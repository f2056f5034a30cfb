"""The contract of secrets backends, on the memory twin and on every real one, and the extras of each."""

import asyncio
import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from licet import Backends
from licet.backends.secrets import ChainSecrets, EnvironmentSecrets, FileSecrets, MemorySecrets, variables_of
from licet.guard.ports import Unavailable

VALUES = {"WEATHER_API_KEY": "sunny 1234", "GITHUB_TOKEN": "ghp_$x'y\\z#", "Mixed": "é🔑"}

Make = Callable[[Path, Mapping[str, str]], Any]


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "secrets.env"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def lines(values: Mapping[str, str]) -> str:
    def quoted(value: str) -> str:
        escaped = value.replace("\\", "\\\\")
        return f'"{escaped}"' if "'" in value and "$" not in value else f"'{value}'"

    return "".join(f"{name}={quoted(value)}\n" for name, value in values.items())


def made_function(folder: Path, values: Mapping[str, str]) -> Any:
    async def function(reference: str) -> str | None:
        return values.get(reference)

    return ChainSecrets(function)


BACKENDS: dict[str, Make] = {
    "memory": lambda folder, values: MemorySecrets(values),
    "environment": lambda folder, values: EnvironmentSecrets(values),
    "file": lambda folder, values: FileSecrets(written(folder, lines(values))),
    "chain": lambda folder, values: ChainSecrets(MemorySecrets(), EnvironmentSecrets(values)),
    "function": made_function,
}


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Mapping[str, str]], Any]:
    return lambda values: BACKENDS[request.param](tmp_path, values)


def ask(backend: Any, reference: str) -> str | None:
    value: str | None = asyncio.run(backend.get(reference))
    return value


def test_a_known_secret_is_given_and_an_unknown_one_is_none(make: Callable[[Mapping[str, str]], Any]) -> None:
    values = {"WEATHER_API_KEY": "sunny 1234", "Mixed": "é🔑 $x \\ #"}
    backend = make(values)
    for reference, value in values.items():
        assert ask(backend, reference) == value
    for unknown in ("OTHER", "weather_api_key", "WEATHER_API_KEY/x", "mixed", "path"):
        assert ask(backend, unknown) is None


def test_nothing_shows_a_value_of_the_backend_itself(make: Callable[[Mapping[str, str]], Any]) -> None:
    backend = make({"KEY": "hunter2"})
    assert ask(backend, "KEY") == "hunter2"
    assert "hunter2" not in repr(backend)


NAMES = [
    # reference, variables, the value
    ("github/token", {"GITHUB__TOKEN": "upper"}, "upper"),
    ("github/api_token/v2", {"GITHUB__API_TOKEN__V2": "upper"}, "upper"),
    ("github/token", {"GITHUB__TOKEN": "upper", "github/token": "exact"}, "exact"),
    ("github/token", {"GITHUB_TOKEN": "upper"}, None),
    ("github/api-token", {"GITHUB__API_TOKEN": "upper"}, None),
    ("github__token", {"GITHUB__TOKEN": "upper"}, None),
    ("GITHUB__TOKEN", {"GITHUB__TOKEN": "upper"}, None),
    ("github/Token", {"GITHUB__TOKEN": "upper"}, None),
    ("_A__B", {"_A__B": "exact"}, "exact"),
    ("path", {"PATH": "/bin"}, None),
    ("github_token", {"GITHUB_TOKEN": "upper"}, None),
    ("EMPTY", {"EMPTY": ""}, None),
]


@pytest.mark.parametrize(("reference", "variables", "value"), NAMES)
def test_a_reference_with_segments_may_be_a_variable(
    reference: str, variables: dict[str, str], value: str | None
) -> None:
    assert ask(EnvironmentSecrets(variables), reference) == value


REFERENCES = [
    "".join(parts)
    for length in range(1, 6)
    for parts in itertools.product(("a", "A", "/", "_", "-"), repeat=length)
    if parts[0] != "/" != parts[-1] and "//" not in "".join(parts)
]


def test_no_variable_belongs_to_two_references() -> None:
    # Otherwise a deny of one name would have no effect: the other would give the same value.
    owners: dict[str, str] = {}
    for reference in REFERENCES:
        for name in variables_of(reference):
            assert owners.setdefault(name, reference) == reference, name
    assert owners["A__A_A"] == "a/a_a"


def test_the_environment_is_the_process_s_own_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LICET_TEST_SECRET", "x1")
    assert ask(EnvironmentSecrets(), "LICET_TEST_SECRET") == "x1"


def test_a_chain_asks_in_order_and_stops_at_a_failure(tmp_path: Path) -> None:
    first, second = MemorySecrets({"A": "1"}), MemorySecrets({"A": "2", "B": "3"})
    assert [ask(ChainSecrets(first, second), name) for name in "ABC"] == ["1", "3", None]
    with pytest.raises(Unavailable):
        ask(ChainSecrets(FileSecrets(tmp_path / "none"), second), "B")


# The file -------------------------------------------------------------------------------------------------------------

READ = [
    ("A=b", "b"),
    ("A=b-c_d.e/f:g@h=i==", "b-c_d.e/f:g@h=i=="),
    ("A=b # comment", "b"),
    ("A=b\t# comment", "b"),
    ("A='b # c'", "b # c"),
    ("A='$b `c` \\n \"d\"' # comment", '$b `c` \\n "d"'),
    ('A="b\\nc\\t\\"d\\" \\\\ \'e\'"', "b\nc\t\"d\" \\ 'e'"),
    ("A=b\r", "b"),
    ("# A=c\n\n   # more\nA=b", "b"),
    ("github/token=x\nA=b", "b"),
    ("A=é", "é"),
    ("B='line'\nA='\u2028b\u0085'", "\u2028b\u0085"),
]


@pytest.mark.parametrize(("text", "value"), READ)
def test_the_value_of_a_line(tmp_path: Path, text: str, value: str) -> None:
    assert ask(FileSecrets(written(tmp_path, text)), "A") == value


WRONG = [
    # text, line, message
    ("hunter2", 1, "expected `NAME=value`"),
    ("A=b\nhunter2", 2, "expected `NAME=value`"),
    ("export A=hunter2", 1, "leave out `export`"),
    ("A =hunter2", 1, "without spaces"),
    (" A=hunter2", 1, "expected `NAME=value`"),
    ("A= hunter2", 1, "`A` has no value"),
    ("2A=hunter2", 1, "expected `NAME=value`"),
    ("A=", 1, "`A` has no value"),
    ("A=''", 1, "`A` is empty"),
    ("A=hunter2 hunter2", 1, "goes on after its value"),
    ("A=hunter2#hunter2", 1, "goes on after its value"),
    ("A=hunter2$x", 1, "goes on after its value"),
    ("A=$hunter2", 1, "needs 'single quotes'"),
    ("A=hunter2'x'", 1, "goes on after its value"),
    ("A=hunter2\\n", 1, "goes on after its value"),
    ("A='hunter2", 1, "needs 'single quotes'"),
    ("A='hunter2'hunter2", 1, "goes on after its value"),
    ('A="hunter2', 1, "needs 'single quotes'"),
    ('A="${hunter2}"', 1, "nothing is expanded"),
    ('A="`hunter2`"', 1, "nothing is expanded"),
    ('A="hunter2\\q"', 1, "unknown escape"),
    ("A='hunter2\x00'", 1, "control character"),
    ("A='hunter2\rB=x'", 1, "control character"),
    ("A=x\nB=y\nA=hunter2", 3, "`A` is there already, on line 1"),
    (b"A=x\nB=hunter2\xff", 2, "not UTF-8"),
    ("\ufeffA=hunter2", 1, "expected `NAME=value`"),
]


@pytest.mark.parametrize(("text", "line", "said"), WRONG)
def test_a_line_that_could_mean_two_things_is_an_error_that_does_not_repeat_it(
    tmp_path: Path, text: str | bytes, line: int, said: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(Unavailable) as caught:
        ask(FileSecrets(path), "A")
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_that_only_its_owner_can_read_is_fine(tmp_path: Path, mode: int) -> None:
    assert ask(FileSecrets(written(tmp_path, "A=b", mode)), "A") == "b"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o700, 0o4600])
def test_a_file_that_others_may_read_or_change_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, "A=b", mode)
    with pytest.raises(Unavailable, match=f"has mode {mode:04o}.*chmod 600 {path}"):
        ask(FileSecrets(path), "A")


@pytest.mark.who
def test_links_and_special_files_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "A=b")
    (tmp_path / "link").symlink_to(tmp_path / "secrets.env")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, said in (
        ("link", "is a link"),
        ("pipe", "is not a regular file"),
        (".", "is not a regular file"),
        ("none", "cannot be opened: No such file"),
    ):
        with pytest.raises(Unavailable, match=said):
            ask(FileSecrets(tmp_path / name), "A")
    if os.geteuid() != 0:
        return
    other = written(tmp_path, "A=b")
    os.chown(other, 12345, -1)
    with pytest.raises(Unavailable, match="belongs to another user: run `chown 0 "):
        ask(FileSecrets(other), "A")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="larger than 1048576 bytes"):
        ask(FileSecrets(written(tmp_path, "#" * (1 << 20) + "\n")), "A")


def test_a_changed_file_is_read_again_and_a_broken_one_gives_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "A=old")
    backend = FileSecrets(path)
    assert ask(backend, "A") == "old"
    path.write_text("A=new")
    assert ask(backend, "A") == "new"
    fresh = tmp_path / "fresh"
    fresh.write_text("A=own")
    fresh.chmod(0o600)
    fresh.replace(path)
    assert ask(backend, "A") == "own"
    path.chmod(0o644)
    for _ in range(2):
        with pytest.raises(Unavailable):
            ask(backend, "A")
    path.chmod(0o600)
    path.write_text("A='open")
    for _ in range(2):
        with pytest.raises(Unavailable):
            ask(backend, "A")
    path.unlink()
    with pytest.raises(Unavailable):
        ask(backend, "A")


# Several of them, through the front door ------------------------------------------------------------------------------


async def vault(reference: str) -> str | None:
    return {"A": "vault", "C": "vault"}.get(reference)


class Shop:
    """A user's own backend."""

    async def get(self, reference: str) -> str | None:
        return {"C": "shop", "D": "shop"}.get(reference)


def test_sources_are_asked_in_the_order_in_which_they_are_given(tmp_path: Path) -> None:
    file = written(tmp_path, "A=file\nB=file\n")
    environ = {"B": "environ", "SHOP__E": "environ"}
    backends = Backends.local(tmp_path / "state", secrets=[file, vault, Shop(), environ])
    found = {name: ask(backends.secrets, name) for name in ("A", "B", "C", "D", "shop/e", "F")}
    assert found == {"A": "file", "B": "file", "C": "vault", "D": "shop", "shop/e": "environ", "F": None}
    other = Backends.local(tmp_path / "state", secrets=(environ, Shop(), vault, file))
    assert [ask(other.secrets, name) for name in ("A", "B", "C")] == ["vault", "environ", "shop"]


def test_one_source_needs_no_list(tmp_path: Path) -> None:
    file = written(tmp_path, "A=file\n")
    assert ask(Backends.local(tmp_path / "state", secrets=file).secrets, "A") == "file"
    assert ask(Backends.local(tmp_path / "state", secrets={"A": "mapping"}).secrets, "A") == "mapping"
    assert ask(Backends.local(tmp_path / "state", secrets=Shop()).secrets, "D") == "shop"
    assert Backends.local(tmp_path / "state", secrets=None).secrets is None
    assert ask(Backends.local(tmp_path / "state", secrets=[]).secrets, "A") is None


@pytest.mark.parametrize("named", ["secrets", "secrets_file"])
def test_no_tool_reaches_a_file_of_secrets_however_it_is_named(tmp_path: Path, named: str) -> None:
    file = written(tmp_path, "A=file\n")
    given: dict[str, Any] = {named: file}
    backends = Backends.local(tmp_path / "state", **given)
    assert str(file) in backends.state
    assert str(tmp_path / "state") in backends.state


NO_SOURCES: dict[str, Any] = {
    "a text": "keys.env",
    "a text in a list": [Shop(), "hunter2"],
    "a number": 5,
    "nothing in a list": [None],
}


@pytest.mark.parametrize("given", NO_SOURCES.values(), ids=NO_SOURCES)
def test_an_invalid_source_of_secrets_is_refused_at_once_and_not_quoted(tmp_path: Path, given: Any) -> None:
    with pytest.raises(TypeError, match="a source of secrets is a Path, a mapping") as refused:
        Backends.local(tmp_path / "state", secrets=given)
    assert "hunter2" not in str(refused.value)


def test_a_secrets_file_and_sources_cannot_be_combined(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="put `Path"):
        Backends.local(tmp_path / "state", secrets=[vault], secrets_file=written(tmp_path, "A=file\n"))
