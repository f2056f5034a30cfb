"""`ctx.secrets`: declared secrets, placeholders that work in one call only, and redaction."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from core.liars import Liar
from guard.grants import grant
from licet.backends.secrets import MemorySecrets
from licet.errors import Refused
from licet.guard.handles.secrets_and_kv import ScopedSecrets
from licet.guard.ports import Unavailable
from licet.guard.redaction.redact import Redactor

VALUES = {"WEATHER_API_KEY": "sunny-1234", "github/token": 'ghp "quoted"\nline'}


def scoped(
    needs: tuple[str, ...] = ("WEATHER_API_KEY", "github/token"), backend: Any = None, **given: Any
) -> tuple[ScopedSecrets, Redactor]:
    redactor = Redactor()
    held = grant([f"secret:read:{need}" for need in needs], **given)
    return ScopedSecrets(held, backend or MemorySecrets(VALUES), redactor), redactor


def refusal(act: Callable[[], Any]) -> Refused:
    async def acted() -> None:
        found = act()
        if asyncio.iscoroutine(found):
            await found

    with pytest.raises(Refused) as caught:
        asyncio.run(acted())
    return caught.value


def test_a_declared_secret_is_handed_out_and_remembered_for_redaction() -> None:
    handle, redactor = scoped()
    assert asyncio.run(handle.get("WEATHER_API_KEY")) == "sunny-1234"
    assert redactor.text("it is sunny-1234") == "it is [redacted WEATHER_API_KEY]"


@pytest.mark.parametrize("reference", ["STRIPE_KEY", "WEATHER_API_KEY2", "github", "github/token/x", "weather_api_key"])
def test_an_undeclared_secret_is_refused_by_get_and_by_ref(reference: str) -> None:
    handle, redactor = scoped()
    message = f"SECRET_NOT_DECLARED: {reference} is not in the tool's declared secrets"
    assert str(refusal(lambda: handle.get(reference))) == message
    assert str(refusal(lambda: handle.ref(reference))) == message
    assert not redactor


@pytest.mark.parametrize("reference", ["*", "github/*", "", "a b", "x" * 2000, "a//b", None, 7])
def test_a_malformed_secret_reference_is_refused(reference: Any) -> None:
    handle, _ = scoped(("*",))
    if reference in (None, 7):  # the words for these are names like any other, and nobody knows them
        assert refusal(lambda: handle.get(reference)).code == "BACKEND_MISSING"
    else:
        assert refusal(lambda: handle.get(reference)).code == "SECRET_NOT_DECLARED"
        assert refusal(lambda: handle.ref(reference)).code == "SECRET_NOT_DECLARED"


def test_a_str_subclass_is_looked_up_as_the_reference_that_was_checked() -> None:
    asked: list[str] = []

    async def backend(reference: str) -> str:
        asked.append(reference)
        return "value"

    handle, _ = scoped(("WEATHER_API_KEY",), backend)
    assert asyncio.run(handle.get(Liar("github/token", "WEATHER_API_KEY"))) == "value"
    assert asked == ["WEATHER_API_KEY"]
    assert type(asked[0]) is str


async def failing(reference: str) -> str:
    raise RuntimeError("the value was sunny-1234")


async def unfit(reference: str) -> str:
    raise Unavailable("/etc/secrets.env has mode 0644: run `chmod 600 /etc/secrets.env`")


async def numbers(reference: str) -> Any:
    return 1234


NO_VALUE = [
    (MemorySecrets({}), "BACKEND_MISSING: no backend knows WEATHER_API_KEY"),
    (failing, "BACKEND_MISSING: the backend for WEATHER_API_KEY failed: RuntimeError"),
    (unfit, "BACKEND_MISSING: the backend for WEATHER_API_KEY cannot be used"),
    (numbers, "BACKEND_MISSING: no backend knows WEATHER_API_KEY"),
]


@pytest.mark.parametrize(("backend", "message"), NO_VALUE)
def test_a_secret_that_no_backend_has_is_refused_as_backend_missing(backend: Any, message: str) -> None:
    handle, redactor = scoped(backend=backend)
    error = refusal(lambda: handle.get("WEATHER_API_KEY"))
    assert str(error) == message
    assert error.__cause__ is None
    assert error.__context__ is None  # what the backend said may hold anything
    assert ("chmod 600" in error.explain()) == (backend is unfit)
    assert not redactor


def test_a_placeholder_is_replaced_in_text_and_bytes_and_its_value_remembered() -> None:
    async def run() -> None:
        handle, redactor = scoped()
        place = handle.ref("WEATHER_API_KEY")
        assert place == handle.ref("WEATHER_API_KEY")
        assert place != handle.ref("github/token")
        assert type(place) is str
        assert not redactor
        assert await handle.resolve(f"Bearer {place}") == "Bearer sunny-1234"
        assert redactor.text("sunny-1234") == "[redacted WEATHER_API_KEY]"
        assert await handle.resolve_bytes(b"\xff\x00" + place.encode() + b"\xfe") == b"\xff\x00sunny-1234\xfe"
        assert await handle.resolve("no placeholder") == "no placeholder"

    asyncio.run(run())


def test_a_secret_is_escaped_where_it_replaces_a_placeholder() -> None:
    async def run() -> None:
        handle, _ = scoped()
        body = json.dumps({"token": handle.ref("github/token")}).encode()
        sent = await handle.resolve_bytes(body, lambda value: json.dumps(value)[1:-1])
        assert json.loads(sent) == {"token": VALUES["github/token"]}

    asyncio.run(run())


def test_a_value_that_looks_like_a_placeholder_is_left_alone() -> None:
    async def run() -> None:
        handle, _ = scoped(("A", "B"), lambda reference: values(reference))
        places["A"], places["B"] = handle.ref("A"), handle.ref("B")
        assert await handle.resolve(f"{places['A']}") == places["B"]

    places: dict[str, str] = {}

    async def values(reference: str) -> str:
        return places["B"] if reference == "A" else "the value of B"

    asyncio.run(run())


def test_every_read_and_every_replaced_placeholder_is_an_event() -> None:
    seen: list[Any] = []
    handle, _ = scoped(seen=seen)

    async def run() -> None:
        await handle.get("WEATHER_API_KEY")
        await handle.resolve(handle.ref("github/token"))

    asyncio.run(run())
    refusal(lambda: handle.get("OTHER"))
    kinds = [(type(event).__name__, event.capability) for event in seen]
    assert kinds == [
        ("CapabilityGranted", "secret:read:WEATHER_API_KEY"),
        ("CapabilityGranted", "secret:read:github/token"),
        ("CapabilityGranted", "secret:read:github/token"),
        ("CapabilityDenied", "secret:read:OTHER"),
    ]
    assert "sunny-1234" not in repr(seen)


def test_a_handle_that_outlives_its_call_is_refused() -> None:
    redactor = Redactor()
    held = grant(["secret:read:WEATHER_API_KEY"])
    handle = ScopedSecrets(held, MemorySecrets(VALUES), redactor)
    place = handle.ref("WEATHER_API_KEY")
    held.over = True
    for act in (lambda: handle.get("WEATHER_API_KEY"), lambda: handle.resolve(place)):
        assert refusal(act).code == "SESSION_ENDED"
    assert not redactor


def test_the_repr_of_the_handle_shows_no_secret() -> None:
    handle, _ = scoped()
    asyncio.run(handle.get("WEATHER_API_KEY"))
    assert "sunny" not in repr(handle)
