"""Long results are cut, without half a secret at the end, and the rest is not searched."""

import asyncio
import base64
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from counted import work
from guard.gates import call, gate
from licet import Backends, Context, Result, tool
from licet.core.decision.request import Request
from licet.errors import Refused
from licet.guard import result_parts
from licet.guard.execution import JsonText, Raised
from licet.guard.redaction.redact import BLOCK, Redactor, in_turn

SECRET = "s3cr3t-v4lue-9000"


@tool(needs=["secret:read:*"], effect="read_only", sandbox="native")
async def flood(ctx: Context, how: str, before: int, times: int) -> Any:
    """Return or raise a great deal, with a secret in it."""
    value = base64.b64encode((await ctx.secrets.get("token")).encode()).decode()
    told = "." * before + value + "%41\\n" * times
    if how == "error":
        raise ValueError(told)
    return told if how == "text" else [told]


def flooded(tmp_path: Path, **given: Any) -> Result:
    async def secrets(reference: str) -> str:
        return SECRET

    at = gate(tmp_path, flood, backends=Backends.memory(secrets=secrets), secrets=["token"], limits={"output_kb": 1})
    return call(at, "flood", given)


@pytest.mark.parametrize("before", [900, 960, *range(1000, 1030, 3)])
@pytest.mark.parametrize("how", ["text", "list", "error"])
@pytest.mark.sampled(12)
def test_a_cut_result_does_not_end_with_half_a_secret(tmp_path: Path, how: str, before: int) -> None:
    result = flooded(tmp_path, how=how, before=before, times=300)
    encoded = base64.b64encode(SECRET.encode()).decode()
    shown = result.error if how == "error" else result.value
    assert result.ok is (how != "error")
    assert "." * min(before, 900) in shown
    assert len(shown) <= 1024
    assert encoded[:4] not in shown


@tool(needs=["secret:read:*"], effect="read_only", sandbox="native")
async def split(ctx: Context, how: str) -> Any:
    """Return or raise a secret, with something in it that is no character."""
    value = await ctx.secrets.get("token")
    if how == "bytes":  # as a worker may send it
        return JsonText(f'["{value[:5]}'.encode() + b"\xff" + f'{value[5:]}{"." * 2000}"]'.encode())
    raise ValueError(f"{value[:5]}\ud800{value[5:]}")


@pytest.mark.parametrize("how", ["bytes", "error"])
def test_what_is_no_character_does_not_join_the_parts_of_a_secret(tmp_path: Path, how: str) -> None:
    async def secrets(reference: str) -> str:
        return SECRET

    at = gate(tmp_path, split, backends=Backends.memory(secrets=secrets), secrets=["token"], limits={"output_kb": 1})
    result = call(at, "split", {"how": how})
    assert SECRET[:5] in f"{result.value} {result.error}"
    assert SECRET not in f"{result.value} {result.error} {result.events}"


@pytest.mark.parametrize("how", ["text", "list", "error"])
def test_the_part_that_is_cut_off_is_not_searched(tmp_path: Path, how: str) -> None:
    flooded(tmp_path, how=how, before=10, times=10)  # so that what is made once is not counted
    small, large = (
        work(lambda times=times: flooded(tmp_path, how=how, before=10, times=times))  # type: ignore[misc]
        for times in (20_000, 200_000)
    )
    assert large < 1.2 * small


@tool(needs=["secret:read:*"], effect="read_only", sandbox="native")
async def many(ctx: Context, number: int) -> list[str]:
    """Return very many short texts after seeing a secret, which is one of them."""
    value = await ctx.secrets.get("token")
    return [value.upper(), *["ab"] * number]


def many_gate(tmp_path: Path) -> Any:
    return gate(tmp_path, many, backends=Backends.memory(secrets={"token": SECRET}), secrets=["token"])


def test_very_many_short_texts_are_redacted_in_one_search(tmp_path: Path) -> None:
    at = many_gate(tmp_path)
    assert call(at, "many", {"number": 10}).value == ["[redacted token]"] + ["ab"] * 10
    few, lots = (work(lambda number=number: call(at, "many", {"number": number})) for number in (10, 100_000))  # type: ignore[misc]
    assert lots - few < 2 * 100_000  # a look at each value is fine, a search in each is not


def test_other_tasks_run_while_a_long_result_is_redacted(tmp_path: Path) -> None:
    at, turns = many_gate(tmp_path), 0

    async def main() -> None:
        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        async with at.session("one") as session:
            before = turns
            await session.call("many", {"number": 2})
            short = turns - before
            assert (await session.call("many", {"number": 150_000})).ok
        counting.cancel()
        assert turns - before - short >= 150_000 * 5 // BLOCK

    asyncio.run(main())


def test_a_result_that_cannot_be_searched_in_time_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Redactor.work

    def endless(redactor: Redactor, raw: bytes, *, as_json: bool = False, cut: bool = False) -> Any:
        while as_json:  # the result; its refusal is no JSON
            yield
        return (yield from real(redactor, raw, cut=cut))

    monkeypatch.setattr(Redactor, "work", endless)
    monkeypatch.setattr(result_parts, "CLOSING_SECONDS", 0.05)
    at = gate(
        tmp_path,
        many,
        backends=Backends.memory(secrets={"token": SECRET}),
        secrets=["token"],
        limits={"wall_seconds": 1},
    )
    result = call(at, "many", {"number": 2})
    assert (result.ok, result.value, result.reason) == (False, None, "LIMIT_TIME")
    assert "before all secrets were removed from its result" in result.error


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_the_thread_of_a_search_ends_with_the_task_that_waits_for_it(how: str) -> None:
    def endless() -> Generator[None, None, bytes]:
        while True:
            yield

    async def main() -> None:
        searching = asyncio.create_task(in_turn(endless(), 0.01 if how == "late" else None))
        await asyncio.sleep(0.02)
        searching.cancel()
        with pytest.raises((TimeoutError, asyncio.CancelledError)):
            await searching

    asyncio.run(main())  # it waits for its threads


@pytest.mark.parametrize("before", [0, 450, 9000])
def test_the_last_words_of_a_module_have_no_half_of_a_secret(before: int) -> None:
    value = "first-line-abc\nsecond-line-def\nthird-line-ghi"
    redactor = Redactor()
    redactor.add("token", value)
    wrong = Raised("Trap", "it ended with exit code 1", printed=f"{'.' * before}\nlast {value}\n")
    ended: Any = SimpleNamespace(
        running=True, redactor=redactor, registered=None, request=Request("guest"), tool="guest"
    )
    denied = result_parts.failed(ended, wrong).refusal
    assert denied is not None
    assert str(Refused(denied)) == "TOOL_FAILED: Trap: it ended with exit code 1: last [redacted token]"
