"""`licet lock --init`: drafts the entries of servers that have no `tools` yet, for a person to review.

The file is written with its comments, order and quotes kept. What is there is never changed: where the draft cannot be
put in without that, it is only printed.
"""

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.cli.discovery import PLACES, Named, find_policy, require_trust
from licet.cli.lock_servers import Options, is_file, lock_setup, own_secrets_hint, refuse_servers, take_each
from licet.cli.options import FILE, refuse
from licet.cli.output import counted, fail, make_folder, show, show_json, write_file
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import CLASSES, ELEVATED
from licet.core.policy.lock import LockedServer
from licet.core.policy.servers import SERVER_NAME, Server, server_of
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem
from licet.lock.tool_guesses import Guess, argument_grants, guesses
from licet.mcp.listing import without_clashes
from licet.mcp.server_definitions import Setup
from licet.own_files import is_there, read_regular
from licet.policy_files.draft import exact_fit, strongest_class
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.load import read_policy
from licet.policy_files.manifest_reader import checked_document
from licet.policy_files.nodes import read_nodes
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE
from licet.policy_files.workspace_reader import server_problems

_REVIEW = "guesses: review every line"
_PATHS = "paths by their names; others than in `needs` are refused"
_WIDE = 1 << 16  # so that no line is broken
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+-]*")


class Draft(Struct, frozen=True):
    """The draft of one server: what is put into its entry, and the guesses about its tools."""

    server: Server
    is_new: bool  # the entry is not there yet
    has_grants: bool  # the entry states its grants already
    tools: Mapping[str, Guess]
    refused: Mapping[str, str]


class Skipped(Struct, frozen=True):
    """A server that could not be asked, so that it has no draft."""

    why: str
    lines: tuple[str, ...]
    retry: str  # the command that tries it again


def draft_servers(words: Sequence[str], command: tuple[str, ...], options: Options) -> None:
    """Draft the entries of the named servers, or of all without `tools`, and write them into the workspace file."""
    ctx = click.get_current_context()
    files, names = [word for word in words if is_file(word)], [word for word in words if not is_file(word)]
    if len(files) > 1 or (command and len(names) != 1):
        text = "one policy file at most" if len(files) > 1 else "one name before `--`, such as `--init files -- npx …`"
        raise click.UsageError(f"expected {text}", ctx)
    for name in names:
        if not re.fullmatch(SERVER_NAME, name):
            expected = "1 to 32 lower-case letters, digits or `-`, beginning with a letter"
            raise click.UsageError(f"`{name}` is no name of a server: expected {expected}", ctx)
    _check_grants(options.grants)
    named = _policy(files, bool(command), options)
    target = _workspace_file(named.path)
    text = _text(target, options)
    data = _loaded(text)
    entries = data.get("servers") or {}
    servers = _servers(entries, names, command, target, options)
    if not command:
        _require_trust(named, options)
    setup = lock_setup(options)
    servers = {name: _with_grants(server, entries.get(name), setup, options) for name, server in servers.items()}
    origins = _origins(target, text, servers)
    found, wrong = take_each(servers, origins, setup, options, {})
    hint = own_secrets_hint(named.path, (servers[name] for name in wrong), options)
    if command and any(" code: [" in line for one in wrong.values() for line in one.lines):
        hint = f"{target} has no entry of `{names[0]}` yet: write it, with `command` and `code`, and run this again"
    if not found:
        refuse_servers(origins, wrong, options.as_json, hint)
    retry = " ".join(("licet lock --init", *files))
    skipped = {name: Skipped(str(one), one.lines, f"{retry} {name}") for name, one in wrong.items()}
    kept = _write(target, text, _drafts(servers, found, entries), skipped, options)
    if hint:
        show(hint, err=True)
    if skipped or not kept:
        ctx.exit(1)


def _check_grants(grants: Sequence[str]) -> None:
    for rule in grants:
        try:
            Capability(rule)
        except Malformed as wrong:
            raise click.BadParameter(str(wrong), param_hint="--grant") from None


# What is there --------------------------------------------------------------------------------------------------------


