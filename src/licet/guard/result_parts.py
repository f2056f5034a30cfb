"""Makes the parts of a result: what a tool returned, redacted and cut to its limit, or why it failed and what helps."""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from decimal import Decimal
from time import monotonic
from typing import Any, NoReturn, get_args

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.rules import Use
from licet.core.algebra.scope import visible
from licet.core.decision.decision import Ask, Deny
from licet.core.decision.request import Ground, Reason, Request
from licet.core.values import Origin
from licet.declare.plain_json import data_again, is_heavy, json_core, plain_json
from licet.errors import Refused
from licet.guard.execution import (
    LIMIT_KEYS,
    FailedText,
    JsonText,
    Layers,
    Raised,
    class_name,
    limit_name,
    raised,
    result_text,
)
from licet.guard.facts import Call
from licet.guard.grant import NO_PROGRAMS, Access, CallIdentity, Grant, ProgramAccess
from licet.guard.handles.secrets_and_kv import redacted_refusal
from licet.guard.held_paths import held_paths
from licet.guard.limits import CLOSING_SECONDS, MOST_DIRECTORIES, MOST_OF_AN_ERROR, PARSED_BEYOND
from licet.guard.ports import Agreement
from licet.guard.redaction.redact import Redactor, encoded, in_turn, shown
from licet.guard.result import Code, Result

_NOT_AVAILABLE: frozenset[Reason] = frozenset(
    {
        *("UNKNOWN_TOOL", "BACKEND_MISSING", "LEDGER_UNAVAILABLE", "SANDBOX_UNAVAILABLE", "TOOL_NOT_AVAILABLE"),
        *("SESSION_ENDED", "FROZEN"),
    }
)
NOTHING = Decimal(0)
INTERRUPTED = "the call was interrupted before it ended"
REPORTED = "the tool says in its result that it failed"
REPORTED_BY_AGENT = "the agent reports that it failed"
UNREPORTED = "nobody has reported how it ended"

_REASONS = frozenset(get_args(Reason))
_NO_WORDS = ("note: ", "thread '")  # how lines begin that the runtime of Rust adds to an error
_NEW_NAMES = "new names directly in {}, next to names that are closed, can be made with `ctx.fs` alone"
_NOTHING_THERE = "at `restricted` no file of yours is there for `open()`: use `ctx.fs`, see `licet lint`"
_USE_HANDLES = (
    "if a wall stopped this: declare what it touches, and use its handle (`ctx.fs`, `ctx.fetch`, `ctx.process`)"
)
_LOADED_AGAIN = (
    "the module of a tool is loaded a second time, behind the walls, where no files, network, arguments or variables "
    'of your program are: put what starts the program under `if __name__ == "__main__":`, and what the tool needs '
    "into the tool (`ctx.fs`, `ctx.env`, arguments)"
)


def code_of(reason: Reason) -> Code:
    """The code of a refusal before the tool runs."""
    if reason == "INPUT_INVALID":
        return "input_invalid"
    if reason == "LIMIT_TIME":
        return "timed_out"
    return "not_available" if reason in _NOT_AVAILABLE else "denied"


class ResultParts(Struct, eq=False):
    """A mutable result: `close` fills it in, and `sealed` makes the `Result`."""

    tool: str
    value: Any = None
    ok: bool = True
    code: Code = "ok"
    reason: Reason = "ALLOWED"
    error: str = ""
    receipt: str = ""
    repeats: str = ""
    cost_usd: Decimal = NOTHING
    duration_ms: float = 0.0
    truncated: bool = False
    logs: str = ""
    layers: tuple[str, ...] = ()
    approvals: tuple[Agreement, ...] = ()
    programs: Layers | None = None
    access: Access | None = None
    program_access: ProgramAccess = NO_PROGRAMS
    refusal: Deny | Ask | None = None

    def __repr__(self) -> str:  # the value may be secret
        return f"<result of {self.tool!r}: {self.code}>"

    def refuse(self, code: Code, refusal: Refused) -> "ResultParts":
        """Turn it into the result of a refusal."""
        self.ok, self.value = False, None
        self.code, self.reason, self.error, self.refusal = code, refusal.code, str(refusal), refusal.decision
        return self

    def sealed(self, grant: Grant | None, identity: CallIdentity | None = None) -> Result:
        """The finished result."""
        return Result(
            tool=self.tool,
            value=self.value,
            ok=self.ok,
            code=self.code,
            reason=self.reason,
            error=self.error,
            receipt=self.receipt,
            repeats=self.repeats,
            cost_usd=self.cost_usd,
            duration_ms=self.duration_ms,
            truncated=self.truncated,
            logs=self.logs,
            layers=self.layers,
            approvals=self.approvals,
            programs=self.programs,
            access=self.access,
            program_access=self.program_access,
            _refusal=self.refusal,
            _grant=grant,
            _identity=identity,
        )


