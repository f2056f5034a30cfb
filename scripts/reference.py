"""Writes the parts of docs/ that the code knows, such as the codes, the commands and the keys of policy files.

    make reference

A page marks such a part by two comments, `<!-- generated: NAME -->` and `<!-- end -->`; the text between them is
replaced. What can be read from the code is read from it. What only a person can say (the meaning of a reason, of a
scope) is in `reference_words.py`, and a word that is missing there stops the script. A test compares the pages with
the code.
"""

import ast
import importlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_args

import click
import yaml
from reference_agents import agent_pages
from reference_words import CALLED, CODES, EXAMPLES, NOT_RULES, REASONS, SCOPES, SHOWN

import licet
import licet.events
import licet.handles
import licet.ports
from licet.cli.app import COMMANDS
from licet.cli.app import licet as cli
from licet.cli.schema import schema_of
from licet.core.algebra.domains import DEFAULT_PORTS, DOMAINS, EFFECTS, METHODS, NEVER_METHODS
from licet.core.decision.request import REASON_OF_DOMAIN, Reason
from licet.core.policy import argument_ties
from licet.guard.result import Code
from licet.guard.result_parts import code_of
from licet.lint.judge import RULES
from licet.mcp.content import BLOCKS as CONTENT_BLOCKS
from licet.mcp.content import PARTS as CONTENT_PARTS
from licet.mcp.content import SAMPLING_BLOCKS
from licet.mcp.protocol import HANDSHAKE_VERSIONS, MODERN_VERSIONS, VERSIONS
from licet.mcp.protocol import META as MCP_META
from licet.mcp.protocol import METHODS as MCP_METHODS
from licet.packages.server_packages import launch_of
from licet.policy_files.schema import SHAPES

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # for the benchmarks, which are in no distribution

from benchmarks import pages as speeds  # noqa: E402
from benchmarks.record import read_record  # noqa: E402

