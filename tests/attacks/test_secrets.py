"""A secret that a tool may use does not leave: not in what it says, and not by a placeholder."""

import ast
import asyncio
import base64
import html
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import pytest

from attacks.programs import programs
from guard.grants import grant
from licet import Refused, use_of_path
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.handles.secrets_and_kv import ScopedSecrets
from licet.guard.redaction.redact import Redactor
from licet.testing import Answer, MemoryHttp, MemorySecrets

# A secret that a tool has seen leaves in its result, its error or an event, as it is or encoded -----------------------


SECRET = 'sk_live/4eC39H+qLyj "W" <ö>&'
TOOLS_RULES = ("secret:read:STRIPE_KEY", "fs:read:/srv")

Way = tuple[Callable[[str], str], Callable[[str], str]]


def base64_of(before: str, after: str, encode: Any = base64.b64encode, decode: Any = base64.b64decode) -> Way:
    return lambda text: encode(f"{before}{text}{after}".encode()).decode(), lambda text: decode(text).decode()


# How a tool would encode it, and how whoever gets it would read it.
ENCODINGS: dict[str, Way] = {
    "as it is": (str, str),
    "base64": base64_of("", ""),
    "base64 of more, by one": base64_of("a", "b"),
    "base64 of more, by two": base64_of("ab", ""),
    "base64 of a header": base64_of("user:", ""),
    "URL-safe base64": base64_of("id:", "", base64.urlsafe_b64encode, base64.urlsafe_b64decode),
    "hex": (lambda text: text.encode().hex(), lambda text: bytes.fromhex(text).decode()),
    "upper hex": (lambda text: text.encode().hex().upper(), lambda text: bytes.fromhex(text).decode()),
    "percent": (lambda text: quote(text, safe=""), unquote),
    "a form": (quote_plus, unquote_plus),
    "JSON": (json.dumps, json.loads),
    "JSON in JSON": (lambda text: json.dumps(json.dumps(text)), lambda text: json.loads(json.loads(text))),
    "repr": (repr, ast.literal_eval),
    "HTML": (html.escape, html.unescape),
}


def read(decode: Callable[[str], str], text: str) -> str:
    """What somebody can read who gets a text."""
    try:
        return decode(text)
    except (ValueError, SyntaxError):
        return ""


def call(act: Callable[[str], Any], seen: list[Any] | None = None) -> tuple[Any, str, Redactor]:
    """A tool that gets the secret and does something with it: its result, its error, and the call's redactor."""
    redactor = Redactor()
    held = grant(TOOLS_RULES, seen=seen)
    secrets = ScopedSecrets(held, MemorySecrets({"STRIPE_KEY": SECRET}), redactor)

    async def tool() -> Any:
        value = await secrets.get("STRIPE_KEY")
        return act(value) if act is not ASK else held.check(use_of_path("read", f"/etc/{value}"))

    try:
        return asyncio.run(tool()), "", redactor
    except Exception as error:
        return None, str(error), redactor


def ASK(value: str) -> None:  # noqa: N802 - a mark, not a function
    raise NotImplementedError


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_result_does_not_carry_it_out(encoding: str) -> None:
    encode, decode = ENCODINGS[encoding]
    result, _, redactor = call(lambda value: encode(value))
    assert SECRET in read(decode, result)

    clean = redactor.text(result)
    assert "[redacted STRIPE_KEY]" in clean
    assert SECRET not in read(decode, clean)
    data = json.loads(redactor.json(json.dumps({"a": [{"b": result}], result: 1}).encode()))
    assert data == {"a": [{"b": clean}], clean: 1}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_error_does_not_carry_it_out(encoding: str) -> None:
    encode, decode = ENCODINGS[encoding]

    def fail(value: str) -> None:
        raise RuntimeError(encode(value))

    _, error, redactor = call(fail)
    assert SECRET in read(decode, error)
    assert "[redacted STRIPE_KEY]" in redactor.text(error)
    assert SECRET not in read(decode, redactor.text(error))


def test_a_refusal_and_its_event_do_not_carry_it_out() -> None:
    # The tool asks for a path that is made of the secret: the refusal repeats what it asked for.
    seen: list[Any] = []
    _, error, redactor = call(ASK, seen)
    assert SECRET in error
    assert SECRET in seen[-1].capability

    assert redactor.text(error) == "PATH_NOT_REACHABLE: read not permitted for /etc/[redacted STRIPE_KEY]"
    assert redactor.text(seen[-1].capability) == "fs:read:/etc/[redacted STRIPE_KEY]"
    assert SECRET not in redactor.text(seen[-1].rule)


