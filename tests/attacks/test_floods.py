"""What one call can cost the host is bounded: each attack is refused for the limit that it passes, and the host stays
small. Memory is compared with what the attack took before there were limits, which is several times as much."""

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attacks import flood_tools as tools
from attacks.flood_tools import MB
from licet import Backends
from licet.backends.limits import MOST_NAMES
from licet.declare.plain_json import is_heavy, plain_data
from licet.testing import Answer
from sandbox.levels import WALLED, call, gate, local_backends, needs_walls

GROWTH = 128 * MB


def peak() -> int:
    """The most memory that this process had since it was last reset."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) << 10 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.fixture
def bounded() -> Iterator[None]:
    """Hold this process to the growth that is promised."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        pytest.skip("the peak of the memory in use cannot be reset here")
    before = peak()
    yield
    assert peak() - before < GROWTH


def pieces(size: int) -> Iterator[bytes]:
    for _ in range(size // MB):
        yield bytes(MB)


def backends() -> Backends:
    site = lambda _: Answer(200, (), pieces(256 * MB))  # noqa: E731
    return Backends.memory(environ={"NAME": "x"}, http=_network(site))


def _network(site: Any) -> Any:
    from licet.backends.memory import MemoryHttp

    return MemoryHttp(site, {"a.test": ["93.184.216.34"]})


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("level", WALLED)
@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("result", {"size": 31 * MB}, "LIMIT_OUTPUT"),
        ("result", {"size": MB}, "LIMIT_OUTPUT"),
        ("head", {"size": 3 * MB}, "TOOL_CRASHED"),
        ("unread_files", {"many": 3000}, "LIMIT_HOST_FILES"),
        ("unread_answers", {"many": 60_000}, "LIMIT_WAITING"),
        ("unread_pieces", {"many": 100_000}, "TOOL_CRASHED"),
        ("headers", {"many": 300_000}, "LIMIT_HEADERS"),
        ("headers", {"many": 257}, "LIMIT_HEADERS"),
    ],
    ids=lambda value: str(value) if not isinstance(value, dict) else ",".join(map(str, value.values())),
)
@pytest.mark.sampled(5)
def test_a_worker_ends_its_own_call(tmp_path: Path, level: str, name: str, given: dict[str, Any], reason: str) -> None:
    needs_walls()
    (tmp_path / "a.txt").write_text("a")
    at = gate(tmp_path, level, getattr(tools, name), backends=_local(tmp_path))
    files = len(os.listdir("/proc/self/fd"))
    result = call(at, name, given)
    assert not result.ok
    assert result.reason in reason.split(" or "), result.error
    assert len(os.listdir("/proc/self/fd")) <= files + 32


def _local(place: Path) -> Backends:
    """Files of this machine, and a network in memory."""
    local = local_backends(place / "state", environ={"NAME": "x"})
    from msgspec.structs import replace

    return replace(local, http=backends().http)


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("size", [31 * MB, 2 * MB, MB])
def test_a_stored_value_is_compared_before_it_is_parsed(tmp_path: Path, size: int) -> None:
    needs_walls()
    at = gate(tmp_path, "restricted", tools.value)
    result = call(at, "value", {"size": size})
    assert result.ok, result.error
    assert result.value.startswith("LIMIT_SIZE: expected a value of "), result.value


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("level", [*WALLED, "native"])
def test_what_is_fetched_at_once_counts_together(tmp_path: Path, level: str) -> None:
    needs_walls()
    at = gate(tmp_path, level, tools.fetches, backends=backends())
    result = call(at, "fetches", {"many": 8, "size": 256 * MB})
    assert result.value == ["LIMIT_HOST_MEMORY"] * 8, result.error
    assert call(at, "fetches", {"many": 20, "size": MB}).value == ["LIMIT_SIZE"] * 20


@pytest.mark.parametrize("level", [*WALLED, "native"])
def test_limits_of_the_host_can_be_raised_and_lowered(tmp_path: Path, level: str) -> None:
    needs_walls()
    site = _network(lambda asked: Answer(200, (), pieces(20 * MB) if len(asked.headers) < 10 else b""))
    parts = Backends.memory(http=site)
    at = gate(tmp_path, level, tools.fetches, tools.headers, backends=parts, limits={"host_memory_mb": 10})
    assert call(at, "fetches", {"many": 1, "size": 64 * MB}).value == ["LIMIT_HOST_MEMORY"]
    many = {"host_memory_mb": 90, "request_headers": 1000}
    at = gate(tmp_path, level, tools.fetches, tools.headers, backends=parts, limits=many)
    assert call(at, "fetches", {"many": 2, "size": 64 * MB}).value == [str(20 * MB)] * 2
    assert call(at, "headers", {"many": 900}).value == 200
    result = call(at, "headers", {"many": 1001})
    assert result.error == "LIMIT_HEADERS: a request has more than 1000 header lines (`limits.request_headers`)"
    assert "set a higher `limits.request_headers` under `capabilities`" in result.explain()


@pytest.mark.parametrize("level", [*WALLED, "native"])
@pytest.mark.sampled(1)
def test_a_directory_of_too_many_names_is_refused(tmp_path: Path, level: str) -> None:
    needs_walls()
    place = tmp_path / "many"
    place.mkdir()
    for number in range(MOST_NAMES + 1):
        os.mknod(place / f"{number}")
    at = gate(place, level, tools.names, backends=local_backends(tmp_path / "state"))
    result = call(at, "names")
    assert (result.reason, result.error) == (
        "LIMIT_SIZE",
        f"LIMIT_SIZE: the directory holds more than {MOST_NAMES} names",
    )
    (place / "0").unlink()
    (place / "1").unlink()
    assert call(at, "names").value == MOST_NAMES  # with the manifest