def interrupted(request: Request, running: bool) -> ResultParts:
    """The result of a call that its caller cancelled. Only the receipt shows it."""
    refusal = Refused(Deny(request, (Ground("TOOL_FAILED" if running else "INTERRUPTED", INTERRUPTED),)))
    return ResultParts(request.tool).refuse("execution_failed" if running else "denied", refusal)


async def succeeded(call: Call, value: object) -> ResultParts:
    """The result of a tool that returned: a copy of its data, redacted, and cut to its limit."""
    if value is None or value is True or value is False:
        return ResultParts(call.tool, value)
    text = value if isinstance(value, JsonText) else result_text(value)
    limit, redactor = call.registered.output_bytes if call.registered else 0, call.redactor
    call.result_bytes = len(text)
    if len(text) > limit:  # before anything is parsed
        return _as_reported(call, value, await _cut(call, text, limit, redactor))
    text, data = _parsed(call, text)
    if call.is_long:  # parsing took a while, and so does redaction
        await asyncio.sleep(0)
    if redactor is not None:  # the text as one: it may hold very many strings
        clean = await _redacted(call, redactor.work(text, as_json=True))
        text, data = clean, data_again(clean)
    parts = await _cut(call, text, limit) if len(text) > limit else ResultParts(call.tool, data)
    return _as_reported(call, value, parts)


def _as_reported(call: Call, value: object, parts: ResultParts) -> ResultParts:
    """The result as a failure if the tool says that it is one. It keeps what the tool returned."""
    if type(value) is FailedText:
        data = parts.value
        parts.refuse("execution_failed", Refused(Deny(call.request, (Ground("TOOL_FAILED", REPORTED),))))
        parts.value = data
    return parts


async def _cut(call: Call, text: bytes, limit: int, redactor: Redactor | None = None) -> ResultParts:
    """The result of a tool that returned too much: the beginning of its text, or of its JSON if it is no text."""
    cut = text
    if text[:1] == b'"':  # a text: parse as far as a secret that begins within the limit can reach
        cut = encoded(_partly(call, text[: 2 * limit + PARSED_BEYOND]))
    clean = cut[:limit] if redactor is None else await _redacted(call, redactor.work_on_beginning(cut, limit))
    parts = ResultParts(call.tool, shown(clean))
    parts.truncated = True
    return parts


async def _redacted(call: Call, work: Generator[None, None, bytes]) -> bytes:
    """Remove secrets from a result within the time of its call; nothing leaves that was not searched completely."""
    left = call.deadline.when - monotonic() if call.deadline is not None else 0.0
    try:
        return await in_turn(work, max(left, CLOSING_SECONDS))
    except TimeoutError:
        fix = f"return less, or raise {limit_name('LIMIT_TIME')}"
        call.refuse(
            "LIMIT_TIME", f"the time of {call.tool} was up before all secrets were removed from its result", fix
        )


def _partly(call: Call, text: bytes) -> str:
    try:
        found: str = json_core().from_json(text, allow_partial="trailing-strings")
    except ValueError:
        _no_json(call)
    return found


def _parsed(call: Call, text: bytes) -> tuple[bytes, Any]:
    """The canonical JSON of a result and its data; refuse one whose parsing would delay other calls."""
    if is_heavy(text):
        fix = "return fewer values, or one text"
        call.refuse("LIMIT_OUTPUT", "the result holds more values than can be parsed without delay for others", fix)
    try:
        data = data_again(text)
        if not isinstance(text, JsonText) or (canonical := plain_json(data)) == text:
            return text, data
        return canonical, data_again(canonical)  # another process may write the same data differently
    except (ValueError, RecursionError):
        _no_json(call)


def _no_json(call: Call) -> NoReturn:
    call.refuse("TOOL_CRASHED", "the tool's process returned a result that is not JSON")


def refused(call: Call, refusal: Refused) -> ResultParts:
    """The result of a call that was refused, before its tool ran or by a handle inside it."""
    code, decision = code_of(refusal.code), refusal.decision
    if call.running and refusal.code != "TOOL_NOT_AVAILABLE":  # a server that is gone: whatever it did is not known
        code = "timed_out" if call.deadline and call.deadline.expired and not call.was_cut else "execution_failed"
        if decision.use is None and refusal.code in LIMIT_KEYS:
            decision = _with_advice(call, decision)
    told = Refused(decision)
    if call.redactor is not None:
        told = redacted_refusal(call.redactor, told)
    return ResultParts(call.tool).refuse(code, told)


def _with_advice(call: Call, decision: Deny | Ask) -> Deny | Ask:
    """The refusal of a tool that ran into a limit, with a fix: which limit to raise, and where it is stated."""
    ground, manifest = decision.rules[0], call.policy.manifest
    if (
        isinstance(decision, Ask) or ground.fix or ground.reason == "LIMIT_OUTPUT"
    ):  # a fixed size of licet, in no manifest
        return decision
    name = limit_name(ground.reason)
    fix, place = f"set a higher {name} under `capabilities` ({manifest.origin.file})", ground.origin
    if found := _limit_place(call, LIMIT_KEYS[ground.reason]):
        whose, place = found
        fix = f"raise {name}{whose} ({place})"
    return Deny(decision.request, (replace(ground, fix=fix, origin=place),), None)


