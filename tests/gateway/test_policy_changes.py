"""A gateway whose policy is edited while it runs: nothing goes on under what the files no longer say.

The gateway is a process here, and people accept what they edited as `licet trust` and `licet lock` do.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pins import trust
from sandbox.levels import needs_walls

from .clients import SECONDS, Client, process_client
from .test_stdio import LICET, is_alive, servers_of
from .workspaces import AGENT, Workspace, entry_of

TOOLS = ("echo", "more", "third")
SCRIPT: dict[str, Any] = {"tools": list(TOOLS)}
SERVER: dict[str, Any] = {"script": SCRIPT, "tools": {"*": {"effect": "read_only"}}}
OTHER: dict[str, Any] = {"script": {"tools": ["other"]}, "tools": {"*": {"effect": "read_only"}}}
Steps = Callable[[Client, "asyncio.subprocess.Process"], Awaitable[Any]]


class Edited(Workspace):
    """A workspace that is edited, and accepted, while a gateway runs."""

    def __init__(self, place: Path, state: Path) -> None:
        self.servers: dict[str, dict[str, Any]] = {"s": SERVER}
        self.flow: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {"tools": [f"s.{name}" for name in TOOLS]}
        super().__init__(place, state, self.servers, self.capabilities)
        trust(self.place / AGENT)

    def save(self) -> None:
        """Write the files of the policy, as an editor does; the lock stays."""
        self._write("licet.yaml", {"servers": {name: entry_of(about) for name, about in self.servers.items()}})
        self._write(AGENT, {"agent": "desk", "capabilities": self.capabilities, **self.flow_key})

    @property
    def flow_key(self) -> dict[str, Any]:
        return {"flow": self.flow} if self.flow else {}

    def accept(self) -> None:
        """Lock and accept what the files say now."""
        self.lock({name: about["script"] for name, about in self.servers.items()})
        trust(self.place / AGENT)

    def admit(self, *tools: str) -> None:
        self.capabilities["tools"] = list(tools)
        self.save()


@pytest.fixture
def edited(tmp_path: Path, store_path: Path) -> Edited:
    needs_walls()
    return Edited(tmp_path / "policy", store_path / "state")


def played(edited: Edited, steps: Steps, *more: str, era: str = "2025") -> tuple[Any, str]:
    """What the steps return, and what is on standard error."""
    place = edited.place
    words = [*LICET, "gateway", str(place / AGENT), "--state", str(edited.state), "--workdir", str(place), *more]

    async def scene() -> tuple[Any, str]:
        async with process_client(words, era) as (client, process):
            found = await steps(client, process)
        assert process.returncode == 0
        return found, "".join(client.errors)

    return asyncio.run(scene())


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0.02)


@pytest.mark.who
@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_tool_that_was_taken_out_is_refused_at_once_and_gone_when_that_is_accepted(edited: Edited, era: str) -> None:
    async def steps(client: Client, process: Any) -> list[Any]:
        seen: list[Any] = [sorted(await client.tools()), await client.say("more")]
        if era == "2026":
            await client.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await client.until_told("notifications/subscriptions/acknowledged")
        edited.admit("s.echo", "s.third")
        seen += [await client.say("more"), await client.say("echo")]
        edited.accept()
        await client.until_told("notifications/tools/list_changed")
        return [*seen, sorted(await client.tools()), await client.say("more"), await client.say("echo")]

    (before, ran, refused, also, after, gone, runs), errors = played(edited, steps, "--accepted", era=era)
    assert (before, ran) == (sorted(TOOLS), "{}")
    assert refused.startswith("MANIFEST_CHANGED: the policy has changed")
    assert also == refused
    assert after == ["echo", "third"]
    assert gone == "UNKNOWN_TOOL: there is no tool `more`"
    assert runs == "{}"
    assert "licet: the policy has changed, and every call is refused: " in errors
    assert "review it with `licet diff`, then take it with `licet lock --update`" in errors
    assert ": warning: " not in errors  # nothing that refuses every call is one
    assert f"licet: the policy was loaded again: {edited.manifest.digest} is in force" in errors
    receipts = edited.receipts()
    assert {one.session for one in receipts} == {receipts[0].session}
    changes = [(one.events[0].kind, one.verdict) for one in receipts if one.tool == "licet policy"]
    assert changes == [("PolicyWithdrawn", "deny"), ("PolicyLoaded", "allow")]
    last = [one for one in receipts if one.tool == "s.echo"][-1]
    assert last.manifest == edited.manifest.digest


def test_a_change_that_was_locked_and_not_accepted_is_refused_where_acceptance_is_demanded(edited: Edited) -> None:
    async def steps(client: Client, process: Any) -> list[str]:
        edited.admit("s.echo", "s.third")
        edited.lock({"s": SCRIPT})
        refused = await client.say("echo")
        trust(edited.place / AGENT)
        return [refused, await client.say("echo")]

    (refused, taken), errors = played(edited, steps, "--accepted")
    assert refused.startswith("MANIFEST_CHANGED")
    assert taken == "{}"
    assert "has changed since it was accepted: review and accept the change with `licet trust" in errors


def test_a_locked_change_takes_effect_where_a_start_would_take_it(edited: Edited) -> None:
    async def steps(client: Client, process: Any) -> list[str]:
        edited.admit("s.echo", "s.third")
        edited.lock({"s": SCRIPT})
        return [await client.say("echo"), await client.say("more")]

    found, _ = played(edited, steps)
    assert found == ["{}", "UNKNOWN_TOOL: there is no tool `more`"]


@pytest.mark.parametrize("name", [AGENT, "licet.yaml", "licet.lock"])
def test_a_file_that_is_written_by_half_costs_only_the_calls_until_it_is_whole(edited: Edited, name: str) -> None:
    async def steps(client: Client, process: Any) -> list[str]:
        path = edited.place / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        refused = [await client.say("echo"), await client.say("echo")]
        path.write_bytes(whole)
        return [*refused, await client.say("echo")]

    (*refused, runs), errors = played(edited, steps, "--accepted")
    assert all(one.startswith("MANIFEST_CHANGED") for one in refused)
    assert runs == "{}"
    assert errors.count("every call is refused") == 1
    assert "Traceback" not in errors


def test_a_file_that_is_gone_refuses_and_never_ends_the_gateway(edited: Edited) -> None:
    async def steps(client: Client, process: Any) -> list[str]:
        texts = {path: path.read_bytes() for path in sorted(edited.place.iterdir())}
        found = []
        for path, text in texts.items():
            path.unlink()
            found.append((await client.say("echo")).partition(":")[0])
            path.write_bytes(text)
            found.append(await client.say("echo"))
        return found

    found, _ = played(edited, steps, "--accepted")
    assert found == ["MANIFEST_CHANGED", "{}"] * 3


def test_a_trust_that_was_withdrawn_refuses(edited: Edited) -> None:
    async def steps(client: Client, process: Any) -> str:
        await until(lambda: bool(servers_of(process.pid)))
        words = [*LICET, "trust", "--remove", str(edited.place / AGENT)]
        done = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)
        assert await done.wait() == 0
        return await client.say("echo")

    found, _ = played(edited, steps, "--accepted")
    assert found.startswith("MANIFEST_CHANGED")


def test_a_server_whose_grants_changed_is_another_process_and_others_stay(edited: Edited) -> None:
    edited.servers["t"] = SERVER
    edited.capabilities = {"tools": ["s.echo", "t.echo"], "fs_reach": {"read": ["${workdir}"]}}
    edited.save()
    edited.accept()

    async def steps(client: Client, process: Any) -> list[set[int]]:
        found = []
        for grants in (["fs:read:${workdir}"], []):
            await asyncio.gather(client.say("s__echo"), client.say("t__echo"))
            found.append(set(servers_of(process.pid)))
            edited.servers["s"] = {**SERVER, "grants": grants}
            edited.save()
            edited.accept()
        await asyncio.gather(client.say("s__echo"), client.say("t__echo"))
        await until(lambda: len(servers_of(process.pid)) == 2)
        return [*found, set(servers_of(process.pid))]

    (first, second, third), _ = played(edited, steps, "--accepted")
    assert [len(one) for one in (first, second, third)] == [2, 2, 2]
    assert len(first & second & third) == 1
    assert len({*first, *second, *third}) == 4


def test_servers_come_and_go_with_the_policy(edited: Edited) -> None:
    async def steps(client: Client, process: Any) -> list[Any]:
        await client.say("echo")
        edited.servers["t"] = OTHER
        edited.admit("s.echo", "t.other")
        edited.accept()
        await client.until_told("notifications/tools/list_changed")
        both = sorted(await client.tools()), await client.say("t__other"), len(servers_of(process.pid))
        del edited.servers["s"]
        edited.admit("t.other")
        edited.accept()
        shown, said = sorted(await client.tools()), await client.say("other")
        await until(lambda: len(servers_of(process.pid)) == 1)
        return [both, shown, said]

    found, _ = played(edited, steps, "--accepted")
    assert found == [(["s__echo", "t__other"], "{}", 2), ["other"], "{}"]


def test_servers_end_while_nobody_has_accepted_the_policy(edited: Edited) -> None:
    """They were started behind the walls of a policy that the files do not say any more; no call asks for it."""

    async def steps(client: Client, process: Any) -> str:
        await client.say("echo")
        pids = servers_of(process.pid)
        assert pids
        edited.admit("s.echo")
        await until(lambda: not any(map(is_alive, pids)))
        edited.accept()
        return await client.say("echo")

    found, errors = played(edited, steps, "--accepted")
    assert found == "{}"
    assert "licet: s: it is stopped until its policy can be used" in errors


def test_an_edit_of_a_comment_keeps_servers_and_refuses_nothing(edited: Edited) -> None:
    async def steps(client: Client, process: Any) -> list[Any]:
        found = []
        path = edited.place / AGENT
        for _ in range(2):
            found.append((await client.say("echo"), servers_of(process.pid)))
            path.write_text(f"# a comment\n{path.read_text()}")
        return found

    (first, second), errors = played(edited, steps, "--accepted")
    assert first == second
    assert first[0] == "{}"
    assert "loaded again" not in errors


def test_an_organisation_that_is_edited_narrows_at_once(edited: Edited, tmp_path: Path) -> None:
    edited.capabilities["fs_reach"] = {"read": ["${workdir}"]}
    edited.save()
    edited.accept()
    above = tmp_path / "above" / "organisation.yaml"
    above.parent.mkdir()
    above.write_text("budget: {max_calls_per_session: 100}\n")

    async def steps(client: Client, process: Any) -> list[str]:
        fine = await client.say("echo")
        above.write_text("budget: {max_calls_per_session: 1}\n")
        return [fine, await client.say("echo")]

    (fine, refused), _ = played(edited, steps, "--accepted", "--organisation", str(above))
    assert fine == "{}"
    assert refused.startswith("BUDGET_EXCEEDED")


def test_a_yes_that_was_given_after_an_edit_approves_nothing(edited: Edited) -> None:
    """Nobody has called since the file was saved: the answer itself must find that the policy is another one."""
    edited.servers["s"] = {**SERVER, "tools": {"*": {"effect": "write_limited", "needs": ["fs:write:${workdir}/out"]}}}
    edited.servers["s"]["grants"] = ["fs:write:${workdir}/out"]
    (edited.place / "out").mkdir()
    edited.capabilities |= {
        "max_side_effect_class": "write_limited",
        "fs_reach": {"write": ["${workdir}/out"]},
        "approvals": {"write": "call", "through_client": True},
    }
    edited.save()
    edited.accept()

    async def scene() -> str:
        place = edited.place
        words = [*LICET, "gateway", str(place / AGENT), "--state", str(edited.state), "--workdir", str(place)]
        answers = {"elicitation/create": answer}
        async with process_client([*words, "--accepted"], answers=answers) as (client, _):
            return await client.say("echo")

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        edited.admit("s.third")
        return {"action": "accept", "content": {"approve": True, "answer": "yes", "approved": True}}

    assert asyncio.run(scene()).startswith("MANIFEST_CHANGED")


def test_a_gateway_that_observes_stops_when_the_policy_is_another_one(edited: Edited) -> None:
    async def steps(client: Client, process: Any) -> list[str]:
        fine = await client.say("more")
        path = edited.place / AGENT
        whole = path.read_bytes()
        path.write_bytes(b"{")
        broken = await client.say("more")
        path.write_bytes(whole)
        again = await client.say("more")
        edited.admit("s.echo")
        return [fine, broken.partition(":")[0], again, (await client.say("more")).partition(":")[0]]

    found, errors = played(edited, steps, "--observe", "--for", "10m")
    assert found == ["{}", "MANIFEST_CHANGED", "{}", "MANIFEST_CHANGED"]
    assert "it is not the policy any more that this gateway began to observe; start it again" in errors


def test_many_calls_while_the_files_change_are_each_decided_by_a_policy_of_that_time(edited: Edited) -> None:
    """No call that begins after a save runs what the saved file does not admit, however many wait meanwhile."""

    async def steps(client: Client, process: Any) -> list[set[str]]:
        found = []
        for number in range(6):
            admitted = ("s.echo", "s.more") if number % 2 else ("s.echo",)
            edited.admit(*admitted)
            edited.lock({"s": SCRIPT})
            texts = await asyncio.gather(*(client.say("more") for _ in range(20)))
            found.append({one.partition(":")[0] for one in texts})
        return found

    found, _ = played(edited, steps)
    assert found == [{"UNKNOWN_TOOL"}, {"{}"}] * 3


def test_a_conversation_that_was_resumed_is_tainted_under_a_policy_that_asks_later(edited: Edited) -> None:
    """Without `flow:` nothing is remembered, and the policy that asks comes into force while the session goes on."""
    edited.servers["s"] = {**SERVER, "tools": {"*": {"effect": "write_limited", "needs": []}}}
    edited.capabilities["max_side_effect_class"] = "write_limited"
    edited.save()
    edited.accept()

    async def steps(client: Client, process: Any) -> str:
        edited.flow = {"preset": "trifecta"}
        edited.save()
        edited.accept()
        return await client.say("third")  # the first call of the session: no receipt says that it has read anything

    _, errors = played(edited, steps, "--accepted", "--session", "mine")
    assert "is in force" in errors
    last = edited.receipts()[-1]
    assert last.tool == "s.third"
    assert last.flow.tainted_by or last.flow.taints  # type: ignore[union-attr]
