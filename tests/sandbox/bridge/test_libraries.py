"""Unmodified libraries at `isolated`: they reach what is granted, with TLS between them and the other side, or fail."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from licet import Gate, Result, Tool
from licet.backends.memory import Answer, MemoryHttp
from loopback import Server, authority_file, serving
from sandbox import library_tools as tools
from sandbox.levels import call, gate, local_backends, needs_walls
from sandbox.postgres import database

NAMES = {"good.test": ["127.0.0.1"], "evil.test": ["127.0.0.1"]}
PATIENCE = {"wall_seconds": 120, "cpu_seconds": 100}


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


def page(_: object) -> Answer:
    return Answer(200, [("content-type", "text/plain; charset=utf-8")], b"a page")


def reaching(place: Path, server: Server, tool: Tool, level: str = "isolated") -> Gate:
    grants = [f"network:tcp:good.test:{server.port}", f"fs:read:{place}"]
    backends = local_backends(place / "state", http=MemoryHttp({}, NAMES))
    return gate(place, level, tool, backends=backends, limits=PATIENCE, grants=grants, private=["127.0.0.0/8"])


def denied(result: Result) -> list[str]:
    return [event.reason for event in result.events if event.reason]


@pytest.fixture
def plain() -> Iterator[Server]:
    with serving(page) as server:
        yield server


@pytest.mark.parametrize("library", tools.PAGES, ids=lambda tool: tool.name)
@pytest.mark.sampled(2)
def test_a_library_reaches_what_is_granted_and_nothing_else(tmp_path: Path, plain: Server, library: Tool) -> None:
    at = reaching(tmp_path, plain, library)
    assert call(at, library.name, {"url": f"http://good.test:{plain.port}/"}).unwrap() == "a page"
    made = plain.connections
    assert made
    for url in (f"http://evil.test:{plain.port}/", f"http://good.test:{plain.port - 1}/"):
        refused = call(at, library.name, {"url": url})
        assert refused.unwrap().startswith("no: ")
        assert "HOST_NOT_ALLOWED: " in refused.unwrap()
        # Some libraries also look for a program that tells them where they run.
        assert set(denied(refused)) - {"BINARY_NOT_ALLOWED"} == {
            "HOST_NOT_ALLOWED"
        }  # at this class only a rule that names `tcp` covers it
    assert plain.connections == made


@pytest.mark.parametrize("library", tools.PAGES, ids=lambda tool: tool.name)
@pytest.mark.sampled(2)
def test_tls_is_between_the_library_and_the_server(tmp_path: Path, library: Tool) -> None:
    trust = authority_file(tmp_path)
    for name, said in {"good.test": "a page", "other.test": "CERTIFICATE_VERIFY_FAILED"}.items():
        with serving(page, names=(name,)) as server:
            at = reaching(tmp_path, server, library)
            url = f"https://good.test:{server.port}/"
            assert said in call(at, library.name, {"url": url, "authority": trust}).unwrap()


@pytest.mark.parametrize("names", [(), ("good.test",)], ids=["plain", "tls"])
def test_a_database_driver_reaches_what_is_granted_and_nothing_else(tmp_path: Path, names: tuple[str, ...]) -> None:
    trust = authority_file(tmp_path) if names else ""
    with database("found", names) as server:
        at = reaching(tmp_path, server, tools.with_pg8000)
        asked = {"host": "good.test", "port": server.port, "authority": trust}
        assert call(at, "with_pg8000", asked).unwrap() == "found"
        refused = call(at, "with_pg8000", {**asked, "host": "evil.test"})
        assert "HOST_NOT_ALLOWED: " in refused.unwrap()
        assert denied(refused) == ["HOST_NOT_ALLOWED"]
        assert server.connections == 1


def test_a_database_that_is_another_is_not_believed(tmp_path: Path) -> None:
    trust = authority_file(tmp_path)
    with database("found", ("other.test",)) as server:
        at = reaching(tmp_path, server, tools.with_pg8000)
        asked = {"host": "good.test", "port": server.port, "authority": trust}
        assert "CERTIFICATE_VERIFY_FAILED" in call(at, "with_pg8000", asked).unwrap()


@pytest.mark.parametrize("library", tools.PAGES, ids=lambda tool: tool.name)
@pytest.mark.sampled(2)
def test_at_restricted_no_library_connects(tmp_path: Path, plain: Server, library: Tool) -> None:
    at = reaching(tmp_path, plain, library, "restricted")
    result = call(at, library.name, {"url": f"http://good.test:{plain.port}/"})
    assert str(result.unwrap()).startswith("no: ")
    assert plain.connections == 0