def _policy(files: Sequence[str], may_be_new: bool, options: Options) -> Named:
    if files:
        path = FILE.convert(files[0], None, None)
        if not may_be_new and not is_there(path):
            fail(f"there is no {path}", options.as_json)
        return Named(path)
    found = find_policy()
    if found is None and not may_be_new:
        raise click.UsageError(
            "there is no policy here: name the command of a server too, `licet lock --init files -- npx …`",
            click.get_current_context(),
        )
    return Named(found or Path(POLICY_DIRECTORY, WORKSPACE_FILE), by_hand=False)


def _workspace_file(policy: Path) -> Path:
    """The file that has or gets the servers of a policy: the workspace next to it, or the file itself."""
    neighbour = policy.parent / WORKSPACE_FILE
    return neighbour if is_there(neighbour) else policy


def _text(target: Path, options: Options) -> str:
    if not is_there(target):
        return ""
    if target.suffix == ".json":
        fail(
            f"{target} is JSON, which has no comments for guesses: use YAML, or write the entry by hand",
            options.as_json,
        )
    policy = read_policy(target)
    problems = [problem for problem in policy.problems if problem.severity == "error"]
    if problems:
        refuse(problems, options.as_json)
    try:
        return read_regular(target, MOST_BYTES).decode()
    except (OSError, ValueError) as wrong:
        fail(f"{target} cannot be read: {wrong}", options.as_json)


def _require_trust(named: Named, options: Options) -> None:
    """A policy that was found and not named decides what its servers may touch, so it must be accepted."""
    if named.by_hand:
        return
    manifest = read_policy(named.path).manifest
    if manifest is None:
        fail(f"{named.path} was found, not named, and has no agent to accept: name it", options.as_json)
    require_trust(named, manifest, options.as_json, lock=False)  # drafts are made without it


def _servers(
    entries: Mapping[str, Any], names: Sequence[str], command: tuple[str, ...], target: Path, options: Options
) -> dict[str, Server]:
    """The servers to draft, with what their entries say."""
    if command:
        (name,) = names
        if name in entries and _plain(entries[name]).get("command") != list(command):
            fail(f"{target} has a server `{name}` with another command: choose another name", options.as_json)
        known = _plain(entries.get(name) or {})
        return {name: _server(name, {**known, "command": list(command)}, target, options)}
    for name in names:
        if name not in entries:
            fix = f"`licet lock --init {name} -- COMMAND` makes it"
            fail(f"{target} has no server `{name}`: {fix}", options.as_json)
    wanted = [name for name, entry in entries.items() if (not names or name in names)]
    drafted = {
        name: _server(name, _plain(entries[name]), target, options) for name in wanted if "tools" not in entries[name]
    }
    if not drafted:
        found = "each server has `tools` already, which are never changed" if entries else "there are no servers"
        fail(f"{target}: {found}; take `tools` out of an entry to draft it again", options.as_json)
    return drafted


def _server(name: str, entry: dict[str, Any], target: Path, options: Options) -> Server:
    if "tools" in entry:
        fail(f"{target}: the server `{name}` has `tools` already, which are never changed", options.as_json)
    return server_of(name, entry)


def _with_grants(server: Server, entry: Any, setup: Setup, options: Options) -> Server:
    """The server with the grants that it is started with: its own, or the existing paths of its command."""
    if entry is not None and "grants" in entry:
        if options.grants:
            fail(f"the server `{server.name}` has `grants` already: write the rule there", options.as_json)
        return server
    if server.kind != "isolated":
        return server
    found = [*argument_grants(server.command[1:], setup.workdir, setup.home), *options.grants]
    show(f"{server.name}: started with {', '.join(found) or 'nothing to touch'}{_without_network(found)}", err=True)
    return replace(server, grants=tuple(dict.fromkeys(found)))


def _without_network(rules: Sequence[str]) -> str:
    return "" if any(Capability(rule).domain == "network" for rule in rules) else ", and no network"


def _origins(target: Path, text: str, servers: Mapping[str, Server]) -> dict[str, Origin]:
    lines = text.splitlines()
    found = {}
    for name in servers:
        line = next((number for number, one in enumerate(lines, 1) if re.match(rf"\s+[\"']?{name}[\"']?\s*:", one)), 1)
        found[name] = Origin(str(target), line, 1)
    return found


