"""`licet lock --init`: drafts the entries of servers that have no `tools` yet, for a person to review.

The file is written with its comments, order and quotes kept. What is there is never changed: where the draft cannot be
put in without that, it is only printed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.cli.discovery import Named, find_policy, require_trust
from licet.cli.lock_servers import Options, is_file, lock_setup, own_secrets_hint, refuse_servers, take_each
from licet.cli.options import FILE, refuse
from licet.cli.output import counted, fail, make_folder, print_report, show, show_lines, write_file
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed
from licet.core.policy.servers import SERVER_NAME, Server, server_of
from licet.core.values import Origin, Problem
from licet.lock.drafts import Draft, argument_grants, drafts_of, needed_capabilities, with_drafts
from licet.mcp.server_definitions import Setup
from licet.own_files import is_there, read_regular
from licet.policy_files.additions import entries_of_servers, keeps_lines
from licet.policy_files.draft import on_one_line
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.load import read_policy
from licet.policy_files.manifest_reader import checked_document
from licet.policy_files.nodes import Mapping as Nodes
from licet.policy_files.nodes import read_nodes
from licet.policy_files.policy_paths import PLACES, POLICY_DIRECTORY, WORKSPACE_FILE
from licet.policy_files.workspace_reader import server_problems

_REVIEW = "guesses: review every line"
_PATHS = "paths by their names; others than in `needs` are refused"
_WIDE = 1 << 16  # so that no line is broken
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+-]*")


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
    entries = entries_of_servers(text)
    servers = _servers(entries, names, command, target, options)
    if not command:
        _require_trust(named, options)
    setup = lock_setup(named.path, options)
    servers = {name: _with_grants(server, entries.get(name), setup, options) for name, server in servers.items()}
    origins = _origins(target, text, servers)
    found, wrong = take_each(servers, origins, setup, options, {})
    hint = own_secrets_hint(named.path, (servers[name] for name in wrong), options)
    if command and any(" code: [" in line for one in wrong.values() for line in one.lines):
        hint = f"{target} has no entry of `{names[0]}` yet: write it, with `command` and `code`, and run this again"
    if not found:
        refuse_servers(origins, wrong, hint)
    retry = " ".join(("licet lock --init", *files))
    skipped = {name: Skipped(str(one), one.lines, f"{retry} {name}") for name, one in wrong.items()}
    kept = _write(target, text, drafts_of(servers, found, entries), skipped, options)
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
            fail(f"there is no {path}")
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
        )
    policy = read_policy(target)
    problems = [problem for problem in policy.problems if problem.severity == "error"]
    if problems:
        refuse(problems)
    try:
        return read_regular(target, MOST_BYTES).decode()
    except (OSError, ValueError) as wrong:
        fail(f"{target} cannot be read: {wrong}")


def _require_trust(named: Named, options: Options) -> None:
    """A policy that was found and not named decides what its servers may touch, so it must be accepted."""
    if named.by_hand:
        return
    manifest = read_policy(named.path).manifest
    if manifest is None:
        fail(f"{named.path} was found, not named, and has no agent to accept: name it")
    require_trust(named, manifest, lock=False)  # drafts are made without it


def _servers(
    entries: Mapping[str, Any], names: Sequence[str], command: tuple[str, ...], target: Path, options: Options
) -> dict[str, Server]:
    """The servers to draft, with what their entries say."""
    if command:
        (name,) = names
        if name in entries and entries[name].get("command") != list(command):
            fail(f"{target} has a server `{name}` with another command: choose another name")
        known = entries.get(name) or {}
        return {name: _server(name, {**known, "command": list(command)}, target, options)}
    for name in names:
        if name not in entries:
            fix = f"`licet lock --init {name} -- COMMAND` makes it"
            fail(f"{target} has no server `{name}`: {fix}")
    wanted = [name for name, entry in entries.items() if (not names or name in names)]
    drafted = {name: _server(name, entries[name], target, options) for name in wanted if "tools" not in entries[name]}
    if not drafted:
        found = "each server has `tools` already, which are never changed" if entries else "there are no servers"
        fail(f"{target}: {found}; take `tools` out of an entry to draft it again")
    return drafted


def _server(name: str, entry: dict[str, Any], target: Path, options: Options) -> Server:
    if "tools" in entry:
        fail(f"{target}: the server `{name}` has `tools` already, which are never changed")
    return server_of(name, entry)


def _with_grants(server: Server, entry: Mapping[str, object] | None, setup: Setup, options: Options) -> Server:
    """The server with the grants that it is started with: its own, or the existing paths of its command."""
    if entry is not None and "grants" in entry:
        if options.grants:
            fail(f"the server `{server.name}` has `grants` already: write the rule there")
        return server
    if server.kind != "isolated":
        return server
    found = [*argument_grants(server.command[1:], setup.workdir, setup.home), *options.grants]
    show(f"{server.name}: started with {', '.join(found) or 'nothing to touch'}{_without_network(found)}", err=True)
    return replace(server, grants=tuple(dict.fromkeys(found)))


def _without_network(rules: Sequence[str]) -> str:
    return "" if any(Capability(rule).domain == "network" for rule in rules) else ", and no network"


def _origins(target: Path, text: str, servers: Iterable[str]) -> dict[str, Origin]:
    """Where each server is in the file; the first line for one that is not there yet."""
    root, _ = read_nodes(text.encode(), str(target))
    under = root.entries.get("servers") if isinstance(root, Nodes) else None
    known = under.node.entries if under is not None and isinstance(under.node, Nodes) else {}
    lines = {name: known[name].key_origin.line if name in known else 1 for name in servers}
    return {name: Origin(str(target), line, 1) for name, line in lines.items()}


# Writing --------------------------------------------------------------------------------------------------------------


def _write(target: Path, text: str, drafts: Sequence[Draft], skipped: Mapping[str, Skipped], options: Options) -> bool:
    """Write the drafts into the file, unless other lines of it would change too, and say so."""
    new = with_drafts(text, drafts)
    problems = _problems(target, new)
    if problems:
        refuse(problems)
    names = [f"{draft.server.name}.{tool}" for draft in drafts for tool in draft.tools]
    kept = keeps_lines(text, new, [draft.server.name for draft in drafts])
    if kept:
        make_folder(target.parent)
        write_file(target, new, replace=True)
    refused = {draft.server.name: draft.refused for draft in drafts}
    found = {"file": target, "written": kept, "draft": new, "tools": names, "refused": refused}
    found = {**found, "capabilities": needed_capabilities(drafts), "skipped": skipped}
    print_report(found, lambda _: _show(target, drafts, names, kept, skipped))
    return kept


def _show(
    target: Path, drafts: Sequence[Draft], names: Sequence[str], kept: bool, skipped: Mapping[str, Skipped]
) -> None:
    _show_drafts(target, drafts, names, kept)
    for name, one in skipped.items():
        show(f"skipped: {name}: {one.why}", err=True, colour="red")
        show_lines((f"  {line}" for line in (*one.lines, f"retry with `{one.retry}`")), err=True)


def _show_drafts(target: Path, drafts: Sequence[Draft], names: Sequence[str], kept: bool) -> None:
    for draft in drafts:
        for one, why in draft.refused.items():
            show(f"{draft.server.name}: {one} is refused: {why}", err=True, colour="yellow")
    if not kept:
        click.echo(with_drafts("", [replace(draft, is_new=True) for draft in drafts]), nl=False)
        show(f"{target} was not changed: other lines of it would change too; put this in by hand", err=True)
        return
    listed = ", ".join(draft.server.name for draft in drafts)
    show(f"wrote {counted(len(names), 'guess', 'guesses')} for {listed} into {target}: review every line")
    show("to admit all of them, put this under `capabilities` of a manifest:")
    for key, value in needed_capabilities(drafts).items():
        show(f"  {key}: {on_one_line(value)}")
    policy = read_policy(target).manifest
    manifest = "MANIFEST" if policy is None else "" if target in PLACES else str(target)
    steps = [f"licet {word} {manifest}".strip() for word in ("trust", "lock")]
    secrets = any(draft.server.references for draft in drafts)
    steps[1] += " --secrets FILE" if secrets else ""
    show(f"next: review the guesses, admit the tools that the agent may call, and run `{steps[0]}` and `{steps[1]}`")


def _problems(target: Path, text: str) -> list[Problem]:
    """What would be wrong with the file; a draft with a problem is not written."""
    node, found = read_nodes(text.encode(), str(target))
    problems = list(found)
    document = checked_document(Origin(str(target), 1, 1), node, problems)
    if document.content is not None and not problems:
        problems += server_problems(document.content.value, {})
    return [problem for problem in problems if problem.severity == "error"]
