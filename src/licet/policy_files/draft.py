"""The policies that licet writes: for tools, for a coding agent, for the servers of clients, and from recordings.

`exact_fit` collects the scopes that tools declare by key, and `manifest_text` writes them as YAML with comments: every
scope that they declare, and nothing else. How words are quoted and lists are written is here for all of these policies,
and for the lines that `additions.py` puts into a policy that is there. No file is read or written here.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from licet.core.algebra import domains
from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import Capability, InvalidUse
from licet.core.algebra.scope import TOP, path_ancestors, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.foreseen import LOOPBACK, on_this_machine
from licet.core.policy.layer import CLASSES, ELEVATED, OWN_STORAGE, WRITES, EffectClass
from licet.core.policy.tool import KEY_OF, ToolSpec
from licet.core.review.known_keys import entry_text, inspect_text, known_stand_in
from licet.core.review.risk import has_all_three, most_held
from licet.core.review.sensitive import TRUSTED
from licet.core.review.surface_entries import target_of
from licet.core.values import money_text
from licet.policy_files.nodes import UnsafeNumber, plain_value
from licet.policy_files.schema import FORMAT

_FS = DOMAINS["fs"].actions
_PERSONALITY = Capability("storage:*:personality")
_IN_EVERY_CEILING = CapabilitySet(OWN_STORAGE)
_HOSTS = "destinations.allow"


class Fit(Struct):
    """The lists of a manifest: by key, each item with the tools that need it, and the tools that defer."""

    items: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    deferring: dict[str, list[str]] = field(default_factory=dict)  # by key: tools that take everything listed there
    versions: dict[str, list[str]] = field(default_factory=dict)  # by connector; empty for any version

    def put(self, key: str, item: str, tool: str) -> None:
        """Record that a tool needs an item under a key."""
        tools = self.items.setdefault(key, {}).setdefault(item, [])
        if tool not in tools:
            tools.append(tool)

    def defer(self, key: str, tool: str) -> None:
        """Record that a tool takes everything that a key allows."""
        tools = self.deferring.setdefault(key, [])
        if tool not in tools:
            tools.append(tool)


def exact_fit(specs: Iterable[ToolSpec]) -> Fit:
    """Sort everything that some tools declare into the lists of a manifest; optional needs are marked."""
    specs = list(specs)
    admitted = {spec.name for spec in specs}
    fit = Fit()
    for spec in specs:
        more = [rule for rule in spec.optional.allow if not CapabilitySet((rule,)) <= spec.needs]
        _put_rules(fit, spec, spec.needs.allow, spec.name, admitted)
        _put_rules(fit, spec, more, f"{spec.name} (optional)", admitted)
    return fit


def _put_rules(fit: Fit, spec: ToolSpec, rules: Sequence[Capability], label: str, admitted: set[str]) -> None:
    """Record each rule under its key, with a label that names the tool and how it declares the rule."""
    for rule in rules:
        match rule.domain:
            case "fs":
                continue  # write and delete of one path are one entry, so the rules of a path are handled together
            case "network":
                _put_network(fit, rule, label)
            case "storage":
                _put_storage(fit, rule, label)
            case "tool":
                if not rule.defers and rule.key not in admitted:
                    fit.put("grants", str(rule), label)
            case "socket":
                if not rule.defers:
                    fit.put("grants", str(rule), label)
            case "connector":
                _put_connector(fit, rule, spec, label)
            case domain:
                _put_named(fit, KEY_OF[f"{domain}:{rule.action}"], rule, label)
    _put_paths(fit, rules, label)


def strongest_class(specs: Iterable[ToolSpec]) -> EffectClass:
    """The class that a manifest must allow for some tools. A tool that states none gets the weakest."""
    return max((spec.effect or CLASSES[0] for spec in specs), key=CLASSES.index, default=CLASSES[0])


def may_write(spec: ToolSpec) -> bool:
    """Whether a tool could hold a write, so that its calls would need approval."""
    return bool(most_held(spec) & WRITES)


def _put_network(fit: Fit, rule: Capability, tool: str) -> None:
    if on_this_machine(rule.key):  # no request is sent there before its addresses are opened
        for addresses in LOOPBACK:
            fit.put("private", addresses, tool)
    if rule.defers:
        fit.defer(_HOSTS, tool)
    elif rule.atoms == domains.EVERYTHING:
        fit.put(_HOSTS, target_of(rule), tool)
    else:
        fit.put("grants", str(rule), tool)


def _put_paths(fit: Fit, rules: Sequence[Capability], tool: str) -> None:
    held: dict[str, int] = {}
    for rule in rules:
        if rule.domain == "fs":
            held[rule.key] = held.get(rule.key, 0) | rule.atoms
    change = _FS["write"] | _FS["delete"]
    for path, atoms in held.items():
        if path == TOP:
            if atoms & _FS["read"]:
                fit.defer("fs_reach.read", tool)
            if atoms & change:
                fit.defer("fs_reach.write", tool)
            continue
        for above in path_ancestors(path)[1:-1]:  # a parent directory covers it already
            atoms &= ~held.get(above, 0)
        if atoms & _FS["read"]:
            fit.put("fs_reach.read", path, tool)
        if atoms & change == change:
            fit.put("fs_reach.write", path, tool)
        elif atoms & change:
            action = "write" if atoms & _FS["write"] else "delete"
            fit.put("grants", f"fs:{action}:{path}", tool)


def _put_storage(fit: Fit, rule: Capability, tool: str) -> None:
    if rule == _PERSONALITY:
        fit.put("storage", "personality", tool)
    elif rule.defers:
        fit.defer("storage", tool)
    elif not _IN_EVERY_CEILING.has(rule):
        fit.put("grants", str(rule), tool)


def _put_connector(fit: Fit, rule: Capability, spec: ToolSpec, label: str) -> None:
    if rule.defers:
        fit.defer("connectors", label)
        return
    fit.put("connectors", rule.key, label)
    version = spec.connector.version if spec.connector and spec.connector.name == rule.key else ""
    versions = fit.versions.setdefault(rule.key, [])
    if version not in versions:
        versions.append(version)


def _put_named(fit: Fit, key: str, rule: Capability, tool: str) -> None:
    if rule.defers:
        fit.defer(key, tool)
    else:
        fit.put(key, rule.scope, tool)


# Words, lists and the first lines -------------------------------------------------------------------------------------

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+-]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")  # of an agent, a tool or a connector
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[a-z][a-z0-9-]*")  # a server, a variable or a header
# What other YAML parsers read as a number, a truth value or nothing.
_NOT_TEXT = re.compile(r"[0-9.+_-]*|true|false|null|y|n|yes|no|on|off|inf|nan", re.IGNORECASE)


def word(text: str, plain: re.Pattern[str] = _PLAIN_WORD) -> str:
    """A text as a value or key; quoted unless it is `plain`, and every YAML parser reads it as this text."""
    if not plain.fullmatch(text) or _NOT_TEXT.fullmatch(text):
        return double_quoted(text)
    try:
        return text if isinstance(plain_value(text), str) else double_quoted(text)
    except UnsafeNumber:
        return double_quoted(text)


def double_quoted(text: str | Sequence[str]) -> str:
    """A text, or a list of texts, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def on_one_line(value: object) -> str:
    """A text, or a list or mapping of such values, on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {on_one_line(one)}' for key, one in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(on_one_line, value))}]"
    return word(value) if isinstance(value, str) else json.dumps(value)


def _opening(schema: str, comments: Iterable[str], agent: str) -> list[str]:
    """The first lines: the schema for editors, comments, the format, and the agent."""
    format_line = f"licet: {FORMAT}  # the format of this file"
    return [SCHEMA_LINE.format(schema), "#", *(f"# {line}" for line in comments), "", format_line, f"agent: {agent}"]


def _items(items: Iterable[str]) -> Iterator[str]:
    yield from (f"- {item}" for item in items)


def _indented(lines: Iterable[str], by: int = 2) -> Iterator[str]:
    for line in lines:
        yield f"{' ' * by}{line}" if line else ""


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# A policy for tools ---------------------------------------------------------------------------------------------------

SCHEMA_LINE = "# yaml-language-server: $schema={}"

_OPTIONAL = ("Entries marked `(optional)` may be taken out: the tool does without them.",)


class Sourced(Struct, frozen=True):
    """A tool and where it is declared, as `package.module:function`."""

    spec: ToolSpec
    source: str


class _Section(Struct, frozen=True):
    """One list of a manifest: its key, its purpose, and how to fill it if a tool takes everything listed."""

    key: str
    about: str
    example: str

    @property
    def outer(self) -> str:
        """The key above it, if any."""
        return self.key.rpartition(".")[0]


_SECTIONS = (
    _Section(
        "destinations.allow",
        "Hosts that may be connected to. `*.example.com` means every name below it, not example.com itself.",
        '"api.example.com"',
    ),
    _Section("private", "Addresses that are not public and may be connected to: here those of this machine.", ""),
    _Section("fs_reach.read", "A path covers everything below it.", '"${workdir}/data"'),
    _Section("fs_reach.write", "Create, change and delete; the class of a tool still decides.", '"${workdir}/out"'),
    _Section("process.allowed_binaries", "Programs that may be started.", "git"),
    _Section("env", "Environment variables that may be read.", "LANG"),
    _Section("secrets", "Secrets that may be read. Only their names are listed.", "API_KEY"),
    _Section("storage", "Storage beyond a tool's own and the session's.", "personality"),
    _Section("connectors", "Connectors that may be spoken through.", "github"),
    _Section("grants", "What no key above can say: one action, one method, one protocol.", ""),
)


def manifest_text(tools: Sequence[Sourced], agent: str, files: Iterable[str], schema: str) -> str:
    """Write a manifest that declares these tools and allows exactly what they need; `schema` is a path for editors."""
    specs = [tool.spec for tool in tools]
    fit = exact_fit(specs)
    about = (
        f"Written by `licet init` from {', '.join(map(visible, files))}: what these tools declare, and no more.",
        *(_OPTIONAL if any(spec.optional for spec in specs) else ()),
        "From here on it is yours. It never widens by itself: a tool that starts to need more no longer fits.",
        "  licet check             is it sound, and does every tool fit?",
        "  licet surface           what can the agent reach?",
        "  licet explain TOOL USE  why is something allowed or refused?",
        "  licet lock              before others use it: pins what you reviewed, and refuses anything else",
    )
    lines = [
        *_opening(schema, about, word(agent, _NAME)),
        "",
        "# Where each tool is declared. Reviews read the source; they never import it.",
        "tools:",
        *(f"  {word(tool.spec.name, _NAME)}: {{from: {json.dumps(tool.source)}}}" for tool in tools),
        *_connectors(fit),
        "",
        "# What the agent may touch. What is not here is denied.",
        "capabilities:",
        *_indented(_admitted(specs)),
        *_indented(_lists(fit)),
        *_indented(_consent(specs)),
        *_offered_flow(specs),
        *_examples(specs),
    ]
    return "\n".join(lines) + "\n"


def _offered_flow(specs: Sequence[ToolSpec]) -> Iterator[str]:
    if has_all_three(specs):
        yield ""
        yield "# They read what others may write, hold secrets, and write outside. After reading both, writes ask."
        yield "flow: {preset: trifecta}"


_FOREIGN = ("network:https:get@collect.example", "fs:read:/etc/shadow")  # what no tool should reach
_MOST_EXAMPLES = 3


def _examples(specs: Sequence[ToolSpec]) -> Iterator[str]:
    """A first test: some uses that must be allowed, and some that must not."""
    found = ((spec.name, use) for spec in specs for use in _some_use(spec))
    allowed = list(dict(found).items())[:_MOST_EXAMPLES]
    denied = [(spec.name, use) for spec in specs[:1] for use in _FOREIGN if not spec.needs.has(use)]
    if not allowed or not denied:
        return
    yield ""
    yield "# A first test, which `licet test` runs: what must be allowed, and what must not. Add what matters to you."
    yield "examples:"
    for key, uses in (("match", allowed), ("no_match", denied)):
        yield f"  {key}:"
        yield from (f"    - {{tool: {word(tool, _NAME)}, use: {json.dumps(use)}}}" for tool, use in uses)


def _some_use(spec: ToolSpec) -> Iterator[str]:
    """One use that a tool declares, if it declares a path, or a host by name."""
    for rule in spec.needs.allow:
        if rule.domain == "fs" and rule.key != TOP and rule.atoms & _FS["read"]:
            yield f"fs:read:{rule.scope}"
            return
        if rule.domain == "network" and not rule.key.startswith("*") and rule.key != TOP:
            use = f"network:https:get@{rule.key}"
            if not on_this_machine(rule.key) and _is_allowed(spec, use):
                yield use
                return


def _is_allowed(spec: ToolSpec, use: str) -> bool:
    try:
        return spec.needs.has(use)
    except InvalidUse:
        return False


def _connectors(fit: Fit) -> Iterator[str]:
    if fit.versions:
        yield ""
        yield "# Connectors that anybody here may use; an agent needs them in its own list too."
        yield "connectors:"
        yield "  tenant_allowlist:"
        for name, versions in sorted(fit.versions.items()):
            for version in [""] if "" in versions else sorted(versions):
                wanted = f', version: "=={version}"' if version else ""
                yield f"    - {{connector: {word(name, _NAME)}{wanted}}}"


def _admitted(specs: Sequence[ToolSpec]) -> Iterator[str]:
    silent = [spec for spec in specs if spec.effect is None or spec.sandbox is None]
    yield "# The tools it may call."
    if silent:
        names = _named(spec.name for spec in silent)
        yield f"# The class or level that {names} does not declare is the strictest one here."
        yield "# Better: `effect=` and `sandbox=` on the tool."
    yield "tools:"
    for spec in specs:
        stated = []
        if spec.effect is None:
            stated.append("side_effect_class: read_only")
        if spec.sandbox is None:
            stated.append("sandbox: restricted")
        # If there is nothing to state about any tool, a plain list is enough.
        yield f"  {word(spec.name, _NAME)}: {{{', '.join(stated)}}}" if silent else f"  - {word(spec.name, _NAME)}"
    yield ""
    yield "# The strongest class that any of them has: read_only < write_limited < full < destructive."
    yield f"max_side_effect_class: {strongest_class(specs)}"
    native = [spec.name for spec in specs if spec.sandbox == "native"]
    if native:
        yield ""
        yield "# WARNING: a native tool runs inside your process. No wall keeps it to what it declares."
        yield '# Leave only code here that you trust like your own; `sandbox="isolated"` is the better choice.'
        yield f"native: [{', '.join(word(name, _NAME) for name in native)}]"


def _lists(fit: Fit) -> Iterator[str]:
    above = ""
    for section in _SECTIONS:
        if section.key not in fit.items and section.key not in fit.deferring:
            continue
        if not section.outer or section.outer != above:
            yield ""
        if section.outer and section.outer != above:
            yield f"{section.outer}:"
        above = section.outer
        yield from _indented(_list(fit, section)) if above else _list(fit, section)


def _list(fit: Fit, section: _Section) -> Iterator[str]:
    items, deferring = fit.items.get(section.key, {}), fit.deferring.get(section.key, [])
    name = section.key.removeprefix(f"{section.outer}.")
    yield f"# {section.about}"
    if deferring:
        verb = "takes" if len(deferring) == 1 else "take"
        yield f"# {_named(deferring)} {verb} whatever is listed here, and nothing while nothing is."
        yield f"# Add what it needs, such as `- {section.example}`."
    if not items:
        yield f"{name}: []"
        return
    yield f"{name}:"
    for item, tools in sorted(items.items()):
        yield f"  - {double_quoted(item)}  # {', '.join(tools)}"


def _consent(specs: Sequence[ToolSpec]) -> Iterator[str]:
    strongest = strongest_class(specs)
    writing = [spec.name for spec in specs if may_write(spec)]
    if writing:
        yield ""
        yield f"# {_named(writing)} can write. You are asked about that once a session; `call` asks before each call."
        yield "# `manifest` does not ask: the file itself approves writes, once `licet trust` has accepted it."
        if strongest in ELEVATED:
            yield "# Each delete asks; with `delete: session` here, once a session. Each destructive call asks, too."
        yield "approvals: {write: session}"
    yield from _budget(specs, elevated=strongest in ELEVATED)


def _budget(specs: Sequence[ToolSpec], *, elevated: bool) -> Iterator[str]:
    limits = []
    dearest = max(specs, key=lambda spec: spec.cost_usd or 0, default=None)
    if elevated or (dearest and dearest.cost_usd):
        yield ""
    if elevated:
        yield f"# A tool of class {strongest_class(specs)} needs a limit. Set it to what a session really takes."
        limits.append("max_calls_per_session: 100")
    if dearest and dearest.cost_usd:
        cost = money_text(dearest.cost_usd)
        yield f"# A call costs up to {cost} USD (`{dearest.name}`). This is what a hundred of them cost; set it to what"
        yield "# a session may spend."
        limits.append(f"max_cost_usd: {money_text(100 * dearest.cost_usd)}")
    if limits:
        yield f"budget: {{{', '.join(limits)}}}"


# A policy for a coding agent ------------------------------------------------------------------------------------------

_MADE_FROM_IT = (
    "Written by `licet init --preset coding`: for a coding agent that works in this directory.",
    "  licet trust             (once, at a terminal: so that it may rename and delete files in the project)",
    "  licet run -- AGENT",
    "The agent and all that it starts are behind walls. They see this project, an empty home directory, and",
    "what programs need to run; of your other files, your variables and the network they see nothing.",
    "What it writes into the project is yours to review before you run it: docs/how-to/coding-agent.md.",
)
_FOR_HOOKS = (
    "Written by `licet hooks install`: for the coding agents that work in this directory, as you start them yourself.",
    "  licet trust             (at a terminal: so that they may rename and delete files in the project)",
    "  licet hooks status      what each agent's hook sees, and that it refuses",
    "Their reads, edits and fetches are decided by this file. Their shell lines run behind walls: they see this",
    "project, an empty home directory, and what programs need to run; of your other files, your variables and the",
    "network they see nothing. `licet run -- AGENT` puts a whole agent behind such walls.",
)
_CALLS = {False: "starts of `licet run`", True: "calls of agents, and starts of `licet run`"}
_CHANGES = ("write", "delete")
_MAY_HOLD_SECRETS = "it may hold secrets"
_CLOSED = ((".env", ("*",), "it often holds passwords"), *((one.path, _CHANGES, one.why) for one in TRUSTED))


class CodingNeeds(Struct, frozen=True):
    """What the coding agents of a project need, each thing as it is written in a rule."""

    programs: Sequence[str]
    hosts: Sequence[str]
    variables: Sequence[str]
    settings: Sequence[str]  # where they keep their login and settings
    interpreters: Sequence[str]  # directories that nobody could read otherwise
    packages: Sequence[str]  # the same, of packages of these agents
    closed: Sequence[str]  # names in the project, of those that programs of the user trust
    secrets: Sequence[str] = ()  # files in the project that hold secrets by custom, besides those names
    is_searched: bool = True  # whether all such files were found
    everywhere: bool = False  # whether the policy is for directories that are not there yet
    led: Mapping[str, str] = {}  # further names in the project, to which its git leads, each with the reason
    tools: Mapping[str, Mapping[str, Any]] | None = None  # of agents that ask licet through hooks; None without hooks


def coding_text(agent: str, schema: str, needs: CodingNeeds) -> str:
    """Write a policy under which `licet run -- AGENT` works on one project, and hooks of agents if there are any."""
    hooks = needs.tools is not None
    lines = [
        *_opening(schema, _FOR_HOOKS if hooks else _MADE_FROM_IT, word(agent)),
        "",
        "capabilities:",
        *_tools_of_agents(needs.tools),
        "  max_side_effect_class: full",
        "",
        "  fs_reach:",
        "    read:",
        '      - "${workdir}"',
        *(f'      - "{one}"  # an interpreter that programs here start' for one in needs.interpreters),
        *(f'      - "{one}"  # an agent and the packages that it consists of' for one in needs.packages),
        "    write:",
        '      - "${workdir}"',
        *_settings(needs.settings),
        "",
        *_denied(needs),
        "",
        "  process:",
        "    # Programs that you may start with `licet run`. What these start in turn is behind the same walls:",
        "    # `licet run -- sh -c …` starts anything that can be read.",
        "    allowed_binaries:",
        *_indented(_items(needs.programs), 6),
        "",
        "  destinations:",
        "    # Hosts that may be connected to. Package registries and the host of your repository are not among them.",
        *(() if needs.hosts else ("    # Add the host of the model, such as `- api.anthropic.com`.",)),
        f"    allow:{'' if needs.hosts else ' []'}",
        *_indented(_items(map(word, needs.hosts)), 6),
        "",
        "  # Variables of yours that the agent sees, such as the key of its model. All others are hidden. `licet run`",
        "  # adds those that lead to its proxy, the only way to the network. Node uses it from version 22.21 on.",
        f"  env: [{', '.join(['TERM', 'LANG', 'PATH', *needs.variables])}]",
        "",
        *_offered_keys(needs.variables),
        "",
        "  # Nobody is asked about writes, since you have accepted this file. Agents and builds rename and delete",
        "  # files all the time: you agree to that in `licet trust`, for 30 days; else they delete what they made.",
        "  approvals: {write: manifest, delete: manifest, expires_seconds: 3600}",
        f"  budget: {{max_calls_per_day: {100_000 if hooks else 10_000}}}  # {_CALLS[hooks]}; class full needs a limit",
        "",
        "  # A build and an agent fit into these. Time is not limited. Memory is that of each process.",
        "  limits: {memory_mb: 8192, processes: 4096, open_files: 65536, file_mb: 65536, scratch_mb: 4096}",
    ]
    return "\n".join(lines) + "\n"


_OFTEN_USED = ("GITHUB_TOKEN", "NPM_TOKEN")  # keys that agents have a use for, besides those of their models


def _offered_keys(variables: Sequence[str]) -> Iterator[str]:
    """Lines that are no policy yet: keys that programs can use without ever having them."""
    known = (known_stand_in(variable, variable) for variable in (*variables, *_OFTEN_USED))
    entries = [entry for entry in known if entry is not None]
    yield "  # Keys that can stay outside the walls: programs see a worthless value, and the key is put in at its hosts"
    yield "  # alone. Take a key out of `env`, keep its lines here, and remove their `# `. A program can still use the"
    yield "  # key there, as far as `destinations` and `grants` go."
    yield f"  # {inspect_text(entries)}"
    yield f"  # secrets: [{', '.join(entry.secret for entry in entries)}]"
    yield "  # stand_ins:"
    yield from (f"  #   {entry_text(entry)}" for entry in entries)


def _tools_of_agents(tools: Mapping[str, Mapping[str, Any]] | None) -> Iterator[str]:
    if tools is None:
        yield "  tools: []  # programs are run with `licet run`; this agent has no tools of its own"
        return
    yield "  # Tools of the agents that must be named: what hands data to a service, such as a search of the web."
    yield "  # All others are admitted; an entry narrows one. What fits `not` is refused, what fits `ask` is asked."
    yield f"  tools:{'' if tools else ' []'}"
    for name, entry in tools.items():
        yield f"    {name}:{'' if entry else ' {}'}"
        for argument, rules in entry.get("args", {}).items():
            yield from ("      args:", f"        {argument}:")
            for key, schema in rules.items():
                yield from (f"          {key}:", "            anyOf:")
                yield from (f"              - pattern: {double_quoted(one['pattern'])}" for one in schema["anyOf"])


def closable() -> tuple[str, ...]:
    """The names in a project that a policy for a coding agent can close."""
    return tuple(path for path, _, _ in _CLOSED)


def _denied(needs: CodingNeeds) -> Iterator[str]:
    """What the agent may not read, or not change."""
    yield "  # What the agent may not read, or not change. Add what is here and not for a model."
    left = _named([path for path in closable() if path not in needs.closed])
    if needs.everywhere:
        yield from _comment(f"Left open, since work or builds make them, or they are rare: {left}.")
        yield from _comment(
            "Other files with secrets, such as `.env.local`, are not in this list, and can be read: a project that has "
            "some needs a policy of its own, which `licet hooks install` and `licet init --preset coding` write there."
        )
    else:
        yield from _comment(
            f"Not here, or a link, and left open; to be denied once they are there and you rely on them: {left}."
        )
        yield from _comment(
            "Files that hold secrets by custom are in this list as far as they were here when it was written: add "
            "those that are made later. Take out a line if your programs need the file, and it is for a model too."
        )
        if not needs.is_searched:
            yield from _comment("NOT ALL OF THEM: there are too many files here, or names that no rule can have.")
    yield "  deny:"
    denied = (
        *(row for row in _CLOSED if row[0] in needs.closed),
        *((path, ("*",), _MAY_HOLD_SECRETS) for path in needs.secrets),
        *((path, _CHANGES, why) for path, why in needs.led.items()),
    )
    for path, actions, why in denied:
        yield from (f"    - {double_quoted(f'fs:{action}:${{workdir}}/{path}')}  # {why}" for action in actions)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 116, initial_indent="  # ", subsequent_indent="  # ", break_on_hyphens=False)


def _settings(paths: Sequence[str]) -> Iterator[str]:
    if paths:
        yield "    # To let it use your login and settings, add HOME to `env` below and its directory to both lists:"
        yield f"    # {_named(paths)}."
        yield "    # Whatever it writes there can make your next session outside of these walls start programs."


# A policy for servers of clients --------------------------------------------------------------------------------------


class ServerNeeds(Struct, frozen=True):
    """What servers need of the agent's policy, besides their own entries."""

    secrets: Sequence[str]
    variables: Sequence[str]
    hosts: Sequence[str]


