"""Programs are not asked about secrets that their session has read: they start with less."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from guard.flow_gates import search_people
from guard.gates import policy
from licet import Backends, Gate, Session
from licet.assemble.program import ProgramTool, _program
from licet.core.algebra.rules import Use
from licet.core.decision.decision import Deny
from licet.core.decision.reach import Reach
from licet.core.decision.request import Request
from licet.core.policy.manifest import PROGRAM, admit_commands, command_needs
from licet.declare import tool
from licet.guard.facts import Call
from licet.guard.open_call import never_ran, open_call
from licet.guard.session import _ADMISSION

HR, OTHER = "network:https:post@hr.example.com", "network:https:get@example.org"


def program_gate(folder: Path, readers: list[str], preset: str = "guarded") -> Gate:
    flow = {"preset": preset, "secrets": [{"from": {"tool": "search_people"}, "readers": readers}]}
    read = policy(
        folder,
        search_people,
        top={"flow": flow},
        destinations={"allow": ["hr.example.com", "example.org"]},
        grants=["process:exec:*"],
        fs_reach={"read": [str(folder)], "write": [str(folder)]},
    )
    manifest = admit_commands(read, PROGRAM)
    spec = tool(needs=command_needs(manifest), name=PROGRAM, effect="write_limited", sandbox="isolated")(_program).spec
    program = ProgramTool(_program, replace(spec, schema={"type": "object"}))
    return Gate(manifest, [program, search_people], Backends.memory(processes={"cat": "x"}), workdir=folder)


async def opened(session: Session) -> Reach:
    call = await open_call(session, _ADMISSION, PROGRAM, {"command": ["cat"]})
    assert isinstance(call, Call), call.explain()
    assert call.grant is not None
    reach = call.grant.reach
    await never_ran(call, "the test ends")
    return reach


@pytest.mark.parametrize(("readers", "kept"), [([], False), (["network:write:hr.example.com"], True)])
def test_a_program_holds_less_after_its_session_has_read_a_secret(
    tmp_path: Path, readers: list[str], kept: bool
) -> None:
    at = program_gate(tmp_path, readers)

    async def play() -> Any:
        async with at.session("s") as session:
            before = await opened(session)
            await session.call("search_people")
            return before, await opened(session)

    before, after = asyncio.run(play())
    read, write = Use(f"fs:read:{tmp_path}/a"), Use(f"fs:write:{tmp_path}/a")
    assert [before.grant.has(use) for use in (read, write, Use(HR), Use(OTHER))] == [True] * 4
    assert [after.grant.has(use) for use in (read, write, Use(HR), Use(OTHER))] == [True, False, kept, False]
    refused = Deny(Request(PROGRAM), after, Use(OTHER))
    assert "after this session has read a secret" in refused.rules[0].text
    assert "`readers` of the secret" in refused.rules[0].fix


def test_watching_takes_nothing_from_a_program(tmp_path: Path) -> None:
    at = program_gate(tmp_path, [], "watch")

    async def play() -> Reach:
        async with at.session("s") as session:
            await session.call("search_people")
            return await opened(session)

    assert asyncio.run(play()).grant.has(Use(OTHER))