def _drafts(
    servers: Mapping[str, Server], taken: Mapping[str, LockedServer], entries: Mapping[str, Any]
) -> list[Draft]:
    found = without_clashes(taken, "")
    return [
        Draft(
            servers[name],
            name not in entries,
            name in entries and "grants" in entries[name],
            guesses(servers[name], locked),
            locked.refused,
        )
        for name, locked in found.items()
    ]


# Writing --------------------------------------------------------------------------------------------------------------


def _write(target: Path, text: str, drafts: Sequence[Draft], skipped: Mapping[str, Skipped], options: Options) -> bool:
    """Write the drafts into the file, unless other lines of it would change too, and say so."""
    new = with_drafts(text, drafts)
    problems = _problems(target, new)
    if problems:
        refuse(problems, options.as_json)
    names = [f"{draft.server.name}.{tool}" for draft in drafts for tool in draft.tools]
    kept = keeps_lines(text, new, [draft.server.name for draft in drafts])
    if kept:
        make_folder(target.parent)
        write_file(target, new, replace=True)
    if options.as_json:
        refused = {draft.server.name: dict(draft.refused) for draft in drafts}
        left = {name: {"why": one.why, "lines": one.lines, "retry": one.retry} for name, one in skipped.items()}
        about = {"file": str(target), "written": kept, "draft": new, "tools": names, "refused": refused}
        about["capabilities"] = needed_capabilities(drafts)
        show_json({**about, "skipped": left})
    else:
        _tell(target, new, drafts, names, kept)
        _tell_skipped(skipped)
    return kept


def _tell(target: Path, new: str, drafts: Sequence[Draft], names: Sequence[str], kept: bool) -> None:
    for draft in drafts:
        for one, why in draft.refused.items():
            show(f"{draft.server.name}: {one} is refused: {why}", err=True, colour="yellow")
    if not kept:
        click.echo(with_drafts("", [replace(draft, is_new=True) for draft in drafts]), nl=False)
        show(f"{target} was not changed: other lines of it would change too; put this in by hand", err=True)
        return
    listed = ", ".join(draft.server.name for draft in drafts)
    show(
        f"wrote {counted(len(names), 'guess')} for {listed} into {target}: review every line".replace(
            "guesss", "guesses"
        )
    )
    show("to admit all of them, put this under `capabilities` of a manifest:")
    for key, value in needed_capabilities(drafts).items():
        show(f"  {key}: {_flow(value)}")
    policy = read_policy(target).manifest
    manifest = "MANIFEST" if policy is None else "" if target in PLACES else str(target)
    steps = [f"licet {word} {manifest}".strip() for word in ("trust", "lock")]
    secrets = any(draft.server.secrets or draft.server.headers for draft in drafts)
    steps[1] += " --secrets FILE" if secrets else ""
    show(f"next: review the guesses, admit the tools that the agent may call, and run `{steps[0]}` and `{steps[1]}`")


def needed_capabilities(drafts: Sequence[Draft]) -> dict[str, Any]:
    """What a manifest says to admit all drafted tools: their names, what they need, and the class of the strongest."""
    specs = [
        ToolSpec(f"{draft.server.name}.{tool}", CapabilitySet(guess.needs), guess.effect, "isolated")
        for draft in drafts
        for tool, guess in draft.tools.items()
    ]
    # A server is given its variables and secrets whatever its tools need, and one on another machine has a host.
    given = [replace(draft.server, grants=()) for draft in drafts]
    fit = exact_fit((*specs, *(ToolSpec(server.name, server.holds, "read_only", "isolated") for server in given)))
    found: dict[str, Any] = {"tools": [spec.name for spec in specs]}
    for key, items in fit.items.items():
        outer, _, inner = key.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = sorted(items)
        else:
            found[outer] = sorted(items)
    if (strongest := strongest_class(specs)) != CLASSES[0]:
        found["max_side_effect_class"] = strongest
    if strongest in ELEVATED:
        found["budget"] = {"max_calls_per_session": 100}
    return found


