"""The ready-made tools for HTTP and programs, through a gate: over a network in memory, and over a real one."""

import json
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate
from licet import Backends, RegistrationRefused, Result, Tool
from licet.backends.memory import Answer, MemoryHttp
from licet.guard.execution import SandboxUnavailable, Walls
from licet.guard.ports import Exchange
from licet.testing import InThisProcess
from licet.tools import http_get, http_post, run_command
from licet.tools.limits import MOST_TEXT
from loopback import serving


def ask(folder: Path, tool: Tool, backends: Backends, arguments: dict[str, Any], **capabilities: Any) -> Result:
    at = gate(folder, tool, backends=backends, **capabilities)
    return call(at, tool.name, arguments)


def site(exchange: Exchange) -> Answer:
    match exchange.url.partition(".test")[2]:
        case "/latin":
            return Answer(200, (("content-type", "text/plain; charset=ISO-8859-1"),), b"\xe9")
        case "/odd":
            return Answer(200, (("content-type", "text/plain; charset=unicode_escape"),), b"\\u0041")
        case "/long":
            return Answer(200, (), b"x" * (MOST_TEXT + 1))
        case "/exact":
            return Answer(200, (), b"x" * MOST_TEXT)
        case "/away":
            return Answer(302, (("location", "http://other.test/"),), b"")
        case "/missing":
            return Answer(404, (), b"nothing here")
    said = {"method": exchange.method, "headers": dict(exchange.headers), "body": exchange.body.decode()}
    return Answer(200, (("x-a", "1"),), json.dumps(said).encode())


def over(folder: Path, tool: Tool, path: str, **arguments: Any) -> Result:
    http = MemoryHttp(site, lambda host: ["93.184.216.34"])
    given = {"url": f"http://api.test{path}", **arguments}
    return ask(
        folder, tool, Backends.memory(http=http, sandbox=InThisProcess()), given, destinations={"allow": ["api.test"]}
    )


def test_a_get_gives_status_headers_and_text(tmp_path: Path) -> None:
    answer = over(tmp_path, http_get, "/a", headers={"X-B": "2"}).unwrap()
    said = json.loads(answer.pop("text"))
    assert answer.pop("headers")["x-a"] == "1"
    assert answer == {"status": 200, "url": "http://api.test/a", "truncated": False}
    assert said["method"] == "GET"
    assert "2" in said["headers"].values()


POSTS: dict[str, tuple[dict[str, Any], str]] = {
    "data": ({"json": {"a": [1]}}, '{"a":[1]}'),
    "a text": ({"body": "é"}, "é"),
    "an empty list": ({"json": []}, "[]"),
    "nothing": ({}, ""),
}


@pytest.mark.parametrize(("given", "body"), POSTS.values(), ids=POSTS)
def test_a_post_sends_data_or_a_text(tmp_path: Path, given: dict[str, Any], body: str) -> None:
    said = json.loads(over(tmp_path, http_post, "/a", **given).unwrap()["text"])
    assert (said["method"], said["body"].replace(" ", "")) == ("POST", body)


def test_a_post_of_both_is_neither(tmp_path: Path) -> None:
    assert "expected `json` or `body`, not both" in over(tmp_path, http_post, "/a", json={}, body="x").error


TEXTS: dict[str, tuple[str, int, str, bool]] = {
    "in another encoding": ("/latin", 200, "é", False),
    "in a codec that is no encoding": ("/odd", 200, "\\u0041", False),
    "too long": ("/long", 200, "x" * MOST_TEXT, True),
    "just not too long": ("/exact", 200, "x" * MOST_TEXT, False),
    "of an error": ("/missing", 404, "nothing here", False),
}


@pytest.mark.parametrize(("path", "status", "text", "truncated"), TEXTS.values(), ids=TEXTS)
def test_the_text_is_what_a_reader_expects(tmp_path: Path, path: str, status: int, text: str, truncated: bool) -> None:
    answer = over(tmp_path, http_get, path).unwrap()
    assert (answer["status"], answer["text"], answer["truncated"]) == (status, text, truncated)


def test_a_redirect_to_another_host_is_refused(tmp_path: Path) -> None:
    assert over(tmp_path, http_get, "/away").reason == "HOST_NOT_ALLOWED"


def test_a_read_only_agent_cannot_post(tmp_path: Path) -> None:
    backends = Backends.memory(http=MemoryHttp(site))
    reach = {"destinations": {"allow": ["api.test"]}, "max_side_effect_class": "read_only"}
    with pytest.raises(RegistrationRefused, match="write_limited"):
        ask(tmp_path, http_post, backends, {"url": "http://api.test"}, **reach)


def test_it_works_over_a_real_connection(tmp_path: Path) -> None:
    with serving(lambda exchange: Answer(200, (), b"hello")) as server:
        given = {"url": f"http://127.0.0.1:{server.port}/"}
        result = ask(tmp_path, http_get, Backends.local(tmp_path), given, destinations={"allow": ["127.0.0.1"]})
    assert result.unwrap()["text"] == "hello"


# run_command ----------------------------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "without walls": ({"command": ["true"]}, "SANDBOX_UNAVAILABLE", "true cannot be run"),
    "another program": ({"command": ["sh", "-c", "true"]}, "BINARY_NOT_ALLOWED", "sh is not in"),
    "a shell line": ({"command": "true; sh"}, "INPUT_INVALID", "`command`"),
    "nothing": ({"command": []}, "TOOL_FAILED", "expected `command`"),
    "no time": ({"command": ["true"], "timeout_seconds": 0}, "TOOL_FAILED", "expected `timeout_seconds`"),
}


class WithoutWalls(InThisProcess):
    """Tools run in this process, and no walls can be put around their programs."""

    def walls(self, held: Any) -> Walls:
        """Refuse."""
        raise SandboxUnavailable("no walls here")


@pytest.mark.parametrize(("given", "reason", "said"), COMMANDS.values(), ids=COMMANDS)
def test_a_program_that_may_not_run_does_not(tmp_path: Path, given: dict[str, Any], reason: str, said: str) -> None:
    allowed = {"process": {"allowed_binaries": ["true"]}, "fs_reach": {"read": [], "write": []}}
    result = ask(tmp_path, run_command, Backends.local(tmp_path, sandbox=WithoutWalls()), given, **allowed)
    assert (result.reason, said in result.error) == (reason, True), result.error
