"""Memory backends, canned answers and a gate for the tests of your tools. See docs/testing.md.

    from licet.testing import Answer, MemoryGate

    gate = MemoryGate(forecast, http={"https://api.weather.gov/oslo": Answer.json({"rain": True})})
    assert gate.call(forecast, city="oslo").value == "rain"

`decision` asks a policy file about one use or call of a tool, without running it:

    assert decision(".licet/licet.yaml", "forecast", "network:https:get@api.weather.gov").verdict == "allow"

With `pytest_plugins = ["licet.testing"]` in `conftest.py`, tests have a fixture `gate` that makes such gates, and the
examples of policies run as tests.

A gate on memory backends, for users who test their tools. Public as `licet.testing`.

Unless the test names a policy, one is made from what the tools declare. Tools run in this process: no worker is
started, so a test of a tool takes milliseconds and does not need Linux.
"""

import os
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, get_args

from licet.assemble.gate import Backends, Gate, run
from licet.assemble.policy_tests import decision
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.budgets import MemoryBudgets
from licet.backends.files.memory import MemoryFiles
from licet.backends.kv import MemoryKv
from licet.backends.memory import Answer, MemoryClock, MemoryHttp, MemoryLedger, Site, everywhere
from licet.backends.secrets import MemorySecrets
from licet.core.ledger.entry import Entry
from licet.core.policy.layer import CLASSES, Level
from licet.core.policy.manifest import Manifest
from licet.declare import Tool
from licet.declare.decorator import WasmTool
from licet.guard import ports
from licet.guard.execution import Command, Finished, ToolCall, Walls
from licet.guard.ports import Answered, Exchange, Question
from licet.guard.result import Result
from licet.policy_files.data import manifest_from_data
from licet.policy_files.load import load_own_manifest
from licet.policy_files.organisation import read_organisation_file
from licet.sandbox.native import InProcess
from licet.sandbox.programs.function_programs import MemoryProcesses, NoWalls, ProgramFunction, memory_programs
from licet.wasm.guest_workers import WasmWorkers

__all__ = [
    "Answer",
    "Answered",
    "Command",
    "Exchange",
    "Finished",
    "MemoryApprover",
    "MemoryBudgets",
    "MemoryClock",
    "MemoryFiles",
    "MemoryGate",
    "MemoryHttp",
    "MemoryKv",
    "MemoryLedger",
    "MemoryProcesses",
    "MemorySecrets",
    "PreparedApprover",
    "Question",
    "decision",
]

WORKDIR = "/workdir"  # the default value of `${workdir}`


class PreparedApprover(MemoryApprover):
    """An approver that gives the prepared answers in their order, and then none.

    An answer is `"approved"`, `"denied"`, `"expired"` or `"absent"`. The questions are kept in `asked`.
    """

    def __init__(self, *answers: ports.Answer) -> None:
        known = get_args(ports.Answer)
        for answer in answers:
            if answer not in known:
                words = ", ".join(f'"{word}"' for word in known)
                raise TypeError(f"expected answers that are one of {words}, found {answer!r}")
        remaining = iter(answers)
        super().__init__(lambda question: next(remaining, "absent"))