def _flow(value: Any) -> str:
    """A value on one line of YAML."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def _tell_skipped(skipped: Mapping[str, Skipped]) -> None:
    for name, one in skipped.items():
        show(f"skipped: {name}: {one.why}", err=True, colour="red")
        for line in (*one.lines, f"retry with `{one.retry}`"):
            show(f"  {line}", err=True)


def _problems(target: Path, text: str) -> list[Problem]:
    """What would be wrong with the file; a draft with a problem is not written."""
    node, found = read_nodes(text.encode(), str(target))
    problems = list(found)
    document = checked_document(Origin(str(target), 1, 1), node, problems)
    if document.content is not None and not problems:
        problems += server_problems(document.content.value, {})
    return [problem for problem in problems if problem.severity == "error"]


def with_drafts(text: str, drafts: Sequence[Draft]) -> str:
    """The text of a policy file with drafts put into its `servers:`."""
    from ruamel.yaml.comments import CommentedMap

    data = _loaded(text)
    if not data.get("servers"):
        data["servers"] = CommentedMap()
    for draft in drafts:
        servers, server = data["servers"], draft.server
        if draft.is_new:
            servers[server.name] = CommentedMap(command=_row(server.command))
        entry = servers[server.name]
        servers.fa.set_block_style()
        entry.fa.set_block_style()
        if server.grants and not draft.has_grants:
            entry["grants"] = _row(server.grants)
            entry.yaml_add_eol_comment("guessed from its command: what its process may touch", "grants")
        entry["tools"] = _tools(draft.tools)
        entry.yaml_add_eol_comment(_REVIEW, "tools")
    out = io.StringIO()
    _yaml(text).dump(data, out)
    return out.getvalue()


def _tools(found: Mapping[str, Guess]) -> Any:
    from ruamel.yaml.comments import CommentedMap

    tools = CommentedMap()
    for name, guess in found.items():
        entry = CommentedMap(needs=_row(guess.needs), effect=guess.effect)
        entry.yaml_add_eol_comment(f"guess: {guess.needs_why}", "needs")
        entry.yaml_add_eol_comment(f"guess: {guess.effect_why}", "effect")
        if guess.args:
            entry["args"] = _rules(guess.args)
            entry.yaml_add_eol_comment(f"guess: {_PATHS}", "args")
        tools[name] = entry
    if not found:
        tools.fa.set_flow_style()
    return tools


def _rules(scopes: Mapping[str, str]) -> Any:
    """Rules on arguments on one line."""
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    rules = CommentedMap()
    for name, scope in scopes.items():
        rules[name] = CommentedMap(scope=DoubleQuotedScalarString(scope))
        rules[name].fa.set_flow_style()
    rules.fa.set_flow_style()
    return rules


def _row(items: Sequence[str]) -> Any:
    """A list on one line, with texts quoted that are more than a word."""
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    row = CommentedSeq(item if _PLAIN.fullmatch(item) else DoubleQuotedScalarString(item) for item in items)
    row.fa.set_flow_style()
    return row


def _yaml(text: str) -> Any:
    """A reader and writer that keeps quotes, lines and the indentation that a file has."""
    from ruamel.yaml import YAML
    from ruamel.yaml.util import load_yaml_guess_indent

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _WIDE
    _, indent, offset = load_yaml_guess_indent(text) if text else (None, 2, 0)
    mapping = re.search(r"(?m)^\S[^#\n]*:[ \t]*(?:#.*)?\n( +)\S", text)
    yaml.indent(mapping=len(mapping[1]) if mapping else 2, sequence=indent or 2, offset=offset or 0)
    return yaml


def _loaded(text: str) -> Any:
    from ruamel.yaml.comments import CommentedMap

    loaded = _yaml(text).load(text) if text else None
    return CommentedMap() if loaded is None else loaded


def _plain(entry: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(entry))
    return plain


def keeps_lines(before: str, after: str, servers: Sequence[str]) -> bool:
    """Whether each line of a text is still there, in order. An entry that is written on one line may become several."""
    left = iter(line.rstrip() for line in after.splitlines())
    one_line = re.compile(rf"\s*(?:servers\s*:\s*\{{.*|[\"']?(?:{'|'.join(servers)})[\"']?\s*:\s*\{{.*)")
    lines = (line.rstrip() for line in before.splitlines())
    return all(one_line.fullmatch(line) or line in left for line in lines)
