"""The level `isolated`: direct access to exactly the grant, by the kernel for files and by the host for connections."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from licet import Gate
from licet.backends.memory import Answer
from loopback import serving
from sandbox import net_tools as tools
from sandbox.levels import call, gate, local_backends, needs_walls


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


@pytest.fixture
def port() -> Iterator[int]:
    with serving(lambda _: Answer(200, [], b"hello")) as server:
        yield server.port


def reaching(place: Path, level: str, *grants: str, **more: object) -> Gate:
    backends = local_backends(place / "state")
    every = (tools.get_with_urllib, tools.get_with_streams, tools.touch)
    return gate(place, level, *every, backends=backends, grants=list(grants), **more)  # type: ignore[arg-type]


FILES = {
    "reading what is granted": ("read", "in/file", "old"),
    "reading beside it": ("read", "out/file", "no: PermissionError"),
    "reading what is denied inside it": ("read", "in/denied/file", "no: PermissionError"),
    "reading beside what is denied": ("read", "in/beside/file", "old"),
    "reading through a link": ("read", "in/link", "no: PermissionError"),
    "writing what may be read": ("write", "in/file", "no: PermissionError"),
    "writing where it is granted": ("write", "work/file", 3),
    "writing a new file there": ("write", "work/new", 3),
    "deleting there, which asks": ("delete", "work/file", "no: PermissionError"),
    "renaming there, which deletes": ("rename", "work/file", "no: PermissionError"),
    "reading what the host keeps": ("read", "state/key", "no: PermissionError"),
    "reading the manifest": ("read", "agent.yaml", "no: PermissionError"),
    "listening": ("listen", "", "no: PermissionError"),
}


@pytest.mark.parametrize("case", FILES)
@pytest.mark.sampled(3)
def test_files_are_reached_as_far_as_they_are_granted(tmp_path: Path, case: str) -> None:
    for name in ("in/file", "in/denied/file", "in/beside/file", "out/file", "work/file", "state/key"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out" / "file")
    what, path, expected = FILES[case]
    at = reaching(
        tmp_path,
        "isolated",
        f"fs:read:{tmp_path}/in",
        f"fs:read:{tmp_path}/state",
        f"fs:write:{tmp_path}/work",
        deny=[f"fs:*:{tmp_path}/in/denied"],
    )
    assert call(at, "touch", {"what": what, "path": str(tmp_path / path)}).unwrap() == expected


@pytest.mark.parametrize("case", [case for case, (what, _, _) in FILES.items() if what != "listen"])
@pytest.mark.sampled(4)
def test_at_restricted_no_file_is_reached_at_all(tmp_path: Path, case: str) -> None:
    for name in ("in/file", "work/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    what, path, _ = FILES[case]
    at = reaching(tmp_path, "restricted", f"fs:read:{tmp_path}/in", f"fs:write:{tmp_path}/work")
    assert str(call(at, "touch", {"what": what, "path": str(tmp_path / path)}).unwrap()).startswith("no: ")


def test_libraries_connect_where_tcp_is_granted_and_nowhere_else(tmp_path: Path, port: int) -> None:
    at = reaching(tmp_path, "isolated", f"network:tcp:127.0.0.1:{port}", private=["127.0.0.0/8"])
    assert call(at, "get_with_urllib", {"url": f"http://127.0.0.1:{port}/a"}).unwrap() == "hello"
    assert call(at, "get_with_streams", {"port": port}).unwrap() == "hello"
    refused = call(at, "get_with_urllib", {"url": f"http://127.0.0.1:{port + 1}/a"})
    # At this class only a rule that names `tcp` covers a connection.
    assert "PermissionError(13, 'HOST_NOT_ALLOWED: 127.0.0.1 is allowed, but not with port" in refused.unwrap()
    assert [event.reason for event in refused.events if event.reason] == ["HOST_NOT_ALLOWED"]
    refused = call(at, "get_with_urllib", {"url": "http://evil.test/a"})
    assert "HOST_NOT_ALLOWED: evil.test is not in the declared allowedHosts" in refused.unwrap()


def test_at_restricted_no_library_connects(tmp_path: Path, port: int) -> None:
    at = reaching(tmp_path, "restricted", f"network:tcp:127.0.0.1:{port}", private=["127.0.0.0/8"])
    assert call(at, "get_with_urllib", {"url": f"http://127.0.0.1:{port}/a"}).unwrap().startswith("no: ")
    assert call(at, "get_with_streams", {"port": port}).unwrap() == "no: PermissionError"
