"""A hijacked program tries to learn a key, or to publish it at the very host that the key is for.

Each attack works against a proxy that replaces the stand-in wherever it is, and the key in answers piece by piece.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from msgspec import Struct

from licet.core.policy.inspection import Inspection, StandIn
from licet.sandbox.inspection.stand_ins import KeySentAway, StandIns, read_keys

from .spelled import escaped, in_base64, percent

KEY = "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"
ENTRY = StandIn(name="TOKEN", secret="t", hosts=("api.test",), headers=("x-key",), body=("client_secret",))


async def _value(_: str) -> str:
    return KEY


def run_of_a_program() -> StandIns:
    return asyncio.run(read_keys(Inspection(("*",), (ENTRY,)), _value, lambda _: b""))


class Sent(Struct):
    target: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def as_text(self) -> str:
        return f"{self.target}\n{self.headers}\n{self.body.decode()}"


def naive(sent: Sent, stand_in: str) -> Sent:
    """Replaces the stand-in wherever it is."""
    headers = tuple((name.replace(stand_in, KEY), value.replace(stand_in, KEY)) for name, value in sent.headers)
    return Sent(sent.target.replace(stand_in, KEY), headers, sent.body.replace(stand_in.encode(), KEY.encode()))


def guarded(sent: Sent, run: StandIns, host: str) -> Sent:
    request = run.request(host, 443, secure=True)
    target, headers = request.target(sent.target), request.headers(sent.headers)
    kind = dict(sent.headers).get("content-type", "")
    if request.wants_body:
        return Sent(target, headers, b"".join(request.whole_body(sent.body, kind)))
    return Sent(target, headers, b"".join(request.feed(sent.body)) + request.finish())


JSON = (("content-type", "application/json"),)
PUBLISHED: dict[str, Callable[[str], Sent]] = {
    "path": lambda key: Sent(f"/search/{key}"),
    "query": lambda key: Sent(f"/search?q={key}"),
    "a gist": lambda key: Sent("/gists", JSON, b'{"files": {"a.txt": {"content": "%b"}}}' % key.encode()),
    "a text with a field in it": lambda key: Sent("/i", JSON, b'{"body": "client_secret: %b"}' % key.encode()),
    "part of a field": lambda key: Sent("/i", JSON, b'{"client_secret": "my %b"}' % key.encode()),
    "user agent": lambda key: Sent("/", (("user-agent", f"me {key}"),)),
    "name of a header": lambda key: Sent("/", ((f"x-{key}", "1"),)),
    "realm": lambda key: Sent("/", (("authorization", f'Digest username="{key}"'),)),
    "credential of a proxy": lambda key: Sent("/", (("proxy-authorization", f"Bearer {key}"),)),
    "cookie": lambda key: Sent("/", (("cookie", f"a={key}"),)),
    "multipart": lambda key: Sent("/", (("content-type", "multipart/form-data"),), key.encode()),
}


@pytest.mark.parametrize("attack", PUBLISHED)
def test_a_key_is_not_published_at_its_own_host(attack: str) -> None:
    run = run_of_a_program()
    sent = PUBLISHED[attack](run.environment["TOKEN"])
    assert KEY in naive(sent, run.environment["TOKEN"]).as_text()
    assert KEY not in guarded(sent, run, "api.test").as_text()


@pytest.mark.parametrize("attack", PUBLISHED)
def test_a_stand_in_goes_to_no_other_host(attack: str) -> None:
    run = run_of_a_program()
    sent = PUBLISHED[attack](run.environment["TOKEN"])
    assert KEY in naive(sent, run.environment["TOKEN"]).as_text()
    with pytest.raises(KeySentAway):
        guarded(sent, run, "evil.test")


ECHOED: dict[str, Callable[[str], list[bytes]]] = {
    "base64": lambda key: [in_base64(f"Bearer {key}").encode()],
    "base64 for URLs": lambda key: [in_base64(key, "~", "?", url=True).encode()],
    "percent": lambda key: [percent(key).encode()],
    "JSON": lambda key: [escaped(key).encode()],
    "every second escaped": lambda key: [escaped(key, lambda at: at % 2 == 0).encode()],
    "in two pieces": lambda key: [key[:20].encode(), key[20:].encode()],
    "byte by byte": lambda key: [bytes((byte,)) for byte in key.encode()],
    "base64 byte by byte": lambda key: [bytes((byte,)) for byte in in_base64(key, "me:").encode()],
    "cut in an escape": lambda key: [percent(key).encode()[:31], percent(key).encode()[31:]],
    "after a false beginning": lambda key: [(key[:30] + key[:5]).encode(), key[5:].encode()],
}


@pytest.mark.parametrize("attack", ECHOED)
def test_an_echo_shows_no_key(attack: str) -> None:
    run = run_of_a_program()
    run.request("api.test", 443, secure=True).headers((("authorization", f"Bearer {run.environment['TOKEN']}"),))
    pieces = ECHOED[attack](KEY)
    filtered_naively = b"".join(piece.replace(KEY.encode(), run.environment["TOKEN"].encode()) for piece in pieces)
    assert run._real.has(filtered_naively)
    answer = run.answer()
    assert answer is not None
    clean = b"".join(map(answer.feed, pieces)) + answer.finish()
    assert not run._real.has(clean)
    assert run._sent.has(clean)  # a program that looks for what it sent finds that
    assert len(clean) == len(b"".join(pieces))


GUESSES: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "base64": lambda guess: in_base64(guess).encode(),
    "behind others in base64": lambda guess: in_base64(f"me:{guess}").encode(),
    "percent": lambda guess: percent(guess).encode(),
    "JSON": lambda guess: escaped(guess).encode(),
    "one escape": lambda guess: percent(guess[0]).encode() + guess[1:].encode(),
}


def work(run: StandIns, text: bytes) -> Counter[str]:
    """Which functions a search calls, and how often."""
    seen: Counter[str] = Counter()

    def count(frame: FrameType, event: str, given: Any) -> None:
        seen[f"{event} {frame.f_code.co_qualname} {given.__qualname__ if event == 'c_call' else ''}"] += 1

    answer = run.answer(always=True)
    assert answer is not None
    sys.setprofile(count)
    try:
        answer.feed(text)
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("spelled", GUESSES)
@pytest.mark.parametrize("right", [5, 8, 12, 16])
def test_a_guess_that_begins_right_is_searched_in_the_same_steps(spelled: str, right: int) -> None:
    """A program that measures how long its own texts are searched would learn the key letter by letter."""
    run = run_of_a_program()
    wrong = "ghp_" + KEY[4:][::-1]
    guess, other = (GUESSES[spelled](text) + b" " for text in (KEY[:right] + wrong[right:], wrong))
    for cut in range(3):
        work(run, other[cut:])  # escapes that were met are remembered
        assert work(run, guess[cut:] * 50) == work(run, other[cut:] * 50)


def test_windows_are_too_long_to_guess() -> None:
    run = run_of_a_program()
    for search in (run._real, run._sent):
        for windows in (*(one for _, one in search._windows), *search._small):
            assert windows.width >= 64 / 6, windows
            assert not any(window.startswith(b"ghp_") for window in windows._table)