class MemoryGate(Gate):
    """A gate whose files, network, programs, secrets, storage, approver and clock are in memory.

        gate = MemoryGate(read_note, files={"notes/oslo.md": "Rain."})
        assert gate.call(read_note, name="oslo").value == "Rain."

    Without `manifest=`, the policy is made up: it admits these tools, and allows the rules in `allow`, or all that the
    tools declare if `allow` is left out. Either policy counts as accepted, whatever is in this user's trust list. Each
    backend is an attribute, such as `gate.http`, so that a test can look at what was sent, asked or written. See
    docs/testing.md.
    """

    clock: MemoryClock

    def __init__(
        self,
        *tools: Tool,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        manifest: Manifest | str | os.PathLike[str] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        http: Mapping[str, Answer | Site] | Site | None = None,
        addresses: Mapping[str, Sequence[str]] | None = None,
        secrets: Mapping[str, str] | None = None,
        programs: Mapping[str, ProgramFunction | str | bytes] | None = None,
        environ: Mapping[str, str] | None = None,
        answers: Sequence[ports.Answer] = (),
        clock: MemoryClock | None = None,
        workdir: str | os.PathLike[str] = WORKDIR,
        walls: bool = False,
        organisation: str | os.PathLike[str] | None = None,
    ) -> None:
        """Build the gate, or raise `RegistrationRefused` with the tools that do not fit the policy.

        `files` are texts or bytes by path, below `workdir` unless absolute; `http` answers by URL, or one function for
        all of them; `addresses` what names resolve to; `programs` functions or outputs by name; `answers` what the
        approver answers, in order. With `walls=True` tools run in worker processes behind the walls of their level.
        A test does not depend on the organisation of its machine: only the file `organisation` narrows the policy.
        """
        if isinstance(allow, str) or isinstance(deny, str):
            raise TypeError('expected a list of rules, such as `allow=["fs:read:/srv"]`, found a text')
        if isinstance(answers, str):
            raise TypeError('expected a list of answers, such as `answers=["approved"]`, found a text')
        if strange := [tool for tool in tools if not isinstance(tool, Tool)]:
            raise TypeError(f"expected tools, such as `MemoryGate(read, write)`, found a {type(strange[0]).__name__}")
        workdir = os.fspath(workdir)
        self.clock = clock = clock or MemoryClock()
        in_workdir = {os.path.join(workdir, path): content for path, content in (files or {}).items()}
        self.files = MemoryFiles(in_workdir, directories=[workdir])
        self.http = MemoryHttp(http or {}, addresses if addresses is not None else everywhere)
        self.kv = MemoryKv(lambda: clock.now().timestamp())
        self.ledger = MemoryLedger(now=clock.now)
        self.programs = memory_programs(programs or {})
        self.approver = PreparedApprover(*answers)
        parts: dict[str, Any] = {} if walls else {"sandbox": InThisProcess()}
        self.backends = Backends.memory(
            files=self.files,
            http=self.http,
            secrets=MemorySecrets(secrets),
            kv=self.kv,
            ledger=self.ledger,
            processes=self.programs,
            environ=environ or {},
            approver=self.approver,
            clock=clock,
            **parts,
        )
        if manifest is None:
            manifest = _made_up(tools, allow, deny)
        elif allow is not None or deny:
            raise TypeError("`allow=` and `deny=` make up a policy: leave them out where `manifest=` is given")
        elif not isinstance(manifest, Manifest):
            manifest = load_own_manifest(os.fspath(manifest))
        if organisation is not None:
            manifest = manifest.own.under(read_organisation_file(os.fspath(organisation)))
        else:
            manifest = manifest.own
        super().__init__(manifest, tools, self.backends, workdir=workdir, pin=manifest.digest)

    @staticmethod
    def _narrow(manifest: Manifest) -> Manifest:
        return manifest  # a test says the same on every machine

    @property
    def receipts(self) -> tuple[Entry, ...]:
        """The receipts of all calls so far, the oldest first."""
        return tuple(self.ledger.receipts)

    def call(self, tool: Tool | str, /, **arguments: Any) -> Result:
        """Call one tool in the session `test`, and wait for the result.

        In async tests, or to state a `purpose=`, use `session(…)` instead.
        """
        return run(self, tool.name if isinstance(tool, Tool) else tool, arguments, session="test")

    def read_file(self, path: str) -> str:
        """Return the text of a file, to check what a tool wrote; `KeyError` if there is none."""
        return self.files.contents()[os.path.join(self.workdir, path)].decode()

    def close(self) -> None:
        """End workers, if there are any."""
        self.backends.close()


class InThisProcess:
    """A sandbox without walls, for tests: tools of every level run in this process."""

    def __init__(self) -> None:
        self._native = InProcess()
        self._guests = WasmWorkers(self._native)

    def layers(self, level: Level) -> tuple[str, ...]:
        """The same at every level, so that no receipt claims walls that were not there."""
        return ("handles", "no walls: a test")

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Run a tool as if its level were `native`. A WASM module never runs in this process, so it gets a worker."""
        if isinstance(call.tool, WasmTool):
            return self._guests.run("restricted", call, context)
        return self._native.run("native", call, context)

    def walls(self, held: Any) -> Walls:
        """No walls: programs are functions in memory."""
        return NoWalls()


def _made_up(tools: Sequence[Tool], allow: Iterable[str] | None, deny: Iterable[str]) -> Manifest:
    """Make a manifest that admits the tools, and allows what they declare or what the test lists."""
    specs = [tool.spec for tool in tools]
    needs = [need for spec in specs for need in (*spec.needs.allow, *spec.optional.allow)]
    connectors = sorted({name for spec in specs for name in spec.named_connectors})
    classes = [spec.effect for spec in specs if spec.effect]
    names = [spec.name for spec in specs]
    grants = list(allow) if allow is not None else [str(need) for need in needs if need.domain != "connector"]
    return manifest_from_data(
        {
            "agent": "test",
            "connectors": {"tenant_allowlist": [{"connector": name} for name in connectors]},
            "capabilities": {
                "tools": names,
                "native": [spec.name for spec in specs if spec.sandbox == "native"],
                "max_side_effect_class": max(classes, key=CLASSES.index, default="read_only"),
                "connectors": connectors,
                "grants": grants,
                "deny": list(deny),
                "approvals": {"write": "manifest"},
                "budget": {"max_calls_per_session": 1_000_000},  # the classes `full` and `destructive` need an approver
            },
        }
    )


pytest_plugins = ("licet.pytest_plugin",)  # pytest reads this when it loads `licet.testing` as a plugin