def _limit_place(call: Call, key: str) -> tuple[str, Origin] | None:
    """Which part of the policy states the limit of this call, and where; None if none does."""
    manifest, registered = call.policy.manifest, call.registered
    limit = registered.limits.get(key) if registered is not None else None
    if limit is None:
        return None
    if manifest.limits.get(key) == limit:
        place = manifest.places.get(f"limits.{key}", manifest.origin)
        # A personality has the keys of `capabilities` at its top level.
        return " under `capabilities`" if place.file == manifest.origin.file else "", place
    for admission in manifest.admissions.get(call.tool, ()):
        if admission.limits.get(key) == limit:
            return (
                f" of the bundle `{admission.bundle}`" if admission.bundle else f" of `{call.tool}`",
                admission.origin,
            )
    return None


def failed(call: Call, error: BaseException) -> ResultParts:
    """The result of a call that raised an error: the tool's own, or one of licet before the tool ran."""
    reason: Reason = "TOOL_FAILED" if call.running else "DECISION_FAILED"
    known = error if type(error) is Raised else raised(error)
    told = known.kind
    if call.running and (text := str(known)):
        told = f"{told}: {text}"
    told = told.strip()
    if known.loading:
        told = f"its module could not be loaded behind the walls: {told}"
    printed = known.printed
    if call.redactor is not None:  # all lines: a secret may have several
        told = call.redactor.beginning_of(told, 4 * MOST_OF_AN_ERROR)
        printed = call.redactor.text(printed)
    said = [line for line in map(str.strip, printed.splitlines()) if line and not line.startswith(_NO_WORDS)]
    told = ": ".join((told.partition("\n")[0][:MOST_OF_AN_ERROR], *said[-1:]))
    told = visible(told[:MOST_OF_AN_ERROR])[:MOST_OF_AN_ERROR]
    at = known.origin or _raised_behind_walls(call, known)
    fix = _LOADED_AGAIN if known.loading else _wall_advice(call, known)
    refusal = Refused(Deny(call.request, (Ground(reason, told, at, fix),)))
    return ResultParts(call.tool).refuse("execution_failed" if call.running else "denied", refusal)


def outcome(call: Call, error: BaseException) -> ResultParts:
    """The result of a call that raised. A tool can raise anything, also a `Refused` of its own making."""
    with suppress(Exception):
        if type(error) is Refused and _is_complete(error):
            return refused(call, error)
    with suppress(Exception):
        return failed(call, error)
    ground = Ground("TOOL_FAILED" if call.running else "DECISION_FAILED", class_name(type(error)))
    refusal = Refused(Deny(call.request, (ground,)))
    return ResultParts(call.tool).refuse("execution_failed" if call.running else "denied", refusal)


def _is_complete(refusal: Refused) -> bool:
    """Whether a refusal has all fields of the right types: one that a tool made itself may hold anything."""
    decision = refusal.decision
    if type(decision) is not Deny and type(decision) is not Ask:
        return False
    asked, rules = decision.request, decision.rules
    grounds = [type(rule) is Ground and _is_valid(rule) for rule in rules]
    known = isinstance(asked, Request) and type(asked.tool) is str and type(decision.use) in (Use, type(None))
    return known and bool(grounds) and all(grounds) and refusal.code in _REASONS


def _is_valid(ground: Ground) -> bool:
    origin = ground.origin is None or type(ground.origin) is Origin
    return origin and ground.reason in _REASONS and type(ground.text) is str and type(ground.fix) is str


def _wall_advice(call: Call, error: Raised) -> str:
    """The fix for an error that a wall may have caused. It lists directories where only `ctx.fs` can create files."""
    reach = call.registered.reach if call.registered is not None else None
    if error.kind == FileNotFoundError.__name__ and error.line and reach is not None and reach.level == "restricted":
        return _NOTHING_THERE
    if not error.forbidden:
        return ""
    if reach is None or reach.level != "isolated":
        return _USE_HANDLES
    closed = held_paths(reach.grant).directories_with_closed_names()
    if not closed:
        return _USE_HANDLES
    named = ", ".join(visible(path) for path in closed[:MOST_DIRECTORIES])
    more = f" and {len(closed) - MOST_DIRECTORIES} more" if len(closed) > MOST_DIRECTORIES else ""
    return f"{_USE_HANDLES}; {_NEW_NAMES.format(f'{named}{more}')}"


def _raised_behind_walls(call: Call, error: Raised) -> Origin | None:
    """Where a tool in a worker raised. The worker reports only the line: it could lie about a file."""
    code = getattr(call.registered.tool.fn, "__code__", None) if call.registered is not None else None
    return Origin(code.co_filename, error.line, 1) if code is not None and error.line else None
