"""Runs the cases of the YAML files in `cases`: gates are built there, tools called, and the results compared.

The form of the files, the matchers and the paths are those of tests/cli/cases.py. A step is one of

    gate: {tools: [NAME…], …}       tools of tools.py on memory backends. A mapping in place of a name has `like`, and
                                    declares that tool in another way. PARTS are backends and OPTIONS arguments of the
                                    gate; `answer` is what the approver says, `rules` are the `tools` of the manifest,
                                    `top` is what it has beside `capabilities`, and all else is in those
    call TOOL NAME=VALUE /ID @WHO: …    a call, with an id if there is one, in the session `s` or that of WHO. Nothing
                                    is expected but that it is ok; or its reason; or parts of the result, by path; or a
                                    list, for one call after another
    delegate WHO: RULES             of the session `s`; or a mapping with `of`, `allow` and `deny`
    reload: {…}                     another manifest, as `gate` has it; `add: {…}` changes the last, `admit: [NAME…]`
                                    says for which tools
    refused STEP: {with, error, says, misfits}   a step that raises this

and others that say what they do. <here> is the working directory.
"""

import builtins
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

import licet
from cli.cases import Differs, Step, compare, compare_paths, read
from cli.cases import World as Words
from guard.gates import policy
from guard.tools import RAN, TOOLS
from licet import Backends, CapabilitySet, Gate, Manifest, Result, Tool, tool, validate_registration
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.kept_calls import MemoryKeptCalls
from licet.backends.memory import MemoryClock, MemoryLedger
from licet.core.decision.request import bundle_account

HERE = Path(__file__).parent / "cases"
PARTS = {"environ", "files", "secrets", "budgets", "ledger", "approver", "argument_rules", "kv", "sandbox", "clock"}
PARTS.add("kept_calls")
OPTIONS = {"on_misfit", "pin"}


def all_cases(*names: str) -> list[Any]:
    """The cases of these files, for `parametrize`."""
    return [case.param() for name in names for case in read(HERE / name)]


def shown(event: Any) -> dict[str, Any]:
    """An event as data."""
    fields = {name: getattr(event, name) for name in ("capability", "reason", "rule")}
    return {"kind": type(event).__name__, **fields}


def amount(cost: Decimal) -> str:
    return f"{cost.normalize():f}"


def told_misfits(misfits: Any) -> list[str]:
    assert all(one.message for one in misfits)
    return [f"{one.tool} {one.category} {one.capability}" for one in misfits]


def merged(given: dict[str, Any]) -> dict[str, Any]:
    """A mapping with what is under its `with`."""
    return {**given, **given.get("with", {})} if "with" in given else given


