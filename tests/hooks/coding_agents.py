"""A project with an accepted policy, and the events that a coding agent would send from it."""

import json
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from licet.assemble.acceptance import accept_policy
from licet.backends.ledger.reader import LedgerReader
from licet.hooks.agent_event import Printed
from licet.hooks.answering import Answering, service_alone
from licet.hooks.policy_choice import HookPolicies, read_policies, write_policies
from licet.policy_files.load import load_own_manifest

POLICY = """
agent: coder
capabilities:
  max_side_effect_class: full
  fs_reach:
    read: ["${workdir}"]
    write: ["${workdir}"]
  deny: ["fs:*:${workdir}/.env", "network:*:tracker.example.com"]
  destinations: {allow: [docs.example.com, tracker.example.com]}
  process: {allowed_binaries: [sh, bash]}
  env: [PATH, GIVEN]
  approvals: {write: manifest, delete: session}
  budget: {max_calls_per_day: 1000}
"""


class Project:
    """A directory with a policy that was accepted and entered in the list of hooks."""

    def __init__(self, place: Path, policy: str = POLICY) -> None:
        self.root = place / "project"
        self.policy = self.root / ".licet" / "licet.yaml"
        (self.root / "sub").mkdir(parents=True)
        (self.root / "a.txt").write_text("hello\n")
        (self.root / ".env").write_text("TOKEN=1\n")
        (place / "outside.txt").write_text("not for agents\n")
        (self.root / "link").symlink_to(place / "outside.txt")
        (self.root / "inner").symlink_to(self.root / "a.txt")
        self.policy.parent.mkdir()
        self.write_policy(policy)
        write_policies(read_policies().with_project(str(self.root), str(self.policy)))

    def write_policy(self, text: str, *, accept: bool = True) -> None:
        self.policy.write_text(text)
        if accept:
            accept_policy(self.policy, load_own_manifest(self.policy))

    def receipts(self) -> list[Mapping[str, Any]]:
        """Every receipt that was written, in order."""
        found = []
        for state in sorted(Path(os.environ["XDG_STATE_HOME"], "licet").glob("*/ledger.sqlite")):
            with LedgerReader(state) as ledger:
                found += [json.loads(row.body) for row in ledger.entries()]
        return [entry for entry in found if entry["kind"] == "receipt"]


class Claude:
    """A session of Claude Code, as its hook sees it."""

    agent = "claude"

    def __init__(self, project: Project, session: str = "s-1", answering: Answering | None = None) -> None:
        self.project, self.session = project, session
        self.directory = str(project.root)
        self.mode = "default"
        self.subagent = ""
        self._answering = answering
        self._numbers = count(1)
        self.call = ""

    def event(self, name: str, **fields: Any) -> bytes:
        common = {"session_id": self.session, "transcript_path": "/t", "cwd": self.directory, "hook_event_name": name}
        common |= {"prompt_id": "p", "permission_mode": self.mode}
        common |= {"agent_id": self.subagent, "agent_type": "general"} if self.subagent else {}
        return json.dumps({**common, **fields}).encode()

    async def tell(self, name: str, **fields: Any) -> Printed:
        answering = self._answering or service_alone()
        try:
            return await answering.hook(self.agent, name, self.event(name, **fields), self.directory)
        finally:
            if self._answering is None:
                await answering.close()

    async def before(self, tool: str, **arguments: Any) -> Printed:
        self.call = f"toolu_{self.session}_{next(self._numbers)}"
        return await self.tell("PreToolUse", tool_name=tool, tool_input=arguments, tool_use_id=self.call)

    async def after(self, tool: str, arguments: Mapping[str, Any], result: Any = None, call: str = "") -> Printed:
        fields = {"tool_name": tool, "tool_input": dict(arguments), "tool_use_id": call or self.call}
        return await self.tell("PostToolUse", **fields, tool_response=result or {"ok": True})


def verdict(printed: Printed) -> tuple[str, str]:
    """What an answer of Claude Code's dialect says: the decision and its reason."""
    if printed.code == 2:
        return "failed", printed.errors.decode()
    if not printed.output:
        return "silent", ""
    said = json.loads(printed.output)
    if "systemMessage" in said:
        return "told", said["systemMessage"]
    decision = said["hookSpecificOutput"]
    return decision.get("permissionDecision", "rewritten"), decision.get("permissionDecisionReason", "")


def new_arguments(printed: Printed) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed.output)["hookSpecificOutput"]["updatedInput"]
    return found


def no_policies() -> None:
    write_policies(HookPolicies())
