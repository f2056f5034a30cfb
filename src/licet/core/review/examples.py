"""Runs the examples of a policy: which calls and uses it must allow, refuse or ask about.

Examples are the `match:` and `no_match:` entries of a manifest, and the cases of test files. Each is decided as a gate
would decide it, from files alone. `exercised_rules` finds the written rules that an example depended on.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.rules import InvalidUse, Use, use_of_path, use_of_url
from licet.core.algebra.scope import Malformed
from licet.core.decision.argument_rules import (
    ArgumentCheck,
    PathReading,
    argument_denial,
    asked_arguments,
    denying,
    tie_denial,
    tied,
    ties_under,
    uses_of_argument,
)
from licet.core.decision.decide import decide
from licet.core.decision.decision import Decision, Deny
from licet.core.decision.foreseen import foreseen, unfit_grounds
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Ground, Request
from licet.core.late_pattern import late_pattern
from licet.core.policy.manifest import COMMANDS, Manifest, asked_tool, check_command_use, connection_of_command
from licet.core.values import Origin, Problem, near_hint

MATCH, NO_MATCH = ("allow", "ask"), ("deny",)  # the verdicts that `match:` and `no_match:` accept
_WORKDIR = "${workdir}"
_REQUEST = late_pattern(r"(?:(?P<method>\S+)\s+)?(?P<url>https?://\S*)", re.IGNORECASE)
_ACTION = late_pattern(r"(read|write|delete)\s+(\S.*)", re.DOTALL)
_PATH = late_pattern(r"[/~$]|\.{1,2}(?:/|$)")  # the beginnings of a path; no other word begins so


class Case(Struct, frozen=True):
    """One example: a tool, a use or arguments or both, and the verdict that the policy must give."""

    origin: Origin
    tool: str
    verdicts: tuple[str, ...]  # any of them passes
    use: str = ""  # as `asked_use` takes it
    args: Mapping[str, Any] | None = None  # None: no argument is looked at
    reason: str = ""  # the reason code that a refusal must have; empty if any will do
    name: str = ""

    @property
    def title(self) -> str:
        """The name of the case, or what it asks."""
        return self.name or self.asked

    @property
    def asked(self) -> str:
        """What the case asks: the tool, its arguments and the use."""
        given = "" if self.args is None else f" with {json.dumps(self.args)}"
        asks = f" may {self.use}" if self.use else "" if given else " may be called"
        return f"`{self.tool}`{given}{asks}"

    @property
    def expected(self) -> str:
        """The verdict that the policy must give, in words."""
        return " or ".join(self.verdicts) + (f" ({self.reason})" if self.reason else "")


class Outcome(Struct, frozen=True):
    """What a policy says to one case."""

    case: Case
    decision: Decision
    allowed_by: tuple[Ground, ...] = ()  # the rules that admit the tool and allow its uses, unless it is refused
    arguments: tuple[tuple[Origin, str], ...] = ()  # the rules on arguments that were checked: place and name

    @property
    def passed(self) -> bool:
        """Whether the verdict, and the reason if the case names one, are as the case says."""
        return self.decision.verdict in self.case.verdicts and self.case.reason in ("", self.reason)

    @property
    def reason(self) -> str:
        """The reason code of a refusal; empty if there is none."""
        return self.decision.reason if isinstance(self.decision, Deny) else ""

    @property
    def rules(self) -> tuple[Ground, ...]:
        """The rules that decided."""
        return self.decision.rules or self.allowed_by

    def __str__(self) -> str:
        """The outcome as one line: the place of the case, and if it failed, the verdict with the rules that decided."""
        case = self.case
        head = f"{case.origin.full}: {'passed' if self.passed else 'failed'}: {case.asked}"
        if case.name:
            head += f" ({case.name})"
        if self.passed:
            return head
        found = self.decision.verdict + (f" ({self.reason})" if self.reason else "")
        because = f", because {'; '.join(map(str, self.rules))}" if self.rules else ""
        return f"{head}: expected {case.expected}, found {found}{because}"


class WrittenRule(Struct, frozen=True, order=True):
    """One rule as a policy file has it. An entry counts as one rule, also if it allows several capabilities."""

    origin: Origin
    kind: str  # `allow`, `deny` or `args`
    text: str

    def __str__(self) -> str:
        return f"{self.origin.full}: not covered: {self.kind} {self.text}"


MakeCheck = Callable[[Mapping[str, Any]], ArgumentCheck]


class Setting(Struct, frozen=True):
    """What a case is decided in: the values of `${workdir}` and `~`, and the function that compiles argument rules."""

    workdir: str
    home: str
    make_check: MakeCheck


def cases_of(manifest: Manifest) -> tuple[Case, ...]:
    """The `match:` and `no_match:` examples of a manifest as cases."""
    return tuple(
        Case(example.origin, example.tool, MATCH if example.matches else NO_MATCH, example.use)
        for example in manifest.examples
    )


def run_case(case: Case, manifest: Manifest, setting: Setting) -> Outcome | Problem:
    """Decide one case under a reviewed manifest; a problem if the case cannot be decided, such as an unknown tool."""
    tool, manifest = asked_tool(case.tool, manifest)
    if tool != COMMANDS and (problem := _tool_problem(case, manifest) or _argument_problem(case, manifest)):
        return problem
    try:
        by_command = tool == COMMANDS
        commands = manifest if by_command else None
        uses = (asked_use(case.use, setting.workdir, setting.home, commands=commands),) if case.use else ()
        if by_command:
            check_command_use(*uses)
    except (InvalidUse, Malformed) as wrong:
        return Problem(case.origin, f"`{wrong.found}`", wrong.expected, getattr(wrong, "hint", ""))
    request, reach = Request(tool, uses), reach_of(manifest, tool)
    checked: list[tuple[Origin, str]] = []
    asked: dict[str, None] = {}
    if case.args is not None and reach is not None and not reach.grounds and not unfit_grounds(reach):
        given = {**_defaults(reach), **{name: _filled(value, setting.workdir) for name, value in case.args.items()}}
        known: list[Use] = []
        ties = ties_under(reach)
        reading = PathReading(setting.workdir, setting.home, by_code=ties is not None)
        if ties is not None and (denied := tie_denial(request, reach, ties, given, reading)) is not None:
            return Outcome(case, denied)
        for admission in reach.admissions:
            rules = admission.argument_rules
            if not rules:
                continue
            checked += ((admission.origin, name) for name in rules)
            check = setting.make_check(rules)
            denied = argument_denial(request, reach, rules, check, given, reading, admission.origin)
            if denied is not None:
                return Outcome(case, denied, arguments=tuple(checked))
            if admission.asking:
                refuses = setting.make_check(denying(admission.asking))
                asked |= dict.fromkeys(asked_arguments(admission.asking, refuses, given))
            values = tied(rules, given)
            known += (use for value in values for use in uses_of_argument(value, reach.grant, reading))
        deletes = tuple(use for use in known if use.domain == "fs" and use.action == "delete")
        request = Request(tool, (*uses, *deletes), asked=tuple(asked))
        uses = (*uses, *known)
    decision = foreseen(decide(request, manifest), manifest)
    if reach is None or isinstance(decision, Deny):
        return Outcome(case, decision, arguments=tuple(checked))
    held = uses if tool == COMMANDS else (Use(f"tool:call:{tool}"), *uses)
    by = tuple(ground for use in held for ground in reach.grounds_of(use))
    return Outcome(case, decision, by, tuple(checked))


def asked_use(text: str, workdir: str, home: str, *, commands: Manifest | None = None) -> Use:
    """Parse a use as people write it; raises `InvalidUse`. A URL alone is a GET, a path alone is a read.

    A path is taken from the working directory, and may begin with `${workdir}` or `~`. With `commands`, a command of
    `licet run` would do it under that manifest: an https URL is then a connection, except where that is looked into.
    """
    # No use in rule notation begins like a URL or a path, so the forms cannot be confused.
    if request := _REQUEST.fullmatch(text):
        if "*" in re.split(r"[/?#]", request["url"].partition("://")[2])[0]:
            raise InvalidUse(request["url"], "one concrete URL, whose host has no wildcard")
        use = use_of_url(request["method"] or "GET", request["url"])
        return use if commands is None else connection_of_command(use, commands)
    acted = _ACTION.fullmatch(text)
    action, path = acted.groups() if acted else ("read", text)
    if _PATH.match(path) or (acted and ":" not in path.partition("/")[0]):
        return use_of_path(action, _placed(path, workdir, home), workdir)
    # `data/a.csv` is not taken for a path: `api.example.com/v1` and `github/token` look the same.
    if text.count(":") < 2:
        raise InvalidUse(text, "an http or https URL, a path such as `./a` or `read a`, or `domain:action:scope`")
    domain, action, scope = text.split(":", 2)
    if domain == "fs" and scope.partition("/")[0] in (_WORKDIR, "~"):
        return use_of_path(action, _placed(scope, workdir, home))
    return Use(text)


def has_verb(text: str) -> bool:
    """Whether the first word of a use is an action or a method: `write PATH`, `POST URL`."""
    return bool(_ACTION.fullmatch(text) or _REQUEST.fullmatch(text))


def _placed(path: str, workdir: str, home: str) -> str:
    """Replace `~` or `${workdir}` at the beginning of a path by its directory, as in a rule."""
    if "*" in path:
        raise InvalidUse(path, "one concrete path, without a wildcard")
    root, slash, rest = path.partition("/")
    if root == "~" and not home:
        raise InvalidUse(path, "a user with a home directory; set HOME, or write the whole path")
    root = {"~": home, _WORKDIR: workdir}.get(root, root)
    if root.startswith(("~", "$")) or "${" in rest:
        raise InvalidUse(path, "a path; only `~` and `${workdir}`, at its start, stand for a directory")
    return root + slash + rest


def _filled(value: Any, workdir: str) -> Any:
    """Replace `${workdir}` at the beginning of every text. `~` stays, since a tool gets it as the caller wrote it."""
    match value:
        case str() if value.partition("/")[0] == _WORKDIR:
            return workdir + value.removeprefix(_WORKDIR)
        case list():
            return [_filled(item, workdir) for item in value]
        case dict():
            return {key: _filled(item, workdir) for key, item in value.items()}
    return value


def _tool_problem(case: Case, manifest: Manifest) -> Problem | None:
    """The problem of a tool about which the policy can say nothing but no."""
    if case.tool in manifest.tools:
        return None
    known = manifest.admissions.keys() | manifest.tools.keys() | manifest.bundles_by_tool.keys()
    if case.tool not in known:
        hint = near_hint(case.tool, known) or "no case about it can fail"
        return Problem(case.origin, f"the tool `{case.tool}`", "a tool that the policy knows", hint)
    if case.tool in manifest.admissions:
        hint = "declare it under `tools:` in the workspace; what a server offers is taken by `licet lock`"
        return Problem(case.origin, f"`{case.tool}`, which nothing declares", "a tool with a declaration", hint)
    return None


def _argument_problem(case: Case, manifest: Manifest) -> Problem | None:
    """The problem of arguments that the tool does not take, or that leave out one whose default only its code knows."""
    spec = manifest.tools.get(case.tool)
    if case.args is None or spec is None:
        return None
    taken = spec.parameters
    if taken is None and spec.schema is not None:
        taken = tuple(spec.schema.get("properties", ()))
    if taken is not None and (strange := [name for name in case.args if name not in taken]):
        expected = f"one of {', '.join(taken)}" if taken else "none, since the tool takes no arguments"
        return Problem(case.origin, f"the argument `{strange[0]}`", expected, near_hint(strange[0], taken))
    ruled = [name for admission in manifest.admissions.get(case.tool, ()) for name in admission.argument_rules]
    if spec.schema is None and (missing := [name for name in ruled if name not in case.args]):
        hint = "its default is in the code of the tool, which is not run"
        return Problem(case.origin, f"no argument `{missing[0]}`", "every argument that the policy has a rule on", hint)
    return None


def _defaults(reach: Reach) -> dict[str, Any]:
    properties = (reach.spec.schema or {}).get("properties", {})
    return {name: held["default"] for name, held in properties.items() if "default" in held}


# Coverage -------------------------------------------------------------------------------------------------------------


def written_rules(manifest: Manifest) -> frozenset[WrittenRule]:
    """Every rule of the files that applies to a tool of this agent: allows, denies and rules on arguments."""
    return frozenset(_rules(manifest).values())


def exercised_rules(outcomes: Iterable[Outcome], manifest: Manifest) -> frozenset[WrittenRule]:
    """The written rules that allowed or denied at least one of the cases."""
    rules = _rules(manifest)
    wanted = {key for outcome in outcomes for key in _keys(outcome)}
    return frozenset(rule for key, rule in rules.items() if key in wanted)


_Key = tuple[str, Origin, str]  # the kind, the place, and for a rule on an argument its text


def _argument_text(argument: str, tool: str) -> str:
    return f"`{argument}` of `{tool}`"


def _rules(manifest: Manifest) -> dict[_Key, WrittenRule]:
    reaches = [reach for name in manifest.admissions if (reach := reach_of(manifest, name)) is not None]
    layers = [*manifest.layers, *(layer for reach in reaches for layer in reach.layers)]
    found: dict[_Key, WrittenRule] = {}
    for layer in layers:
        if layer.kind == "protected paths":
            continue
        for kind, rules in (("allow", layer.allows), ("deny", layer.denies)):
            for rule in rules:
                if rule.origin != layer.origin:  # otherwise no line of a file states it, as the storage of each tool
                    text = str(rule.unexpanded or rule.capability)
                    found.setdefault((kind, rule.origin, ""), WrittenRule(rule.origin, kind, text))
    for name, admissions in manifest.admissions.items():
        for admission in admissions:
            for argument in admission.argument_rules:
                text = _argument_text(argument, name)
                found["args", admission.origin, text] = WrittenRule(admission.origin, "args", text)
    return found


def _keys(outcome: Outcome) -> Iterator[_Key]:
    tool = outcome.case.tool
    yield from (("args", origin, _argument_text(name, tool)) for origin, name in outcome.arguments)
    denied = isinstance(outcome.decision, Deny)
    for ground in outcome.decision.rules if denied else outcome.allowed_by:
        if ground.origin is not None:
            yield "deny" if denied else "allow", ground.origin, ""
