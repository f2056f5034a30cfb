"""The input of a decision (`Request`, `Usage`, `Approval`), and a reason for its result (`Ground`, with a code)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

from msgspec import Struct

from licet.core.algebra.use import Use
from licet.core.origin import Origin

Reason = Literal[
    "ALLOWED",
    # declare, validate, decide
    "UNKNOWN_TOOL",
    "TOOL_NOT_IN_BUNDLE",
    "INPUT_INVALID",
    "ARGUMENT_NOT_ALLOWED",
    "SIDE_EFFECT_EXCEEDED",
    "CONNECTOR_NOT_ALLOWED",
    "SANDBOX_NOT_DECLARED",
    "NATIVE_NOT_ALLOWED",
    "DECISION_FAILED",
    # ask, reserve, record, bind
    "APPROVAL_REQUIRED",
    "APPROVAL_DENIED",
    "APPROVAL_EXPIRED",
    "BUDGET_EXCEEDED",
    "LEDGER_UNAVAILABLE",
    "BACKEND_MISSING",
    "TOOL_NOT_AVAILABLE",
    # run
    "HOST_NOT_ALLOWED",
    "ADDRESS_NOT_ALLOWED",
    "PATH_NOT_REACHABLE",
    "SECRET_NOT_DECLARED",
    "BINARY_NOT_ALLOWED",
    "ENV_NOT_ALLOWED",
    "STORAGE_NOT_DECLARED",
    "RESOLVE_FAILED",
    "CONNECT_FAILED",
    "LIMIT_TIME",
    "LIMIT_SIZE",
    "LIMIT_REDIRECTS",
    "LIMIT_CPU",
    "LIMIT_MEMORY",
    "LIMIT_OUTPUT",
    "LIMIT_FILES",
    "LIMIT_PROCESSES",
    "LIMIT_FILE_SIZE",
    "LIMIT_DISK",
    "LIMIT_HOST_MEMORY",
    "LIMIT_HOST_FILES",
    "LIMIT_WAITING",
    "LIMIT_HEADERS",
    "LIMIT_FUEL",
    "LIMIT_STACK",
    "TOOL_FAILED",
    "TOOL_CRASHED",
    # always
    "FROZEN",
    "SESSION_ENDED",
    "MANIFEST_CHANGED",
    "SANDBOX_UNAVAILABLE",
    "INTERRUPTED",
]

REASON_OF_DOMAIN: dict[str, Reason] = {
    "network": "HOST_NOT_ALLOWED",
    "fs": "PATH_NOT_REACHABLE",
    "secret": "SECRET_NOT_DECLARED",
    "process": "BINARY_NOT_ALLOWED",
    "env": "ENV_NOT_ALLOWED",
    "storage": "STORAGE_NOT_DECLARED",
    "tool": "TOOL_NOT_IN_BUNDLE",
    "connector": "CONNECTOR_NOT_ALLOWED",
}


class Approval(Struct, frozen=True):
    """What a person has approved. It is never for more than one tool in one session under one manifest."""

    manifest: str
    tool: str
    session: str
    arguments: str = ""  # the digest of the arguments, if only calls with exactly these were approved
    use: str = ""  # if only this one use was approved
    deletes: bool = False  # if all deletes of files that the tool holds are approved with it


class Request(Struct, frozen=True):
    """One call: the tool, and the uses that are known before it starts."""

    tool: str
    uses: tuple[Use, ...] = ()
    session: str = ""
    arguments: str = ""  # the digest of the arguments
    likely: tuple[Use, ...] = ()  # deletes that its arguments name: asked about together with the call, if it asks


class RequestAsSent(Request, frozen=True):
    """A request with one refused use as the caller wrote it. The message to the caller repeats only that text."""

    sent: str = ""


def is_sound(request: Request) -> bool:
    """Whether a request and its fields have exactly the declared types: a subclass could return other values later."""
    if type(request) is not Request and type(request) is not RequestAsSent:
        return False
    for text in (request.tool, request.session, request.arguments):
        if type(text) is not str:
            return False
    if type(request.uses) is not tuple or type(request.likely) is not tuple:
        return False
    for use in (*request.uses, *request.likely) if request.likely else request.uses:  # noqa: SIM110  a plain loop, since every decision runs it
        if type(use) is not Use:
            return False
    return True


class Usage(Struct, frozen=True):
    """What a session has spent so far, and what was approved for it."""

    calls: int = 0
    calls_of_tool: Mapping[str, int] = {}
    cost_usd: Decimal = Decimal(0)
    cost_usd_today: Decimal = Decimal(0)
    cost_usd_of_tool: Mapping[str, Decimal] = {}
    calls_today: int = 0  # by the agent, in all sessions
    approved: frozenset[Approval] = frozenset()
    bundles: Mapping[str, "Usage"] = {}  # name of a bundle -> what its tools have spent together


UNUSED = Usage()
MOST_OF_A_GROUND = 1000  # characters of one ground


class Ground(Struct, frozen=True):
    """One reason for a decision: a rule or a missing rule, where it is written, and the edit that would change it."""

    reason: Reason
    text: str
    origin: Origin | None = None
    fix: str = ""  # empty if no edit would help
    capability: str = ""  # what the reason is about, if it is about the tool and not about one use

    def __str__(self) -> str:
        return f"{self.text} ({self.origin})" if self.origin else self.text
