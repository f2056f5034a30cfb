"""The exceptions that licet raises.

    LicetError
    ├── ManifestError          a policy file is wrong: every problem, with file, line and column
    ├── RegistrationRefused    tools need more than the manifest allows: every misfit
    └── Refused                a call, or a use inside one, is not permitted: a reason code and text

`Malformed` (a rule) and `InvalidUse` (a request) are raised by the pure core and are `ValueError`s.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.algebra.scope import Malformed, visible
from licet.core.decision.decision import (
    Ask,
    Deny,
    explain,
    missing_at_host,
    reach_behind,
    reason_of,
    with_reasons,
)
from licet.core.decision.request import REASON_OF_DOMAIN, Reason, RequestAsSent
from licet.core.decision.validate import Misfit
from licet.core.values import Problem

__all__ = ["InvalidUse", "LicetError", "Malformed", "ManifestError", "Refused", "RegistrationRefused"]

_LONGEST = 4000  # characters of a message for a model: names, paths and URLs in it may be of any length


class LicetError(Exception):
    """Anything that licet refuses or cannot do."""


class ManifestError(LicetError):
    """A policy file has errors; `problems` lists all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type["ManifestError"], tuple[tuple[Problem, ...]]]:
        return ManifestError, (self.problems,)


class RegistrationRefused(LicetError):
    """Tools declare more than the manifest allows; `misfits` lists every case."""

    def __init__(self, misfits: Iterable[Misfit]) -> None:
        self.misfits = tuple(misfits)
        super().__init__("\n".join(map(str, self.misfits)))

    def __reduce__(self) -> tuple[type["RegistrationRefused"], tuple[tuple[Misfit, ...]]]:
        return RegistrationRefused, (self.misfits,)


class UntiedArgument(UserWarning):
    """A tool of an agent framework takes text that is neither tied to what it declares nor declared free."""


class Refused(LicetError):
    """A call or a use is not permitted. Its text is one line, safe for the model; `explain()` is for the operator."""

    _explained = ""  # the text of `explain` if the refusal was pickled in another process

    def __init__(self, decision: Deny | Ask) -> None:
        self.decision = decision = with_reasons(decision) if isinstance(decision, Deny) else decision
        self.code: Reason = reason_of(decision)
        self.use = decision.use
        text = _sentence(self.code, decision)
        super().__init__(f"{self.code}: {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'}")

    def explain(self) -> str:
        """Explain the refusal to the operator: the request, the rules that decided it, and the fix."""
        return self._explained or explain(self.decision)

    def repeating(self, sent: str) -> "Refused":
        """The same refusal, with the use in its text as the caller wrote it."""
        asked = self.decision.request
        request = RequestAsSent(asked.tool, asked.uses, asked.session, asked.arguments, sent=sent)
        return Refused(replace(self.decision, request=request))

    def __reduce__(self) -> tuple[type["Refused"], tuple[Deny | Ask], dict[str, Any]]:
        decision = self.decision
        # Pickle the grounds as text: the manifest that they come from is not pickled.
        carried = Deny(decision.request, decision.rules, decision.use) if isinstance(decision, Deny) else decision
        return Refused, (carried,), {"args": self.args, "_explained": self.explain()}


# Reasons whose ground is written for the model. The grounds of other reasons quote the policy, for the operator.
_SHOWN_TO_MODEL: frozenset[Reason] = frozenset(
    {
        *("INPUT_INVALID", "ARGUMENT_NOT_ALLOWED", "APPROVAL_DENIED", "APPROVAL_EXPIRED", "LEDGER_UNAVAILABLE"),
        *("BACKEND_MISSING", "TOOL_NOT_AVAILABLE", "ADDRESS_NOT_ALLOWED", "RESOLVE_FAILED", "CONNECT_FAILED"),
        *("LIMIT_TIME", "LIMIT_SIZE", "LIMIT_REDIRECTS", "TOOL_FAILED", "FROZEN", "SESSION_ENDED", "MANIFEST_CHANGED"),
        *("LIMIT_CPU", "LIMIT_MEMORY", "LIMIT_OUTPUT", "LIMIT_FILES", "LIMIT_PROCESSES", "LIMIT_FILE_SIZE"),
        *("LIMIT_DISK", "LIMIT_HOST_MEMORY", "LIMIT_HOST_FILES", "LIMIT_WAITING", "LIMIT_HEADERS"),
        "LIMIT_PATHS",
        *("LIMIT_FUEL", "LIMIT_STACK"),
        *("TOOL_CRASHED", "SANDBOX_UNAVAILABLE", "INTERRUPTED"),
        *("CALL_ID_REUSED", "CALL_UNKNOWN"),
        *("FLOW_ORIGIN", "FLOW_SECRET", "FLOW_NOT_ASKED_FOR"),
    }
)

_OF_HANDLES = frozenset(reason for domain, reason in REASON_OF_DOMAIN.items() if domain not in ("tool", "connector"))


def _sentence(code: Reason, decision: Deny | Ask) -> str:
    """One line that repeats only what the caller sent: no policy text, no secrets, no paths of the host."""
    use, tool = decision.use, visible(decision.request.tool)
    target = _target(decision)
    if code in _SHOWN_TO_MODEL:
        return visible(decision.rules[0].text)
    if code == "APPROVAL_REQUIRED":
        return f"{_asked(use, target) if use else f'this call of {tool}'} needs the approval of a person"
    if isinstance(decision, Deny) and decision.lacking:
        return f"{tool} needs {visible(decision.lacking)}, which is not allowed"
    if use is None and code in _OF_HANDLES:  # the request to a handle was malformed
        return visible(decision.rules[0].text)
    if use is None:
        return f"{tool} would exceed the budget" if code == "BUDGET_EXCEEDED" else f"{tool} may not be called"
    match code:
        case "HOST_NOT_ALLOWED":
            reach = reach_behind(decision) if isinstance(decision, Deny) else None
            if reach is not None and (missing := missing_at_host(reach, use)):
                return f"{target} is allowed, but not with {missing}"
            return f"{target} is not in the declared allowedHosts"
        case "SECRET_NOT_DECLARED" if use.domain == "network":
            return f"the request has a key that is not for {target}"
        case "SECRET_NOT_DECLARED":
            return f"{target} is not in the tool's declared secrets"
        case "PATH_NOT_REACHABLE":
            return f"{use.action} not permitted for {target}"
        case "BINARY_NOT_ALLOWED":
            return f"{target} is not in the declared allowedBinaries"
        case "ENV_NOT_ALLOWED":
            return f"{target} is not in the tool's declared env"
        case "STORAGE_NOT_DECLARED":
            return f"{target} is not in the tool's declared storage"
        case _:
            return f"{_asked(use, target)} is not permitted to {tool}"


def _asked(use: Use, target: str) -> str:
    return f"{use.domain} {use.method or use.action} {target}"


def _target(decision: Deny | Ask) -> str:
    """The target of a use, as the caller wrote it if that is known."""
    if decision.use is None:
        return ""
    return visible(decision.request.sent if isinstance(decision.request, RequestAsSent) else decision.use.target)