def servers_text(agent: str, servers: Mapping[str, Mapping[str, Any]], needs: ServerNeeds, schema: str) -> str:
    """Write a manifest and workspace in one, for servers whose tools are not known yet: it admits none."""
    is_local = any(on_this_machine(host) or host == "[::1]" or host.startswith("127.") for host in needs.hosts)
    with_secrets = ("                      (with --secrets FILE; without it, the command names the file)",)
    about = (
        "Written by `licet init --mcp` from the configurations of MCP clients. Nothing is allowed yet:",
        "  licet lock --init   starts each server behind walls, and drafts its `grants` and `tools`",
        *(with_secrets if needs.secrets else ()),
        "  licet lock          pins what the servers offer; review licet.lock and commit it",
        "  licet surface       what can the agent reach?",
    )
    lines = [
        *_opening(schema, about, double_quoted(agent)),
        "",
        "# What the agent may touch. What is not here is denied.",
        "capabilities:",
        "  # The tools it may call, by full name, such as files.read_file; `licet lock --init` prints them.",
        "  tools: []",
        *_given("secrets", "Secrets that the servers below are given. Only their names are listed.", needs.secrets),
        *_given("env", "Variables that are passed on to them.", needs.variables),
    ]
    if needs.hosts:
        lines += ["  # Hosts of servers on other machines.", "  destinations:", "    allow:"]
        lines += _indented(_items(map(double_quoted, needs.hosts)), 6)
    lines += _given("private", "Addresses of this machine, where one of them is.", LOOPBACK if is_local else ())
    if needs.secrets:
        lines += [
            "",
            "# These servers hold secrets. If they read what others write, and write outside, take out the `# `:",
        ]
        lines += ["# flow: {preset: trifecta}"]
    # Last, since `licet lock --init` adds lines at the end of each server: a comment after it would be cut off its key.
    lines += ["", "servers:", *_indented(server_lines(servers))]
    return "\n".join(lines) + "\n"


def _given(key: str, about: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield from _indented([f"# {about}", f"{key}:", *_indented(_items(map(double_quoted, items)))])


def server_lines(servers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The lines of some servers, as they stand below `servers:`, without indentation."""
    for name, data in servers.items():
        yield f"{word(name, _KEY)}:"
        for key, value in data.items():
            if not isinstance(value, Mapping):
                yield f"  {key}: {double_quoted(value)}"
                continue
            yield f"  {key}:"
            yield from (f"    {word(inner, _KEY)}: {double_quoted(one)}" for inner, one in value.items())


# A policy from recordings ---------------------------------------------------------------------------------------------


def empty_text(agent: str, about: Iterable[str]) -> str:
    """The text of a policy that allows nothing yet."""
    comments = "".join(f"# {line}\n" for line in about)
    return f"{comments}agent: {word(agent)}\ncapabilities: {{}}\n"
