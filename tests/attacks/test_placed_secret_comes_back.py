"""A secret that was placed by reference does not come back to the tool: not from a server, not from a program."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from licet import Gate, Tool
from licet.ports import Exchange
from licet.testing import Answer, MemoryHttp
from sandbox import echo_tools as tools
from sandbox.levels import WALLED, call, gate, local_backends, needs_walls

SECRET, PIN = "sk-live/4f9a+Zq\"71'x", "90214417"
LEVELS = ("native", *WALLED)


def site(exchange: Exchange) -> Answer:
    sent = dict(exchange.headers).get("Authorization", "").removeprefix("Bearer ") or SECRET
    raw = sent.encode()
    path = exchange.url.removeprefix("https://echo.test/")
    match path.split("?")[0]:
        case "body" | "body-again":
            return Answer(200, [("content-type", "text/plain")], b"you sent " + exchange.body + raw)
        case "header":
            return Answer(200, [("X-Echo", sent), (f"X-{raw.hex()}", "1"), ("Content-Type", "text/plain")], b"-")
        case "json":
            return Answer(200, [("content-type", "application/json")], json.dumps({"got": sent, "k": [sent]}).encode())
        case "json-number":
            return Answer(200, [("content-type", "text/plain")], b'{"pin": %b, "other": 5}' % raw)
        case "json-escaped":
            spelled = "".join(f"\\u{ord(sign):04x}" for sign in sent)
            return Answer(200, [("content-type", "application/json")], b'{"got": "%b"}' % spelled.encode())
        case "gzip":
            return Answer(200, [("content-encoding", "gzip")], gzip.compress(b"you sent " + raw))
        case "base64":
            return Answer(200, [], base64.b64encode(b"Bearer " + raw))
        case "utf-16":
            return Answer(200, [("content-type", "text/plain; charset=utf-16-le")], sent.encode("utf-16-le"))
        case "redirect":
            return Answer(302, [("location", f"/plain?key={raw.hex()}&again={base64.b64encode(raw).decode()}")])
        case "away":
            return Answer(302, [("location", f"https://{raw.hex()}.evil.test/")])
        case "nowhere":
            return Answer(302, [("location", f"ftp://user:{sent}@evil.test/")])
        case "halves":
            return Answer(200, [], [b"you sent ", raw[:1], raw[1:7], raw[7:-2], raw[-2:], b" and ", raw[:5], b"!"])
        case "bytes":
            return Answer(200, [], [bytes((byte,)) for byte in b"<" + raw + b">"])
        case "gzip-bytes":
            packed = gzip.compress(b"<" + raw + b">" * 2000)
            return Answer(200, [("content-encoding", "gzip")], [packed[at : at + 3] for at in range(0, len(packed), 3)])
    return Answer(200, [("content-type", "text/plain")], b"plain")


def world(place: Path, level: str, which: Tool) -> Gate:
    http = MemoryHttp(site, {"echo.test": ["93.184.216.34"]})
    backends = local_backends(
        place / "state", http=http, secrets={"KEY": SECRET, "PIN": PIN}, environ={"GIVEN": "of the host"}
    )
    return gate(place, level, which, backends=backends, sandbox={"allow_degraded": True})


def seen(place: Path, level: str, which: Tool, **arguments: Any) -> str:
    """What a tool has seen of what came back."""
    if level != "native":
        needs_walls()
    result = call(world(place, level, which), which.name, arguments)
    assert result.ok, result.explain()
    return "\n".join(text[::-1] if isinstance(text, str) else str(text) for text in result.value)


def holds_no_secret(text: str, *values: str) -> None:
    for value in values or (SECRET,):
        raw = value.encode()
        for form in (value, raw.hex(), base64.b64encode(raw).decode(), base64.b64encode(raw).decode().rstrip("=")):
            assert form not in text
    assert SECRET[4:12] not in text
    assert "[redacted" in text


ECHOES = ("body", "header", "json", "json-escaped", "gzip", "base64", "utf-16", "redirect", "away", "nowhere")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", ECHOES)
@pytest.mark.sampled(2)
def test_a_server_that_sends_it_back(tmp_path: Path, path: str, level: str) -> None:
    holds_no_secret(seen(tmp_path, level, tools.fetch_echo, path=path))


def test_a_server_that_sends_it_back_with_the_next_answer(tmp_path: Path) -> None:
    holds_no_secret(seen(tmp_path, "native", tools.fetch_echo, path="body-again", twice=True))


def test_an_answer_that_is_json_stays_json(tmp_path: Path) -> None:
    told = seen(tmp_path, "native", tools.fetch_echo, path="json-number", pin=True)
    assert "{'pin': '[redacted PIN]', 'other': 5}" in told
    holds_no_secret(told, PIN)
    told = seen(tmp_path, "native", tools.fetch_echo, path="json")
    assert "{'got': '[redacted KEY]', 'k': ['[redacted KEY]']}" in told


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", ["halves", "bytes", "gzip-bytes", "json", "header"])
@pytest.mark.sampled(2)
def test_a_server_that_sends_it_back_in_pieces(tmp_path: Path, path: str, level: str) -> None:
    told = seen(tmp_path, level, tools.stream_echo, path=path).replace("\n", "")
    holds_no_secret(told)
    if path == "halves":
        assert told.endswith(f"you sent [redacted KEY] and {SECRET[:5]}!")


PROGRAMS = {
    "printenv": 'printf "%s\\n" "$GIVEN"',
    "errors": 'printf "%s\\n" "$GIVEN" >&2',
    "env": "env",
    "export": "export -p",
    "base64": 'printf "%s" "$GIVEN" | base64',
    "hex": 'printf "%s" "$GIVEN" | od -An -tx1',
    "dump": 'printf "12345%s" "$GIVEN$GIVEN" | od -tx1',
    "words": 'printf "1234%s" "$GIVEN$GIVEN" | od',
    "characters": 'printf "1234%s" "$GIVEN$GIVEN" | od -c',
    "upper case": 'printf "%s" "$GIVEN" | tr a-z A-Z',
    "cut by its own limit": 'head -c 1048570 /dev/zero | tr "\\0" x; printf "%s" "$GIVEN$GIVEN"',
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", ["printenv", "errors", "base64"])
@pytest.mark.sampled(1)
def test_a_program_that_says_it(tmp_path: Path, case: str, level: str) -> None:
    holds_no_secret(seen(tmp_path, level, tools.spawn_echo, script=PROGRAMS[case]))


@pytest.mark.parametrize("case", PROGRAMS)
@pytest.mark.sampled(1)
def test_a_program_that_says_it_in_another_way(tmp_path: Path, case: str) -> None:
    needs_walls()
    told = seen(tmp_path, "native", tools.spawn_echo, script=PROGRAMS[case])
    if case == "cut by its own limit":
        assert "sk-l" not in told
    else:
        holds_no_secret(told.replace(" ", ""))


@pytest.mark.parametrize("case", sorted(PROGRAMS.keys() - {"cut by its own limit"}))
@pytest.mark.sampled(1)
def test_a_program_that_a_library_starts(tmp_path: Path, case: str) -> None:
    holds_no_secret(seen(tmp_path, "isolated", tools.popen_echo, script=PROGRAMS[case]))


def test_a_program_that_says_it_in_two_halves_with_time_between(tmp_path: Path) -> None:
    script = 'printf "%.7s" "$GIVEN"; sleep 0.3; printf "%s." "${GIVEN#???????}"'
    told = seen(tmp_path, "isolated", tools.popen_echo, script=script)
    assert told == "[redacted KEY].\n"


def test_a_program_that_is_talked_to_line_by_line_answers_each_line(tmp_path: Path) -> None:
    script = 'while read line; do echo "$line 7"; done; echo "$GIVEN"'
    assert (
        seen(tmp_path, "isolated", tools.popen_echo, script=script, by_line=True) == "go 7\n" * 3 + "\n[redacted KEY]\n"
    )


def test_what_nobody_reads_in_time_does_not_hold_a_program_up(tmp_path: Path) -> None:
    told = seen(tmp_path, "isolated", tools.popen_late)
    code, size, first, line, ended = told.split("\n")[:3] + told.split("\n")[3:4] + told.split("\n")[-1:]
    assert (code, size, ended) == ("0", str(50_000 + len("[redacted KEY]")), "True")
    assert first.startswith("[redacted KEY]xxx")
    assert line == "[redacted KEY]"