def test_a_backend_that_fails_with_the_value_in_its_error_does_not_carry_it_out() -> None:
    async def backend(reference: str) -> str:
        raise RuntimeError(f"could not decrypt {SECRET}")

    with pytest.raises(RuntimeError, match="sk_live"):
        asyncio.run(backend("STRIPE_KEY"))

    handle = ScopedSecrets(grant(TOOLS_RULES), backend, Redactor())
    with pytest.raises(Refused) as caught:
        asyncio.run(handle.get("STRIPE_KEY"))
    assert "sk_live" not in f"{caught.value} {caught.value.explain()}"
    assert caught.value.__context__ is None


# A placeholder is guessed, kept for another call, or put where its value would come back to the tool ------------------


VALUE = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
RULES = ("secret:read:STRIPE_KEY", "network:*:api.test", "process:exec:cat", "process:exec:env", "env:read:KEY")


def secrets(held: Any = None) -> ScopedSecrets:
    return ScopedSecrets(held or grant(RULES), MemorySecrets({"STRIPE_KEY": VALUE}), Redactor())


def test_a_placeholder_that_can_be_worked_out_gives_the_secret_away() -> None:
    # What others do: the reference in braces. Whoever controls a text controls what is put into it.
    text = json.dumps({"comment": "{{secrets.STRIPE_KEY}}"})
    assert VALUE in re.sub(r"\{\{secrets\.(\w+)\}\}", lambda found: {"STRIPE_KEY": VALUE}[found[1]], text)

    handle = secrets()
    place = handle.ref("STRIPE_KEY")
    guesses = ["{{secrets.STRIPE_KEY}}", "licet-ref-STRIPE_KEY", "licet-ref-" + "0" * 32, place[:-1], place[:-1] + "g"]
    for guess in (*guesses, place.upper(), place.replace("licet", "LICET")):
        assert asyncio.run(handle.resolve(guess)) == guess
        assert asyncio.run(handle.resolve_bytes(guess.encode())) == guess.encode()


def test_no_two_calls_have_the_same_and_none_knows_another_s() -> None:
    places = {secrets().ref("STRIPE_KEY") for _ in range(100)}
    assert len(places) == 100
    one, other = secrets(), secrets()
    place = one.ref("STRIPE_KEY")
    other.ref("STRIPE_KEY")
    assert VALUE in asyncio.run(one.resolve(place))
    assert asyncio.run(other.resolve(place)) == place


def test_a_placeholder_in_a_url_is_sent_as_it_is() -> None:
    held = grant(RULES)
    handle = secrets(held)
    place = handle.ref("STRIPE_KEY")
    network = MemoryHttp(lambda exchange: Answer(200, (), exchange.url.encode()), {"api.test": ["93.184.216.34"]})
    fetch = ScopedFetch(held, network, handle)
    reply = asyncio.run(fetch(f"https://api.test/{place}?key={place}", headers={"Authorization": f"Bearer {place}"}))
    sent = network.sent[0]
    assert VALUE not in sent.url
    assert place in sent.url
    assert VALUE not in reply.text
    assert f"Bearer {VALUE}" in dict(sent.headers).values()  # where it belongs


def test_a_placeholder_in_a_result_stays_one() -> None:
    handle = secrets()
    place = handle.ref("STRIPE_KEY")
    redactor = Redactor()
    assert redactor.text(place) == place
    assert redactor.json(b'{"echo":["%b"]}' % place.encode()) == b'{"echo":["%b"]}' % place.encode()


def test_a_placeholder_in_arguments_or_input_of_a_program_stays_one() -> None:
    held = grant(RULES)
    handle = secrets(held)
    place = handle.ref("STRIPE_KEY")
    process = programs(*RULES, placeholders=handle)
    said = asyncio.run(process.spawn("cat", stdin=place.encode()))
    assert said.stdout_bytes == place.encode()
    # In the child's environment it is placed; what the child says of it is redacted.
    child = asyncio.run(process.spawn("env", env={"KEY": place}))
    assert child.stdout_bytes == b"KEY=[redacted STRIPE_KEY]\n"
    assert handle._redactor.text(VALUE) == "[redacted STRIPE_KEY]"