DOCS = ROOT / "docs"
PEERS = ROOT / "tests" / "peers" / "mcp_peers" / "peers.yaml"
LIMIT = re.compile(r"^([A-Z]\w*) = .*?  # (.+)$", re.MULTILINE)
PART = re.compile(r"(?<=^<!-- generated: )([^\n]+)( -->\n).*?(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def code(words: Sequence[str]) -> str:
    """Words in the type of code, one after the other."""
    return " ".join(f"`{word}`" for word in words)


def grammar() -> str:
    """The rules and uses: domains, actions, scopes."""
    rows = [
        (f"`{name}`", code(tuple(domain.actions)), *SCOPES[name], f"`{REASON_OF_DOMAIN[name]}`")
        for name, domain in DOMAINS.items()
    ]
    spelled = [(f"`{text}`", f"`{licet.Capability(text)}`") for text in EXAMPLES]
    refused = [(f"`{text}`", _refusal(text)) for text in NOT_RULES]
    methods = [(f"`{effect}`", code(tuple(method.upper() for method in named))) for effect, named in EFFECTS.items()]
    return (
        "```text\n"
        "rule     =  domain ':' action ':' scope\n"
        "network  =  'network:' action ':' [ method '@' ] [ protocol '://' ] host [ ':' port ]\n"
        "         |  'network:' action ':' method                            the same as method '@*'\n"
        "host     =  '*'  |  name  |  '*.' name  |  IPv4  |  '[' IPv6 ']'\n"
        "path     =  ( '/' | '~' | '${workdir}' ) { '/' component }          itself and everything below\n"
        f"protocol =  {' | '.join(map(repr, [*DEFAULT_PORTS, 'tcp']))}\n"
        f"method   =  {' | '.join(map(repr, METHODS))}\n"
        "```\n\n"
        "The last column is the reason of a refusal in that domain.\n\n"
        + table(("domain", "actions", "scope", "example", "reason"), rows)
        + "\n"
        + table(("network action", "methods"), methods)
        + "\n`other` is every further method. "
        + f"{' and '.join(f'`{word.upper()}`' for word in NEVER_METHODS)} are never allowed. "
        + "A use without a port has that of its protocol: "
        + ", ".join(f"`{protocol}` {port}" for protocol, port in DEFAULT_PORTS.items())
        + ".\n\nEach rule has one canonical text, which reports and receipts use:\n\n"
        + table(("written", "canonical"), spelled)
        + "\nThese are refused:\n\n"
        + table(("written", "answer"), refused)
        + "\n## Arguments that are tied\n\n"
        + tied_arguments()
    )


def tied_arguments() -> str:
    """Which arguments of a governed tool must be inside what it declares."""
    rows = [(kind, code(argument_ties.NAMES[kind]), code(argument_ties.FORMATS[kind])) for kind in argument_ties.NAMES]
    return (
        "An argument of a tool that `governed` wraps must be inside what the tool declares if its JSON Schema has one "
        "of these formats, or if its name is one of these words or ends in one after an underscore "
        "(`filePath` counts as `file_path`).\n\n" + table(("holds a", "names", "formats"), rows)
    )


def _refusal(text: str) -> str:
    try:
        licet.Capability(text)
    except licet.Malformed as wrong:
        return str(wrong)
    raise SystemExit(f"`{text}` was expected to be refused")


def codes() -> str:
    """Reasons, result codes and events."""
    reasons = [(f"`{reason}`", _code_of(reason), REASONS[reason]) for reason in get_args(Reason)[1:]]
    events = [
        (f"`{name}`", (inspect.getdoc(getattr(licet.events, name)) or "").removeprefix("Event: "))
        for name in licet.events.__all__
        if inspect.isclass(getattr(licet.events, name))
        if name not in ("CallEvent", "Event", "Happened", "Observer")
    ]
    return (
        "## Reasons\n\n`code` is `result.code`. A call that is allowed has the reason `ALLOWED`, and the code `ok`.\n\n"
        + table(("reason", "code", "meaning"), reasons)
        + "\n## Codes of a result\n\n"
        + table(("code", "meaning"), [(f"`{word}`", CODES[word]) for word in get_args(Code)])
        + "\n## Events\n\nThe classes of `licet.events`; [Events](../calls.md#events) has their fields.\n\n"
        + table(("event", "when"), [(name, f"{when[:1].upper()}{when[1:]}") for name, when in events])
    )


def _code_of(reason: Reason) -> str:
    every = get_args(Reason)
    if reason in REASON_OF_DOMAIN.values() and reason not in ("TOOL_NOT_IN_BUNDLE", "CONNECTOR_NOT_ALLOWED"):
        return "`denied`, or in the tool `execution_failed`"
    running = every[every.index("HOST_NOT_ALLOWED") : every.index("FROZEN")]
    return "`execution_failed`" if reason in running and reason != "LIMIT_TIME" else f"`{code_of(reason)}`"


def commands() -> dict[str, str]:
    """The help of every command, by the name of the command; that of a group has its commands too."""
    made: dict[str, str] = {}
    for title, text in _helps(cli, "licet"):
        name = "licet" if title == "licet" else title.split()[1]
        made[name] = f"{made[name]}\n" if name in made else ""
        made[name] += f"```text\n{text}\n```\n"
    return made


def _helps(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    context = click.Context(command, parent, info_name=path.rpartition(" ")[2], terminal_width=80)
    context.help_option_names = ["-h", "--help"]
    yield path, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for name in COMMANDS if command is cli else command.list_commands(context):
            found = command.get_command(context, name)
            if found is None:
                raise SystemExit(f"no command {path} {name}")
            yield from _helps(found, f"{path} {name}", context)


def names() -> str:
    """Every public name of `licet`, `licet.handles` and `licet.ports`, with its docstring."""
    parts = []
    for module in (licet, licet.handles, licet.ports):
        parts.append(f"\n## `{module.__name__}`\n")
        # Of the types in the other two, the classes; names for unions of types say nothing by themselves.
        listed = [name for name in module.__all__ if module is licet or _is_own_class(getattr(module, name))]
        parts += [_entry(module, name) for name in sorted(listed, key=str.lower)]
    return "".join(parts).lstrip()


def _entry(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    for other in (licet, licet.handles):
        if module not in (licet, other) and getattr(other, name, None) is value:
            there = f"{other.__name__}.{name}"
            link = there.replace(".", "").lower()
            return f"\n### `{module.__name__}.{name}`\n\nThe same as [`{there}`](#{link}).\n"
    if isinstance(value, FunctionType):
        return f"\n### `{module.__name__}.{name}`\n\n```py\n{_head(value)}\n```\n\n{_doc(value)}\n"
    if not inspect.isclass(value):
        of = ", ".join(f"`{one.__name__}`" for one in get_args(value))
        return f"\n### `{module.__name__}.{name}`\n\nOne of {of}.\n"
    members = "".join(f"{row}\n" for row in _members(value, name))
    return f"\n### `{module.__name__}.{name}`\n\n{_doc(value)}\n{members and chr(10)}{members}"


def _is_own_class(value: object) -> bool:
    return inspect.isclass(value) and value.__module__.startswith("licet")


def _doc(value: Any) -> str:
    lines = (inspect.getdoc(value) or "").split(">>>")[0].strip()
    return lines.replace("docs/", "")


def _head(function: Any) -> str:
    """The signature, as the source has it: how annotations are printed differs between versions of Python."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        raise SystemExit(f"{function} is no function")
    start = f"{'async def' if isinstance(node, ast.AsyncFunctionDef) else 'def'} {node.name}("
    end = f") -> {ast.unparse(node.returns)}" if node.returns else ")"
    taken = _arguments(node.args)
    line = start + ", ".join(taken) + end
    return line if len(line) < 90 else start + "\n" + "".join(f"    {one},\n" for one in taken) + end


def _arguments(args: ast.arguments) -> list[str]:
    """Each parameter as text, without `self` and `cls`."""
    plain = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    found = [_argument(one, default) for one, default in zip(plain, defaults, strict=True)]
    if args.vararg:
        found.append("*" + _argument(args.vararg, None))
    elif args.kwonlyargs:
        found.append("*")
    found += [_argument(one, default) for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg:
        found.append("**" + _argument(args.kwarg, None))
    return [one for one in found if one not in ("self", "cls")]


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(one.annotation)}" if one.annotation else ""
    equals = " = " if kind else "="
    return f"{one.arg}{kind}" + (f"{equals}{ast.unparse(default)}" if default is not None else "")


def _members(owner: type, name: str) -> Iterator[str]:
    """The fields, properties and methods of a class, those of its bases in licet too."""
    wanted, seen = SHOWN.get(name), set()
    for kind in owner.__mro__:
        if not kind.__module__.startswith("licet"):
            continue
        source = textwrap.dedent(inspect.getsource(kind))
        [node] = ast.parse(source).body
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            member = _member(part, source.splitlines(), name)
            if member is None or member[0] in seen or (wanted is not None and member[0] not in wanted):
                continue
            seen.add(member[0])
            yield f"- {member[1]}" + (f": {member[2]}" if member[2] else "")


def _member(part: ast.stmt, lines: list[str], owner: str) -> tuple[str, str, str] | None:
    """The name, the text and the meaning of one member; None if it is private or something else."""
    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
        word, kind = part.target.id, ast.unparse(part.annotation)
        return (
            None if word.startswith("_") else (word, f"`{word}`: `{kind}`", lines[part.lineno - 1].partition("  # ")[2])
        )
    if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    word = part.name
    if word.startswith("_") and word not in ("__init__", "__call__"):
        return None
    said = (ast.get_docstring(part) or "").split("\n\n")[0].replace("\n", " ")
    if {ast.unparse(one) for one in part.decorator_list} & {"property", "cached_property"}:
        return word, f"`{word}`", said
    called = CALLED.get(owner, owner) if word in ("__init__", "__call__") else word
    wait = "await " if isinstance(part, ast.AsyncFunctionDef) else ""
    return word, f"`{wait}{called}({', '.join(_arguments(part.args))})`", said


def schemas() -> dict[str, str]:
    """The keys of each kind of policy file."""
    made = {}
    for kind in SHAPES:
        schema = schema_of(kind)
        needed = schema.get("required", [])
        rows = [(f"`{path}`", shape, said) for path, shape, said in _keys(schema, "", {})]
        said = f"{schema['description']} Required: {code(needed)}.\n\n" if needed else f"{schema['description']}\n\n"
        made[kind] = said + table(("key", "value", "meaning"), rows)
    return made


def _keys(schema: dict[str, Any], path: str, seen: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for key, value in schema.get("properties", {}).items():
        if not value.get("deprecated"):
            yield from _key(value, f"{path}.{key}" if path else key, seen)


def _key(value: dict[str, Any], path: str, seen: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    said = value.get("description", "")
    inner = [one for one in value.get("anyOf", [value]) if one.get("properties") or _values(one).get("properties")]
    text = json.dumps([(one.get("properties"), _values(one)) for one in inner], sort_keys=True) if inner else ""
    if text in seen:
        yield path, f"the keys of `{seen[text]}`", said
        return
    if text:
        seen[text] = path
    yield path, _shape(value), said
    for one in inner:
        yield from _keys(one, path, seen)
        yield from _keys(_values(one), f"{path}.NAME", seen)


def _values(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of the values of a mapping whose keys are names."""
    values = schema.get("additionalProperties")
    return values if isinstance(values, dict) else {}


def _shape(value: dict[str, Any]) -> str:
    if "enum" in value:
        return " or ".join(f"`{one}`" for one in value["enum"])
    if "anyOf" in value:
        return ", or ".join(dict.fromkeys(_shape(one) for one in value["anyOf"]))
    match value.get("type"):
        case "array":
            return f"a list: {value['items'].get('description', _shape(value['items']))}"
        case "object" if value.get("properties"):
            return "a mapping"
        case "object":
            of = _values(value)
            return f"a mapping by name: {of['description']}" if of.get("description") else "a mapping by name"
        case "integer":
            return f"a whole number from {value.get('minimum', 0)}"
        case "number":
            return f"a number from {value.get('minimum', 0)}"
        case "boolean":
            return "`true` or `false`"
        case _:
            return "text"


def findings() -> str:
    """The codes of `licet lint`."""
    rows = [(f"`{rule.code}`", f"`{rule.name}`", rule.about) for rule in RULES.values()]
    return table(("code", "name", "what it reports"), rows)


def mcp_methods() -> str:
    """The MCP methods that the gateway knows, and what governs each."""
    spans = {VERSIONS: "all", HANDSHAKE_VERSIONS: "to 2025-11-25", MODERN_VERSIONS: "2026-07-28"}
    rows = []
    for one in MCP_METHODS:
        first, last = one.versions[0], one.versions[-1]
        span = spans.get(one.versions) or (first if first == last else f"{first} to {last}")
        rows.append((one.sender, f"`{one.name}`", span, one.governed))
    return table(("from", "method", "versions", "what governs it"), rows)


def mcp_meta() -> str:
    """The keys in `_meta` of messages that the gateway knows."""
    rows = []
    for key in MCP_META:
        names = ", ".join(f"`{name}`" for name in key.name.split(", "))
        rows.append((key.sender, key.where, names, key.governed))
    return table(("from", "in", "key", "what the gateway does with it"), rows)


def mcp_content() -> str:
    """What passes of content, by the type of a block or the name of a part."""
    alone = dict.fromkeys(SAMPLING_BLOCKS.keys() - CONTENT_BLOCKS.keys(), " (of sampling alone)")
    rows = [
        (f"`{name}`{alone.get(name, '')}", f"`{' '.join(keys)}`")
        for name, keys in (*SAMPLING_BLOCKS.items(), *CONTENT_PARTS.items())
    ]
    return table(("block or part", "keys that pass"), rows)


def limits() -> str:
    """The numbers that no policy changes: each `limits.py`, whose comments say the unit and what is bounded."""
    made = []
    for path in sorted((ROOT / "src" / "licet").rglob("limits.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
        rows = [
            (f"`{name}`", amount(getattr(module, name), in_bytes="bytes" in words[:20]), words)
            for name, words in LIMIT.findall(path.read_text("utf-8"))
        ]
        made.append(f"### {path.parent.name}\n\n" + table(("limit", "value", "of what"), rows))
    return "\n".join(made)


def amount(value: object, *, in_bytes: bool) -> str:
    """The value of a limit in words, such as `4 MiB`."""
    if not isinstance(value, int):
        return ", ".join(amount(one, in_bytes=in_bytes) for one in value) if isinstance(value, tuple) else str(value)
    for power, prefix in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if in_bytes and value and value % 1024**power == 0:
            return f"{value // 1024**power:,} {prefix}"
    return f"{value:,}"


def mcp_servers() -> str:
    """The MCP servers that the gateway was tried with, and how its answers differ from theirs."""
    peers = yaml.safe_load(PEERS.read_text("utf-8"))
    rows = []
    for about in peers["servers"].values():
        launch, clients = launch_of(about["command"]), about.get("clients", "one client of each era")
        source = {"npm": "npm", "pypi": "PyPI"}[launch.kind]
        era = {"2025": "2025-11-25", "2026": "2026-07-28"}[about["era"]]
        clients = "all clients" if clients == "all" else clients
        rows.append((f"`{launch.package}`", launch.version.removeprefix("=="), source, era, clients))
    differences = [
        *peers["exceptions"]["always"].values(),
        *(one["why"] for one in peers["exceptions"]["named"].values()),
    ]
    return (
        f"The clients are {', '.join(peers['clients'])}.\n\n"
        + table(("package", "version", "from", "protocol", "tried with"), rows)
        + "\nThe answers are the same, except:\n\n"
        + "".join(f"- {why}\n" for why in differences)
    )


def parts() -> dict[str, dict[str, str]]:
    """The text of each generated part, by page (from docs/) and name."""
    return {
        "algebra.md": {"grammar": grammar()},
        "commands.md": commands(),
        "gateway.md": {
            "methods": mcp_methods(),
            "meta": mcp_meta(),
            "content": mcp_content(),
            "servers": mcp_servers(),
        },
        "lint.md": {"codes": findings()},
        "manifest.md": schemas(),
        "reference/api.md": {"names": names()},
        "reference/codes.md": {"codes": codes(), "limits": limits()},
        **speeds.parts(read_record()),
        **agent_pages(table),
    }


def filled(page: str, text: str, made: dict[str, str]) -> str:
    """A page with its generated parts written anew."""
    marked = [name for name, _ in PART.findall(text)]
    if sorted(marked) != sorted(made):
        wrong = sorted(set(marked) ^ set(made)) or marked
        raise SystemExit(f"docs/{page}: mark each part once, `<!-- generated: {wrong[0]} -->` and `<!-- end -->`")
    return PART.sub(lambda found: f"{found[1]}{found[2]}\n{made[found[1]]}\n", text)


def pages() -> dict[str, str]:
    """The text that each page with generated parts should have."""
    return {page: filled(page, (DOCS / page).read_text("utf-8"), made) for page, made in parts().items()}


if __name__ == "__main__":
    for page, text in pages().items():
        (DOCS / page).write_text(text, "utf-8")
        sys.stdout.write(f"· docs/{page}\n")