class Desk:
    """What the steps of one case share: a gate, its parts, and the sessions that are open."""

    def __init__(self, here: Path, known: dict[str, Any], opened: AsyncExitStack) -> None:
        self.here, self.opened, self.seen = here, opened, list[Any]()
        self.known = {"here": str(here), "x129": "x" * 129, "long": "x" * 3000}
        self.filled = Words.filled.__get__(self)
        self.filled_part = Words.filled_part.__get__(self)
        self.known |= {name: self.filled(value) for name, value in known.items()}
        self.backends: Backends | None = None
        self.last = dict[str, Any]()
        self.tools: list[Tool] = []

    async def step(self, step: Step) -> None:
        """Do what a step says."""
        await self.do(self.filled(step.text), self.filled(step.value))

    async def do(self, text: str, value: Any) -> None:
        verb, _, rest = text.partition(" ")
        done = getattr(self, f"do_{verb}")(rest, value)
        if done is not None:
            await done

    # Gates

    def named(self, given: Any) -> Tool:
        """A tool of tools.py, or one of them declared in another way."""
        if isinstance(given, str):
            return TOOLS[given]
        like, spec = TOOLS[given["like"]], TOOLS[given["like"]].spec
        declared = {"name": spec.name, "needs": [str(need) for need in spec.needs], "effect": spec.effect}
        optional = {"optional": [str(need) for need in spec.optional]} if spec.optional else {}
        stated = {**declared, **optional, "sandbox": spec.sandbox, **merged(given)}
        stated = {name: value for name, value in stated.items() if name not in ("like", "with")}
        return tool(**stated)(like.fn)

    def manifest(self, given: dict[str, Any]) -> Manifest:
        """What a step says of a manifest."""
        own = merged(given).get("capabilities", {})  # where a part has the same name
        self.last = {name: value for name, value in merged(given).items() if name not in PARTS | OPTIONS}
        self.last = {name: value for name, value in self.last.items() if name not in ("with", "capabilities")} | own
        rest = {"tools" if name == "rules" else name: value for name, value in self.last.items()}
        named = rest.pop("admit", None)
        admitted = self.tools if named is None else [self.named(one) for one in named]
        return policy(self.here, *admitted, **rest)

    def do_gate(self, rest: str, given: dict[str, Any]) -> None:
        self.tools = [self.named(one) for one in given.pop("tools")]
        parts = {name: given[name] for name in PARTS & given.keys()}
        if "clock" in parts:
            parts["clock"] = MemoryClock(datetime.fromisoformat(str(parts["clock"])).replace(tzinfo=UTC))
        if isinstance(parts.get("ledger"), int):
            parts["ledger"] = MemoryLedger(quota=parts["ledger"])
        self.approver = MemoryApprover((lambda _: given["answer"]) if "answer" in given else None)
        parts = {"approver": self.approver, "ledger": MemoryLedger(), **parts}
        if "clock" in parts:
            parts = {"kept_calls": MemoryKeptCalls(lambda: parts["clock"].now().timestamp()), **parts}
        self.parts = parts
        if rest != "again":
            self.backends = None if "backends" in given else Backends.memory(**parts)
        options = {name: given[name] for name in OPTIONS & given.keys()}
        manifest = self.manifest({name: value for name, value in given.items() if name not in ("answer", "backends")})
        RAN.clear()
        self.at = Gate(manifest, self.tools, self.backends, workdir=self.here, observers=[self.seen.append], **options)
        self.sessions: dict[str, Any] = {}

    def do_reload(self, rest: str, given: dict[str, Any]) -> None:
        given = {**self.last, **given.pop("add")} if "add" in given else given
        self.at.reload(self.manifest(given))

    async def do_refused(self, rest: str, given: dict[str, Any]) -> None:
        kind = getattr(licet, given["error"], None) or getattr(builtins, given["error"])
        try:
            await self.do(rest, given.get("with"))
        except kind as error:
            for said in [given["says"]] if isinstance(given.get("says"), str) else given.get("says", []):
                compare("error", "has", str(error), said)
            if "fix" in given:
                compare("fix", "has", "; ".join(one.fix for one in error.misfits), given["fix"])
            for key in given.keys() & {"misfits", "misfits has"}:
                compare("misfits", key[8:], told_misfits(error.misfits), given[key])
            return
        raise Differs("it raises", given["error"], "nothing")

    async def do_modes(self, rest: str, steps: list[Any]) -> None:
        """Steps for each of some modes: <mode> in them is what `on_misfit` is."""
        for self.known["mode"] in rest.split():
            for step in steps:
                [(text, value)] = ({step: None} if isinstance(step, str) else step).items()
                await self.do(self.filled(text), self.filled(value))

    def do_in(self, rest: str, nothing: None) -> None:
        """`in force`: the manifest that was written last is in force, whatever was raised."""
        compare("in force", "", self.at.manifest.digest, licet.load_manifest(self.here / "agent.yaml").digest)

    def do_freeze(self, rest: str, why: str | None) -> None:
        self.at.freeze(why or "")

    def do_thaw(self, rest: str, nothing: None) -> None:
        self.at.thaw()

    def do_advance(self, rest: str, seconds: float) -> None:
        self.parts["clock"].advance(seconds)

    def do_write(self, rest: str, files: dict[str, Any]) -> None:
        for name, content in files.items():
            (self.here / name).write_text(content if isinstance(content, str) else json.dumps(content))

    # Sessions

    async def session(self, name: str) -> Any:
        """A session of the gate, which stays open, or a delegate."""
        if name not in self.sessions:
            self.sessions[name] = await self.opened.enter_async_context(self.at.session(name))
        return self.sessions[name]

    async def do_delegate(self, rest: str, given: Any) -> None:
        given = given if isinstance(given, dict) else {"allow": given}
        allow, deny = given.get("allow", []), given.get("deny", [])
        parent = await self.session(given.get("of", "s"))
        self.sessions[rest] = parent.delegate(agent=rest, allow=CapabilitySet(allow, deny) if deny else allow)

    async def do_end(self, rest: str, nothing: None) -> None:
        await (await self.session(rest or "s")).end()

    async def do_close(self, rest: str, nothing: None) -> None:
        await self.sessions[rest or "s"].__aexit__(None, None, None)

    async def do_reopen(self, rest: str, name: Any) -> None:
        """A new session of the same name, whether the last was closed or not."""
        name = rest or name
        self.sessions[name] = await self.opened.enter_async_context(self.at.session(name))

    def do_policy(self, rest: str, given: dict[str, Any]) -> None:
        """Write a manifest that nobody loads."""
        self.manifest(given)

    def do_ran(self, rest: str, times: int) -> None:
        compare("ran", "", len(RAN), times)

    # Calls

    async def do_call(self, rest: str, expected: Any) -> None:
        words = rest.split(" ")
        who = words.pop()[1:] if words[-1].startswith("@") else "s"
        call_id = words.pop()[1:] if words[-1].startswith("/") else None
        given = {name: yaml.safe_load(value) for name, _, value in (word.partition("=") for word in words[1:])}
        for each in expected if isinstance(expected, list) else [expected]:
            one = dict(each) if isinstance(each, dict) else {"reason": each or "ALLOWED"}
            more = one.pop("given", {})
            arguments = {**given, **more} if isinstance(more, dict) else more
            result = await (await self.session(who)).call(words[0], arguments, id=call_id)
            self.compare(rest, result, one)

    async def do_calls(self, rest: str, calls: list[str]) -> None:
        """Several calls, each with its reason."""
        for call, _, reason in (one.rpartition(" ") for one in calls):
            await self.do_call(call, reason)

    def compare(self, what: str, result: Result, expected: dict[str, Any]) -> None:
        """Compare a result with what is expected of it."""
        told = result.explain()
        events = [shown(event) for event in result.events]
        found = {
            **{name: getattr(result, name) for name in ("ok", "value", "code", "reason", "error", "truncated")},
            "duration": result.duration_ms,
            "uses": [" ".join(line.split()[:2]) for line in told.splitlines()[1:-1]],
            "cost": amount(result.cost_usd),
            "explain": told,
            "fix": [line[16:] for line in told.splitlines() if line.startswith("  to allow it   ")],
            "because": [line[16:] for line in told.splitlines() if line.startswith("  because       ")],
            "events": events,
            "checks": [one for one in events if one["kind"].startswith("Capability")],
        }
        rows = getattr(self.parts["ledger"], "rows", ())
        if result.reason != "LEDGER_UNAVAILABLE":
            compare("receipt", "", bool(result.receipt), True)
        if rows and result.reason != "LEDGER_UNAVAILABLE":
            compare("the last entry", "", (rows[-1].kind, rows[-1].id), ("receipt", result.receipt))
        if result.ok:
            compare("unwrap", "", result.unwrap(), result.value)
        else:
            with pytest.raises(licet.Refused, match=result.reason):
                result.unwrap()
        compare("ok", "", result.ok, expected.pop("ok", found["reason"] == "ALLOWED"))
        compare_paths(f"{what}: {result.reason}: {told}\n ", found, expected)

    # What was kept

    def do_entries(self, rest: str, expected: Any) -> None:
        rows = [{"kind": row.kind, **json.loads(row.body)} for row in self.parts["ledger"].rows]
        compare_paths("entries", rows, expected)

    def do_observed(self, rest: str, expected: list[str]) -> None:
        found = [shown(one) for one in self.seen if type(one).__name__.startswith("Capability")]
        compare("observed", "", [f"{one['capability']} {one['reason']}".strip() for one in found], expected)
        self.seen.clear()

    def do_asked(self, rest: str, expected: Any) -> None:
        """How many questions there were, or what they said."""
        found = [
            {
                "arguments": one.arguments,
                "session": one.approval.session,
                "of": one.approval.arguments,
                "expires": one.expires_seconds,
            }
            for one in self.approver.asked
        ]
        if isinstance(expected, int):
            compare("asked", "", len(found), expected)
        else:
            compare_paths("asked", found, expected)

    async def do_spent(self, rest: str, expected: list[Any]) -> None:
        """The calls of the session, or of a bundle in it, and what they cost."""
        day = self.at.clock.now().date().isoformat()
        budgets: Any = self.at.ports.budgets
        usage = await budgets.usage(bundle_account("tester", rest) if rest else "tester", "s", day)
        compare("spent", "", [usage.calls, amount(usage.cost_usd)], expected)

    def do_agreed(self, rest: str, expected: int) -> None:
        """How many approvals the gate remembers."""
        compare("agreed", "", len(self.at.agreed), expected)

    def do_misfits(self, rest: str, expected: list[str]) -> None:
        compare("misfits", "", told_misfits(self.at.misfits), expected)

    def do_validated(self, rest: str, expected: list[str] | None) -> None:
        """What `validate_registration` says: this, or what the gate does, but for arguments, which functions tell."""
        found = [one for each in self.tools for one in validate_registration(each, self.at.manifest)]
        if expected is None:
            compare("validated", "", found, [one for one in self.at.misfits if one.category != "arguments"])
        else:
            compare("validated", "", told_misfits(found), expected)

    def do_left(self, rest: str, expected: list[str]) -> None:
        """The tools that are not admitted."""
        compare("not admitted", "", [*self.at.not_admitted], expected)

    async def do_available(self, rest: str, expected: list[str]) -> None:
        compare("available", "", await (await self.session(rest or "s")).available(), expected)
