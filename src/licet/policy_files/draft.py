"""The manifest that `licet init` writes: every scope that the tools declare, and nothing else.

`exact_fit` collects the scopes by key, and `manifest_text` writes them as YAML with comments. No file is read or
written here.

Puts learned lines into the text of a policy file. What a person wrote there stays: comments, order, quotes, lines.

Lines are inserted into the text as it is. Only a list or mapping that is written on one line, `[…]` or `{…}`, is
written anew, by ruamel.yaml, before something is added to it. A line that is only a proposal becomes a comment.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import yaml
from msgspec import Struct, field

from licet.core.algebra import domains
from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import Capability, InvalidUse
from licet.core.algebra.scope import TOP, path_ancestors, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.foreseen import LOOPBACK, on_this_machine
from licet.core.policy.layer import CLASSES, ELEVATED, OWN_STORAGE, WRITES, EffectClass, permits
from licet.core.policy.tool import KEY_OF, ToolSpec
from licet.core.review.surface_entries import target_of
from licet.core.values import money_text
from licet.policy_files.nodes import plain_value
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
    named_tcp = CapabilitySet(rule for rule in spec.touches.allow if rule.atoms == domains.TCP)
    return bool(spec.touches & permits(spec.effect or CLASSES[0], named_tcp) & WRITES)


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


SCHEMA_LINE = "# yaml-language-server: $schema={}"

_PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_OPTIONAL = ("# Entries marked `(optional)` may be taken out: the tool does without them.",)
_OLD_BOOLEANS = {"y", "n", "yes", "no", "on", "off"}  # YAML 1.1 parsers read these as true and false


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
    lines = [
        SCHEMA_LINE.format(schema),
        "#",
        f"# Written by `licet init` from {', '.join(map(visible, files))}: what these tools declare, and no more.",
        *(_OPTIONAL if any(spec.optional for spec in specs) else ()),
        "# From here on it is yours. It never widens by itself: a tool that starts to need more no longer fits.",
        "#   licet check             is it sound, and does every tool fit?",
        "#   licet surface           what can the agent reach?",
        "#   licet explain TOOL USE  why is something allowed or refused?",
        "#   licet lock              before others use it: pins what you reviewed, and refuses anything else",
        "",
        f"licet: {FORMAT}  # the format of this file",
        f"agent: {_word(agent)}",
        "",
        "# Where each tool is declared. Reviews read the source; they never import it.",
        "tools:",
        *(f"  {_word(tool.spec.name)}: {{from: {json.dumps(tool.source)}}}" for tool in tools),
        *_connectors(fit),
        "",
        "# What the agent may touch. What is not here is denied.",
        "capabilities:",
        *_indented(_admitted(specs)),
        *_indented(_lists(fit)),
        *_indented(_consent(specs)),
        *_examples(specs),
    ]
    return "\n".join(lines) + "\n"


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
        yield from (f"    - {{tool: {_word(tool)}, use: {json.dumps(use)}}}" for tool, use in uses)


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
                yield f"    - {{connector: {_word(name)}{wanted}}}"


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
        yield f"  {_word(spec.name)}: {{{', '.join(stated)}}}" if silent else f"  - {_word(spec.name)}"
    yield ""
    yield "# The strongest class that any of them has: read_only < write_limited < full < destructive."
    yield f"max_side_effect_class: {strongest_class(specs)}"
    native = [spec.name for spec in specs if spec.sandbox == "native"]
    if native:
        yield ""
        yield "# WARNING: a native tool runs inside your process. No wall keeps it to what it declares."
        yield '# Leave only code here that you trust like your own; `sandbox="isolated"` is the better choice.'
        yield f"native: [{', '.join(map(_word, native))}]"


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
        yield f"  - {_double_quoted(item)}  # {', '.join(tools)}"


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


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"  {line}" if line else ""


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _word(text: str) -> str:
    """Quote a name unless every YAML parser reads it as text."""
    plain = _PLAIN_WORD.fullmatch(text) and text.lower() not in _OLD_BOOLEANS and isinstance(plain_value(text), str)
    return text if plain else _double_quoted(text)


def _double_quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


MARK = "learned:"  # how the comments of `licet learn` begin
_CLASS = "max_side_effect_class"
_WIDE = 1 << 16  # so that no line is broken
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+-]*")
_NOT_TEXT = re.compile(r"[0-9.+_-]*|true|false|null|yes|no|on|off|inf|nan", re.IGNORECASE)
_COMMENTED = re.compile(r"^\s*#\s+(?:- )?(?:\"([^\"]*)\"|(\S+?))(?:: \{\})?(?=\s+#|\s*$)", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#(.*)$", re.MULTILINE)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Entry(Struct, frozen=True):
    """One item for a list of a policy file."""

    key: tuple[str, ...]  # below `capabilities`
    text: str
    comment: str
    off: bool = False  # written as a comment


class NotKept(ValueError):
    """The file cannot be changed without losing something that a person wrote. `advice` says what would help."""

    def __init__(self, why: str, advice: str = "write the lists as blocks, one item a line") -> None:
        super().__init__(why)
        self.advice = advice


def commented_out(text: str) -> frozenset[str]:
    """The items of lists that are comments in a text."""
    return frozenset(quoted or plain for quoted, plain in _COMMENTED.findall(text))


def with_entries(text: str, entries: Sequence[Entry], effect: str = "", why: str = "") -> str:
    """The text of a policy file with more entries in its lists, and with a class if it states none.

    A class that `licet learn` wrote may be raised; one that a person wrote never is. Raises `NotKept`.
    """
    if not entries and not effect:
        return text
    _check_aliases(text)
    new = text if text.endswith("\n") or not text else f"{text}\n"
    try:
        if effect and class_is_learned(new):
            new = _with_class(new, effect, why)
        for key in dict.fromkeys(entry.key for entry in entries):
            new = _extended(new, ("capabilities", *key), [entry for entry in entries if entry.key == key])
        _check_kept(text, new)
    except yaml.YAMLError as wrong:  # a way to write YAML that is not foreseen here
        raise NotKept(f"lines cannot be added to it: {wrong}") from None
    return new


def _check_aliases(text: str) -> None:
    """Raise `NotKept` if a YAML file has anchors or aliases: a line added to one place would appear in both."""
    for event in yaml.parse(text, Loader=_LOADER):
        if getattr(event, "anchor", None) is not None:
            place = f"line {event.start_mark.line + 1} has the anchor or alias `{event.anchor}`"
            raise NotKept(place, "write out what the alias stands for")


def class_is_learned(text: str) -> bool:
    """Whether a file states no class, or one that `licet learn` wrote."""
    found = _find(text, ("capabilities", _CLASS))
    return found is None or MARK in text.splitlines()[found.start_mark.line]


def _with_class(text: str, effect: str, why: str) -> str:
    found = _find(text, ("capabilities", _CLASS))
    if found is None:
        return _extended(text, ("capabilities", _CLASS), [Entry((), effect, why)], scalar=True)
    lines = text.splitlines(keepends=True)
    line = found.start_mark.line
    lines[line] = f"{lines[line][: found.start_mark.column]}{effect}  # {MARK} {why}\n"
    return "".join(lines)


# Inserting lines ------------------------------------------------------------------------------------------------------


def _extended(text: str, key: tuple[str, ...], entries: Sequence[Entry], *, scalar: bool = False) -> str:
    """The text with entries at the end of one list, which is made if it is missing."""
    known = next(depth for depth in range(len(key), -1, -1) if _find(text, key[:depth]) is not None)
    text = _without_flow(text, key[:known])
    holder = _find(text, key[:known])
    off = all(entry.off for entry in entries)
    lines = text.splitlines(keepends=True)
    is_other_text = isinstance(holder, yaml.ScalarNode) and holder.value not in ("", "~", "null")
    if is_other_text or (isinstance(holder, yaml.SequenceNode) and holder.value and key[known:]):
        raise NotKept(f"`{'.'.join(key[:known])}` is no list or mapping")
    if not holder.value or isinstance(holder, yaml.ScalarNode):  # nothing yet: `{}`, `[]` or null
        line, indent = holder.start_mark.line, _indent_of(lines[holder.start_mark.line]) + 2
        start, end = holder.start_mark.column, holder.end_mark.column
        lines[line] = f"{lines[line][:start].rstrip()}{lines[line][end:]}"
        if not key[:known]:
            indent = 0
    else:
        line, indent = _last_line(holder), _column(holder)
    missing, added = key[known:], []
    for depth, name in enumerate(missing[:-1] if scalar else missing):
        added.append(_line(indent + 2 * depth, f"{name}:", off))
    indent += 2 * (len(missing) - scalar)
    for entry in entries:
        item = f"- {_quoted(entry.text)}"
        if scalar:
            item = f"{key[-1]}: {entry.text}"
        elif isinstance(holder, yaml.MappingNode) and holder.value and not missing:  # `tools` may be a mapping
            item = f"{entry.text}: {{}}"
        added.append(_line(indent, f"{item}  # {MARK} {entry.comment}", entry.off))
    return "".join([*lines[: line + 1], *added, *lines[line + 1 :]])


def _line(indent: int, text: str, off: bool) -> str:
    return f"{' ' * indent}{'# ' if off else ''}{text}\n"


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and not _NOT_TEXT.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _find(text: str, key: tuple[str, ...]) -> Any:
    """The node at a key; None if it is missing."""
    node = yaml.compose(text, Loader=_LOADER)
    for name in key:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for found, value in pairs if found.value == name), None)
        if node is None:
            return None
    return node


def _last_line(node: Any) -> int:
    """The last line of a node, without the comments and empty lines after it."""
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    line: int = node.end_mark.line
    return line


def _column(node: Any) -> int:
    first = node.value[0]
    column: int = first[0].start_mark.column if isinstance(first, tuple) else node.start_mark.column
    return column


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# Lists on one line ----------------------------------------------------------------------------------------------------


def _without_flow(text: str, key: tuple[str, ...]) -> str:
    """The text with the collections on the way to a key, and there, written as blocks."""
    ways = [key[:depth] for depth in range(len(key) + 1)]
    if not any(getattr(node := _find(text, way), "flow_style", False) and node.value for way in ways):
        return text
    writer = _writer(text)
    data = part = writer.load(text)
    for name in ("", *key):
        part = part[name] if name else part
        if getattr(part, "fa", None) is not None and part:
            part.fa.set_block_style()
    out = io.StringIO()
    writer.dump(data, out)
    return out.getvalue()


def _writer(text: str) -> Any:
    """A reader and writer that keeps quotes, lines and the indentation that a file has."""
    from ruamel.yaml import YAML
    from ruamel.yaml.util import load_yaml_guess_indent

    writer = YAML()
    writer.preserve_quotes = True
    writer.width = _WIDE
    _, indent, offset = load_yaml_guess_indent(text)
    mapping = re.search(r"(?m)^\S[^#\n]*:[ \t]*(?:#.*)?\n( +)\S", text)
    known = re.search(r"(?m)^\s*- ", text)
    lists = (indent or 2, offset or 0) if known else (4, 2)
    writer.indent(mapping=len(mapping[1]) if mapping else 2, sequence=lists[0], offset=lists[1])
    return writer


# Checks ---------------------------------------------------------------------------------------------------------------


def _check_kept(before: str, after: str) -> None:
    """Raise `NotKept` if a comment or a value of a text is not in the other one."""
    left = _comments(after)
    for comment in _comments(before):
        if comment in left:
            left.remove(comment)
        elif MARK not in comment:  # else of a class that was raised
            raise NotKept(f"the comment `#{comment}` would be lost")
    if not _contains(_plain(after), _plain(before)):
        raise NotKept("a value would be lost")


def _plain(text: str) -> Any:
    return yaml.load(text, Loader=_BaseLoader)  # noqa: S506  # it makes texts, lists and mappings only


_BaseLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _comments(text: str) -> list[str]:
    return [found.rstrip() for found in _COMMENT.findall(text)]


def _contains(after: Any, before: Any) -> bool:
    if isinstance(before, dict):
        return isinstance(after, dict) and all(
            name == _CLASS or (name in after and _contains(after[name], before[name])) for name in before
        )
    if isinstance(before, list):
        return not before or (isinstance(after, list) and after[: len(before)] == before)
    return before in ("", "~", "null", None) or bool(after == before)


def new_policy(agent: str, about: Iterable[str]) -> str:
    """The text of a policy that allows nothing yet."""
    comments = "".join(f"# {line}\n" for line in about)
    return f"{comments}agent: {_quoted(agent)}\ncapabilities: {{}}\n"