@pytest.mark.parametrize("level", WALLED)
@pytest.mark.sampled(1)
def test_lists_count_as_memory_of_the_call(tmp_path: Path, level: str) -> None:
    needs_walls()
    place = tmp_path / "many"
    place.mkdir()
    for number in range(4999):
        os.mknod(place / f"{number:0200}")
    local = local_backends(tmp_path / "state")
    at = gate(place, level, tools.lists, backends=local, limits={"host_memory_mb": 1})
    assert call(at, "lists", {"many": 20}).value == ["LIMIT_HOST_MEMORY"] * 20
    at = gate(place, level, tools.lists, backends=local, limits={"host_memory_mb": 8})
    assert call(at, "lists", {"many": 20}).value == ["5000"] * 20  # which are 20 MB together


@pytest.mark.parametrize("level", ["native"])
def test_files_that_a_tool_keeps_open_are_counted(tmp_path: Path, level: str) -> None:
    (tmp_path / "a.txt").write_text("a")
    at = gate(tmp_path, level, tools.open_files, backends=_local(tmp_path))
    assert call(at, "open_files", {"many": 1000, "keep": False}).value == 1000
    assert call(at, "open_files", {"many": 64, "keep": True}).value == 64
    assert call(at, "open_files", {"many": 65, "keep": True}).reason == "LIMIT_HOST_FILES"


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "items",
    [[{}] * 30_000_000, ["x" * MB] * 500, [[]] * 300_000, [{"a": [[{}] * 1000] * 1000}] * 1000],
    ids=["objects", "texts", "a little less than is too long", "nested"],
)
def test_arguments_are_compared_before_they_are_written_down(tmp_path: Path, items: list[Any]) -> None:
    at = gate(tmp_path, "native", tools.listed)
    result = call(at, "listed", {"items": items})
    assert (result.code, result.reason) == ("input_invalid", "INPUT_INVALID")
    assert re.search("expected at most 1048576 bytes of arguments|expected fewer values", result.error)


# How much there is to parse is told from the text ---------------------------------------------------------------------


HEAVY = {
    "objects": tools.objects(MB),
    "lists": b"[" + b"[]," * 100_000 + b"0]",
    "numbers": b"[" + b"0," * 300_000 + b"0]",
    "names": b"{" + b",".join(b'"%d":0' % number for number in range(70_000)) + b"}",
    "behind a quote that is escaped": b'["\\"",' + b"{}," * 200_000 + b"0]",
    "integers of thousands of digits": b"[" + b"9" * 4000 + (b"," + b"9" * 4000) * 60 + b"]",
    "behind a backslash that is escaped": b'["\\\\",' + b"{}," * 200_000 + b"0]",
}
LIGHT = {
    "a table as one text": b'{"csv":"' + b"1,2,[3],{4:5}" * 70_000 + b'"}',
    "with quotes in it": b'["' + b'\\",[{' * 150_000 + b'"]',
    "digits in texts": b'["' + b"9" * 4000 + b'",' + b'"\\"' + b"0" * 400_000 + b'"]',
    "many numbers": b"[" + b"123456789.5," * 80_000 + b"0]",
    "some long integers": b"[" + b"9" * 4000 + b"]",
    "many short texts": b"[" + b'"abcd",' * 149_999 + b'"abcd"]',
    "a few large records": b"[" + b",".join(b'{"id":%d,"name":"someone","at":1.5}' % n for n in range(15_000)) + b"]",
    "nothing": b"",
}


@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY)
def test_a_text_of_too_many_values_is_known_before_it_is_parsed(text: bytes) -> None:
    assert plain_data(text)
    assert is_heavy(text)


@pytest.mark.parametrize("text", LIGHT.values(), ids=LIGHT)
def test_what_people_return_is_not_taken_for_that(text: bytes) -> None:
    assert not is_heavy(text)


@pytest.mark.parametrize("level", [*WALLED, "native"])
@pytest.mark.parametrize("how", ["write", "mkdir", "open"])
@pytest.mark.sampled(4)
def test_the_entries_that_a_call_makes_are_limited(tmp_path: Path, level: str, how: str) -> None:
    needs_walls()
    for limits, reason in (({"written_paths": 40}, "LIMIT_PATHS"), ({"written_paths": 1000}, "ALLOWED")):
        place = tmp_path / str(limits["written_paths"])
        place.mkdir()
        at = gate(place, level, tools.makes, backends=_local(tmp_path), limits=limits)
        result = call(at, "makes", {"how": how, "many": 100})
        assert result.reason == reason, result.error
        made = sum(len(names) + len(files) for _, names, files in os.walk(place)) - 1  # without the policy
        assert made <= 40 if reason == "LIMIT_PATHS" else made >= 100


@pytest.mark.parametrize("level", [*WALLED, "native"])
def test_one_file_is_written_as_often_as_a_tool_wants(tmp_path: Path, level: str) -> None:
    needs_walls()
    at = gate(tmp_path, level, tools.makes, backends=_local(tmp_path), limits={"written_paths": 1})
    assert call(at, "makes", {"how": "same", "many": 100}).ok
