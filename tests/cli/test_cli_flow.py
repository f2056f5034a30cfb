"""What `licet explain` says about a call that met no rule of `flow:`, and that such receipts verify."""

import asyncio
from pathlib import Path

import pytest

from command_line import enter_project, run
from guard.flow_gates import mail_gate, send
from licet import Backends, Gate
from licet.assemble.gate import stored_approvals

SEEN = "mallory@evil.example"


def asked_about(at: Gate, *to: str) -> str:
    """The receipt of a call that a person is asked about."""

    async def play() -> str:
        async with at.session("s") as session:
            await session.call("list_mail")
            result = await session.call("send_mail", {"to": list(to)})
            assert result.verdict == "ask"
            return result.receipt

    return asyncio.run(play())


def test_a_person_reads_which_value_nobody_may_have_chosen_and_how_to_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, state = enter_project(tmp_path, monkeypatch), tmp_path / "here"
    with Backends.local(state) as backends:
        receipt = asked_about(mail_gate(folder, backends=backends), SEEN, "zed@evil.example")
        (waiting,) = asyncio.run(stored_approvals(state).list())
    said = run("explain", receipt, "--state", str(state), code=1).output.splitlines()
    assert said[0].startswith("FLOW_ORIGIN  send_mail was not run: ")
    assert said[1] == f'  to[0] = "{SEEN}"'
    assert said[2].split() == ["seen", f"{receipt[:-1]}1", "list_mail", "/0/body", "untrusted"]
    assert f"approve this call: licet approvals approve {waiting.request.id}" in "\n".join(said)
    assert "nowhere: the model wrote this itself" in "\n".join(said)
    shown = run("approvals", "show", waiting.request.id, "--state", str(state), code=None).output
    assert "chosen by" in shown or SEEN in shown
    verified = run("receipts", "verify", "--state", str(state)).output
    assert verified.startswith("fine: ")


def test_after_it_was_opened_again_it_says_that_values_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, state = enter_project(tmp_path, monkeypatch), tmp_path / "here"
    with Backends.local(state) as backends:
        asked_about(mail_gate(folder, backends=backends), SEEN)

    async def again(at: Gate) -> str:
        async with at.session("s") as session:
            assert await send(session, "bob@corp.example") == "FLOW_ORIGIN"  # a sender, when it was read
            return (await session.call("send_mail", {"to": ["bob@corp.example"]})).receipt

    with Backends.local(state) as backends:
        receipt = asyncio.run(again(mail_gate(folder, backends=backends)))
    said = run("explain", receipt, "--state", str(state), code=1).output
    assert "this session was opened again: values that it had read before are unknown" in said


def test_what_a_request_quotes_goes_with_its_arguments(tmp_path: Path) -> None:
    async def play() -> None:
        now = [1_000_000.0]
        from licet.backends.approvals.store import SqliteApprovals

        store = SqliteApprovals(tmp_path / "approvals.sqlite", lambda: now[0])
        at = mail_gate(tmp_path, backends=Backends.memory(approver=store))
        async with at.session("s") as session:
            await session.call("list_mail")
            await send(session, SEEN)
            (kept,) = await store.list()
            assert SEEN in str(kept.request.unmet)
            now[0] += 100_000
            await send(session, "zed@evil.example")
            old, _ = await store.list()
            assert (old.arguments, old.request.unmet) == (None, ())

    asyncio.run(play())
