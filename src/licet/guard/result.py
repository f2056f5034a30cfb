"""The result of a call: a value or a refusal, with its events, cost, approvals and receipt."""

import shlex
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.core.decision.decision import (
    Ask,
    CapabilityDenied,
    CapabilityGranted,
    Deny,
    Event,
    all_events,
    explain,
    ran_until,
    reach_behind,
)
from licet.core.decision.request import FLOW_REASONS, Ground, Reason, Request
from licet.core.review.policy_edits import is_allowable
from licet.core.values import money_text
from licet.errors import Refused
from licet.guard.execution import Layers
from licet.guard.grant import Access, CallIdentity, Grant, ProgramAccess
from licet.guard.ports import Agreement

Code = Literal["ok", "denied", "not_available", "input_invalid", "execution_failed", "timed_out"]

_FOUND = "licet.yaml"  # the name of a policy that commands find by themselves
_ASKED: frozenset[Reason] = frozenset({"APPROVAL_REQUIRED", "APPROVAL_DENIED", "APPROVAL_EXPIRED"})


class Result(Struct, frozen=True, eq=False, kw_only=True):
    """The outcome of one call: `value` if `ok`, otherwise a code, a reason, and one line for the model in `error`.

    A server's tool that says itself that it failed has both: the `value` is what it says.
    """

    tool: str
    value: Any
    ok: bool
    code: Code
    reason: Reason
    error: str
    receipt: str
    repeats: str = ""  # the receipt of the first call of its id, if this is what that one returned
    cost_usd: Decimal
    duration_ms: float
    truncated: bool
    logs: str  # what a tool in a worker printed, and its traceback: for the operator; cut and without secrets
    layers: tuple[str, ...]  # the walls around the tool; empty if it did not run
    approvals: tuple[Agreement, ...]  # the approvals of the call, and who gave them
    programs: Layers | None  # the walls around its programs; None if it started none
    access: Access | None  # the rules that the kernel enforced; None if the tool did not run behind walls
    program_access: ProgramAccess  # the same for its programs
    _refusal: Deny | Ask | None
    _grant: Grant | None = None
    _identity: CallIdentity | None = None
    _carried: "_Carried | None" = None  # set in a result that was pickled and loaded

    @property
    def verdict(self) -> Literal["allow", "deny", "ask", "failed"]:
        """`allow`: it ran and returned; `deny`: policy, a person or a budget; `ask`: a person must approve it first.

        `failed` is everything else: it could not be called, or it was and did not return a value.
        """
        if self.ok:
            return "allow"
        if self.reason == "APPROVAL_REQUIRED" or (self.reason in FLOW_REASONS and self._is_asked):
            return "ask"
        return "deny" if self.code == "denied" else "failed"

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of the call, in order: every check with the rules that decided it, approvals, budget, sandbox."""
        if self._carried is not None:
            return self._carried.events
        if self._grant is not None:
            return self._grant.stamped_events
        events = all_events(self._refusal) if self._refusal is not None else ()
        identity = self._identity
        if identity is None:
            return events
        return tuple(identity.stamped(event, identity.started + self.duration_ms / 1000) for event in events)

    @property
    def capability(self) -> str:
        """What was refused, such as `fs:read:/etc/passwd`; of a call that may not be made at all, `tool:call:NAME`.

        Empty if nothing was refused: the call was done, or failed for another reason.
        """
        if self.ok or (self.verdict == "failed" and self._decision.use is None):
            return ""
        last = all_events(self._decision)[-1]
        return last.capability if isinstance(last, CapabilityDenied) else ""

    def unwrap(self) -> Any:
        """The value, or raise `Refused`."""
        if self.ok:
            return self.value
        if self._carried is not None and self._carried.refusal is not None:
            raise self._carried.refusal
        raise Refused(self._decision)

    def explain(self) -> str:
        """Explain the outcome to the operator: the request, the rules that decided it, the fix, the receipt."""
        if self._carried is not None:
            return self._carried.explained
        if self.ok:
            ran = f"ran for {self.duration_ms:.1f} ms" if not self.repeats else "has run before, with this id"
            lines = [f"done: `{self.tool}` {ran}"]
            lines += [_line(event) for event in self.events if isinstance(event, CapabilityGranted | CapabilityDenied)]
            lines += [f"  {'agreed to by':<14}{visible(', '.join(one.by))}" for one in self.approvals]
            if self.truncated:
                lines.append(
                    f"  {'cut':<14}the value was longer than `limits.output_kb`; this is its beginning, as text"
                )
        else:
            lines = [explain(self._decision)]
            if heading := self._heading:
                lines = [heading, *lines[0].splitlines()[1:]]
            if self.code == "execution_failed" and self.reason in _ASKED:
                lines.append(ran_until(money_text(self.cost_usd)))
        if self.programs is not None and self.programs.missing:
            label = "walls" if self.programs.is_whole else "degraded"
            lines.append(f"  {label:<14}its programs ran without {', '.join(self.programs.missing)}")
        if allowing := allowing_command(self):
            lines.append(f"  {'or run':<14}{allowing}")
        if self.repeats:
            lines.append(f"  {'repeats':<14}{self.repeats}: nothing ran again")
        return "\n".join([*lines, f"  {'receipt':<14}{self.receipt or 'none'}"])

    @property
    def _heading(self) -> str:
        """The first line of `explain` if the call failed for another reason than a deny; otherwise empty."""
        match self.reason:
            case "INPUT_INVALID":
                return f"invalid arguments: `{self.tool}` was not called"
            case "TOOL_FAILED":
                return f"failed: `{self.tool}` raised an error"
            case _ if self.code == "timed_out":
                return f"timed out: `{self.tool}` was stopped"
            case "CONNECT_FAILED" | "RESOLVE_FAILED":
                return f"failed: `{self.tool}` could not reach {self._decision.use}"
            case "FROZEN":
                return f"frozen: `{self.tool}` was not called"
            case _ if self.code == "not_available":
                return f"not available: `{self.tool}` was not called"
            case "LEDGER_UNAVAILABLE" if self.code == "execution_failed":
                return f"not recorded: `{self.tool}` ran, and its receipt could not be kept"
            case "TOOL_CRASHED":
                return f"ended: `{self.tool}` gave no answer"
            case _ if self.code == "execution_failed" and self.reason.startswith("LIMIT_"):
                use = self._decision.use
                return f"ended: `{self.tool}` ran into a limit" + (f" with {visible(str(use))}" if use else "")
            case _ if self.code == "execution_failed" and self._decision.use is None:
                return f"failed: `{self.tool}` was refused something while it ran"
        return ""

    def __repr__(self) -> str:
        outcome = repr(self.value) if self.ok else f"{self.code}, {self.error!r}"
        return f"Result({self.tool!r}, {outcome})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The explanation is pickled as text, because the manifest that it is made from is not pickled.
        plain = {name: getattr(self, name) for name in self.__struct_fields__ if name[0] != "_"}
        refusal = None if self.ok else Refused(self._decision)
        if self._carried is not None:
            refusal = self._carried.refusal
        return _restored, (plain, _Carried(self.explain(), self.events, refusal))

    @property
    def _is_asked(self) -> bool:
        """Whether the refusal was a question that nobody has answered yet."""
        carried = self._carried.refusal if self._carried is not None else None
        return isinstance(carried.decision if carried is not None else self._refusal, Ask)

    @property
    def _decision(self) -> Deny | Ask:
        if self._refusal is not None:
            return self._refusal
        return Deny(Request(self.tool), (Ground(self.reason, self.error.partition(": ")[2]),))


def allowing_command(result: Result) -> str:
    """The command line with which a person allows what was refused; empty if that takes more than lines of policy."""
    decision = result._refusal  # noqa: SLF001 - a private field of the class above
    if not result.receipt or not isinstance(decision, Deny):
        return ""
    if not is_allowable(decision):
        return ""
    reach = reach_behind(decision)
    file = reach.manifest.origin.file if reach is not None else ""
    found = file.rpartition("/")[2] == _FOUND
    return f"licet allow {result.receipt}{'' if found else f' --manifest {shlex.quote(file)}'}"


def refusal_line(result: Result) -> str:
    """One line for the model. If an approval is missing, it has the command with which a person can give it."""
    line = result.error or result.reason
    if result.verdict != "ask" and result.reason != "APPROVAL_EXPIRED":
        return line
    try:
        result.unwrap()
    except Refused as refused:
        last = refused.decision.rules[-1]
        told = last.fix and last.reason not in FLOW_REASONS  # what would meet a rule of flow is not for the model
        return f"{line}: {last.text}; a person can {last.fix}; then call again" if told else line
    return line


def _line(event: CapabilityGranted | CapabilityDenied) -> str:
    word = "refused" if isinstance(event, CapabilityDenied) else "held"
    return f"  {word:<14}{visible(event.capability)}  {visible(event.rule)}".rstrip()


class _Carried(Struct, frozen=True):
    """What a pickled result keeps of its decision and grant."""

    explained: str
    events: tuple[Event, ...]
    refusal: Refused | None


def _restored(plain: dict[str, Any], carried: _Carried) -> Result:
    refusal = carried.refusal.decision if carried.refusal is not None else None
    return Result(**plain, _refusal=refusal, _carried=carried)
