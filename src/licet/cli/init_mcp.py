"""`licet init --mcp`: puts the gateway into the configurations of MCP clients, and their servers into the policy.

Every change is shown before it is made. `--undo` takes the gateway out again. Nothing is started or installed.

Accepts the policy that `licet init --mcp` has written to: the entries of clients start nothing else.

What the user agreed to is accepted at once. A policy that was there before and not accepted is shown first, as
`licet trust` shows it: the command added servers to it, and somebody else may have written the rest.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from licet.assemble.acceptance import accept_policy, review_of
from licet.assemble.expected_lock import lock_place
from licet.assemble.review import state_directory, straight
from licet.cli.discovery import find_policy
from licet.cli.init_preset import agent_name, obstacles, schema_path, write_policy
from licet.cli.options import Setting, read_sound, refuse
from licet.cli.output import counted, fail, print_report, show, show_lines, show_problems, wants_json, write_file
from licet.cli.trust import show_review
from licet.clients.entries import SECRETS_FILE, add_secrets, known_secrets
from licet.clients.known import Unusable, places, replace_own
from licet.clients.setup_plan import (
    DraftedServer,
    FilePlan,
    Plan,
    Policy,
    entries,
    new_policy,
    next_steps,
    notes,
    plan_setup,
    surroundings,
)
from licet.clients.undo import Keeper, undo
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import servers_of
from licet.errors import LicetError
from licet.own_files import is_there, read_regular
from licet.policy_files.additions import NotKept, with_servers
from licet.policy_files.draft import server_lines
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.load import load_own_manifest, read_policy
from licet.policy_files.manifest_reader import a_kind
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE, policy_root, shown_path
from licet.policy_files.trust import is_accepted, lock_state


def texts_besides(file: Path, manifest: Manifest) -> dict[str, str]:
    """The texts of the files of a policy, without the one that servers are added to."""
    others = (one for one in manifest.files if os.path.realpath(one) != os.path.realpath(file))
    return {one: read_regular(one, MOST_BYTES).decode("utf-8") for one in others}


def _changed(policy: Policy, text: str, manifest: Manifest) -> str:
    """What is not as it was when the user was asked, of a policy that is not shown again; empty if nothing."""
    if read_regular(policy.file, MOST_BYTES, links=False).decode("utf-8") != text:
        return str(policy.file)
    if not policy.accepted:  # then all of it has been shown since, and `accept_policy` compares
        return ""
    if texts_besides(policy.file, manifest) != policy.others:
        return "another file of the policy"
    return str(lock_place(policy.manifest)) if lock_state(manifest) != policy.lock else ""


def accept_edited(policy: Policy, text: str, agrees: Callable[[str], bool]) -> bool:
    """Accept the policy after servers were added, which made its file `text`; False if it is not accepted."""
    try:
        manifest = load_own_manifest(policy.manifest)
        if is_accepted(policy.manifest, manifest):
            return True
        if not policy.accepted:
            manifest = read_sound(policy.manifest, Setting(workdir=policy.root, alone=True))
            if not wants_json():
                show_review(policy.manifest, manifest, review_of(policy.manifest, manifest))
            if not agrees(f"accept {shown_path(policy.manifest)}, so that clients may start it?"):
                return False
        if changed := _changed(policy, text, manifest):
            show(f"{changed} changed meanwhile, and was not accepted", err=True, colour="yellow")
            return False
        accept_policy(policy.manifest, manifest)
    except (LicetError, OSError, ValueError) as wrong:
        show(f"the policy could not be accepted: {wrong}", err=True, colour="yellow")
        return False
    return True


_HIDDEN = "…"
_VARIABLE = re.compile(r"\$\{[A-Za-z]+:[A-Za-z_][A-Za-z0-9_-]*\}|\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_WITH_VALUES = ("env", "headers", "http_headers")


class Asking(Struct, frozen=True):
    """How a change is agreed to: by a person at the terminal, by `--yes`, or not at all."""

    yes: bool

    @property
    def only_shows(self) -> bool:
        """Whether nothing can be agreed to, because nobody can be asked."""
        return not self.yes and (wants_json() or not sys.stdin.isatty())

    def agrees(self, question: str) -> bool:
        """Whether a change may be made."""
        return self.yes or (not self.only_shows and click.confirm(question, err=True))


def set_up_clients(output: Path | None, agent: str | None, asking: Asking) -> None:
    """Show, ask about and make the changes of every configuration that is found."""
    try:
        policy = _policy(output)
        here = surroundings(policy.root)
        plan = plan_setup(here, policy)
    except Unusable as wrong:
        fail(str(wrong))
    if not any(file.changes for file in plan.files):
        _nothing_moves(plan, [str(place.path) for place in places(here)])
    if not wants_json():
        _show_refused(plan)
    agreed = [file for file in plan.files if _show_and_ask(file, asking)]
    servers = _servers(agreed if not asking.only_shows else plan.files)
    new = [server for server in servers if server.name not in policy.servers]
    text = _policy_text(policy, agent, new)
    if not wants_json():
        _show_policy(policy, new, text)
    if not agreed or (text != policy.text and not asking.agrees(f"write {policy.file}?")):
        _report_nothing(plan, policy, servers, asking)
        return
    failed, accepted = _write(policy, text, servers, agreed, asking)
    _report(plan, policy, servers, agreed, failed, accepted=accepted)


# The policy -----------------------------------------------------------------------------------------------------------


def _policy(output: Path | None) -> Policy:
    """The policy to write to, and what it has already; exits if it cannot be used."""
    path = straight(output or find_policy() or Path(POLICY_DIRECTORY, WORKSPACE_FILE))
    path = Path(os.path.realpath(path.parent), path.name)  # a policy is accepted by its real path
    root = policy_root(path)
    secrets = state_directory(root) / SECRETS_FILE
    known = known_secrets(secrets)
    if not is_there(path):
        if problems := obstacles(path, False):
            refuse(problems)
        return Policy(path, path, root, True, "", {}, secrets, known)
    found = read_policy(path)
    if errors := [problem for problem in found.problems if problem.severity == "error"]:
        refuse(errors)
    if found.manifest is None or found.kind != "manifest":
        fail(f"{path} is {a_kind(found.kind)}, and the gateway needs the manifest of an agent: name one with -o")
    shared = [Path(file) for file in found.manifest.files if Path(file).name == WORKSPACE_FILE]
    file = straight(shared[0]) if shared else path
    if file.suffix == ".json":
        fail(f"{file} is JSON: write the servers by hand, or use a policy in YAML")
    if link := next((one for one in (path, file) if one.is_symlink()), None):
        fail(f"{link} is a link: name the policy itself with -o")
    try:
        text = read_regular(file, MOST_BYTES, links=False).decode("utf-8")
        others = texts_besides(file, found.manifest)
    except (OSError, ValueError) as wrong:
        fail(f"{file} cannot be read: {wrong}")
    servers, accepted = servers_of(found.manifest.servers), is_accepted(path, found.manifest)
    return Policy(path, file, root, False, text, servers, secrets, known, accepted, others, lock_state(found.manifest))


def _policy_text(policy: Policy, agent: str | None, new: Sequence[DraftedServer]) -> str:
    if policy.is_new:
        return new_policy(agent or agent_name(policy.root), new, schema_path(policy.manifest))
    try:
        return with_servers(policy.text, entries(new))
    except NotKept as wrong:
        if not wants_json():
            show_lines(["servers:", *(f"  {line}" for line in server_lines(entries(new)))])
        fail(f"the servers above cannot be added to {policy.file}: {wrong}; add them by hand, and try again")


def _servers(files: Iterable[FilePlan]) -> list[DraftedServer]:
    """The servers of the entries that move, each once."""
    return list({move.server.name: move.server for file in files for move in file.moves}.values())


# What is shown --------------------------------------------------------------------------------------------------------


def _show_and_ask(file: FilePlan, asking: Asking) -> bool:
    """Show the change of one file, and ask whether to make it."""
    if not wants_json():
        _show_file(file)
    return file.changes and asking.agrees(f"change {file.place.path}?")


def _show_file(file: FilePlan) -> None:
    show(f"{file.place.client.name} ({file.place.scope}): {file.place.path}")
    for table in file.tables:
        for move in table.moves:
            show(f"  - {_member(move.name, masked(move.original))}", colour="red")
            for note in notes(move):
                show(f"      {note}")
        for name, older in table.older.items():
            show(f"  - {_member(name, masked(older))}", colour="red")
        if table.moves or table.older:
            show(f"  + {_member(table.gateway, table.entry)}", colour="green")
            if file.place.scope == "project":
                show("      the file is shared, so it names no path: `licet` must be on the PATH of the client")
        for one in table.stays:
            show(f"    {json.dumps(one.name, ensure_ascii=False)} stays: {one.reason}")


def masked(entry: object) -> object:
    """An entry without the values of its variables and headers; names of variables of the client are shown."""
    if not isinstance(entry, dict):
        return entry
    tables = {key: entry[key] for key in _WITH_VALUES if isinstance(entry.get(key), dict)}
    hidden = {key: {name: _hidden(one) for name, one in table.items()} for key, table in tables.items()}
    inner = {"command": masked(entry["command"])} if isinstance(entry.get("command"), dict) else {}
    return {**entry, **hidden, **inner}


def _hidden(value: object) -> str:
    return value if isinstance(value, str) and _VARIABLE.fullmatch(value) else _HIDDEN


def _member(name: str, data: object) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(data, ensure_ascii=False, default=str)}"


def _show_refused(plan: Plan) -> None:
    for place, reason in plan.refused:
        show(f"{place.client.name} ({place.scope}): not touched: {reason}", err=True, colour="yellow")


def _show_policy(policy: Policy, new: Sequence[DraftedServer], text: str) -> None:
    if new:
        show(f"{'a new policy' if policy.is_new else 'servers for the policy'}: {policy.file}")
        lines = text.splitlines() if policy.is_new else list(server_lines(entries(new)))
        show_lines(f"  + {line}" for line in lines)
    if secrets := [name for server in new for name in server.values]:
        show(f"for the secrets file {policy.secrets_file} (mode 0600): {', '.join(secrets)}")


def _nothing_moves(plan: Plan, looked_at: list[str]) -> None:
    def text(_: object) -> None:
        _show_refused(plan)
        for file in plan.files:
            _show_file(file)
        if plan.files or plan.refused:
            fail("no server entry can be moved behind the gateway")
        fail(f"no configuration of a known client has servers; looked for {', '.join(looked_at)}")

    print_report({"error": "no server entry can be moved", **_found(plan), "looked_at": looked_at}, text)
    click.get_current_context().exit(1)


def _found(plan: Plan) -> dict[str, Any]:
    files = [
        {
            "client": file.place.client.name,
            "scope": file.place.scope,
            "path": file.place.path,
            "moves": [{"name": move.name, "server": move.server.name, "notes": notes(move)} for move in file.moves],
            "stays": file.stays,
            "gateways": [{"name": one.gateway, "entry": one.entry} for one in file.tables if one.moves or one.older],
        }
        for file in plan.files
    ]
    refused = [{"client": place.client.name, "path": place.path, "reason": why} for place, why in plan.refused]
    return {"files": files, "refused": refused}


# What is written ------------------------------------------------------------------------------------------------------


def _write(
    policy: Policy, text: str, servers: Sequence[DraftedServer], agreed: Sequence[FilePlan], asking: Asking
) -> tuple[dict[str, str], bool]:
    """Write secrets, policy and configurations, in this order: each needs those before.

    Returns what failed, and whether the policy is accepted.
    """
    values = {name: value for server in servers for name, value in server.values.items()}
    try:
        if values and not all(name in policy.known_secrets for name in values):
            if asking.agrees(f"store {counted(len(values), 'value')} in {policy.secrets_file}?"):
                add_secrets(policy.secrets_file, values)
            else:
                show(f"write these into {policy.secrets_file} yourself: {', '.join(values)}", err=True)
    except Unusable as wrong:
        fail(str(wrong))
    if policy.is_new:
        problems = write_policy(policy.manifest, text)
        if not wants_json():
            show_problems(problems, err=True)
    elif text != policy.text:
        if read_regular(policy.file, MOST_BYTES, links=False).decode("utf-8") != policy.text:
            fail(f"{policy.file} changed meanwhile: try again")
        write_file(policy.file, text, replace=True)
    accepted = accept_edited(policy, text, asking.agrees)
    keeper, failed = Keeper(state_directory(policy.root)), {}
    for file in agreed:
        try:
            kept = keeper.keep(file.place.client, file.seen, Path(file.place.base), file.after, file.edited)
            try:
                replace_own(file.seen, file.after, Path(file.place.base))
            except Unusable:
                keeper.forget(kept)
                raise
        except Unusable as wrong:
            failed[str(file.place.path)] = str(wrong)
    return failed, accepted


def _report_nothing(plan: Plan, policy: Policy, servers: Sequence[DraftedServer], asking: Asking) -> None:
    how = ": add --yes, or run it at a terminal, which asks for each file" if asking.only_shows else ""
    found = {**_found(plan), **_outcome(policy, servers, accepted=policy.accepted), "written": [], "failed": {}}
    print_report(found, lambda _: show(f"nothing was changed{how}", err=True))


def _outcome(policy: Policy, servers: Sequence[DraftedServer], *, accepted: bool) -> dict[str, object]:
    return {
        "manifest": policy.manifest,
        "servers": entries(servers),
        "secrets": {"file": policy.secrets_file, "names": [name for one in servers for name in one.values]},
        "accepted": accepted,
        "next": next_steps(policy, servers, accepted=accepted),
    }


def _report(
    plan: Plan,
    policy: Policy,
    servers: Sequence[DraftedServer],
    agreed: Sequence[FilePlan],
    failed: Mapping[str, str],
    *,
    accepted: bool,
) -> None:
    written = [str(file.place.path) for file in agreed if str(file.place.path) not in failed]
    steps = next_steps(policy, servers, accepted=accepted)

    def text(_: object) -> None:
        show_lines(f"changed {path}" for path in written)
        show_lines(failed.values(), err=True, colour="red")
        if len({frozenset(move.server.name for move in file.moves) for file in agreed}) > 1:
            show("these clients had different servers, and now all see those that one manifest admits")
        show("undo it with: licet init --mcp --undo")
        show("next:")
        show_lines(f"  {number}. {step}" for number, step in enumerate(steps, 1))

    outcome = _outcome(policy, servers, accepted=accepted)
    print_report({**_found(plan), **outcome, "written": written, "failed": failed}, text)
    if failed:
        click.get_current_context().exit(1)


# Undo -----------------------------------------------------------------------------------------------------------------


def undo_clients(output: Path | None, asking: Asking) -> None:
    """Undo every edit of this workspace, the newest first."""
    root = policy_root(straight(output or find_policy() or Path(POLICY_DIRECTORY, WORKSPACE_FILE)))
    keeper = Keeper(state_directory(root))
    done: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    try:
        edits = keeper.edits()
    except Unusable as wrong:
        fail(str(wrong))
    if not edits:
        fail(f"nothing to undo: no configuration was changed from {root}")
    for kept, edit in edits:
        names = ", ".join(name for table in edit.tables for name in table.originals)
        if not wants_json():
            show(f"{edit.client}: {edit.path}: puts back {names}")
        if not asking.agrees(f"undo the change of {edit.path}?"):
            continue
        try:
            undone = undo(edit)
        except Unusable as wrong:
            failed[edit.path] = str(wrong)
            continue
        keeper.forget(kept)
        done.append({"path": edit.path, "exact": undone.exact, "put_back": undone.put_back, "skipped": undone.skipped})
    _report_undone(done, failed, asking)


def _report_undone(done: Sequence[Mapping[str, Any]], failed: Mapping[str, str], asking: Asking) -> None:
    def text(_: object) -> None:
        for one in done:
            changed = "had changed since: its entries were put back, the rest was left"
            show(f"{one['path']} {'is as it was before' if one['exact'] else changed}")
            if one["skipped"]:
                show(f"  not put back, since there are entries of that name: {', '.join(one['skipped'])}")
        show_lines(failed.values(), err=True, colour="red")
        if not done and not failed:
            show("nothing was changed" + (": add --yes" if asking.only_shows else ""), err=True)
        elif done:
            show("the policy and the secrets file were left as they are")

    print_report({"undone": done, "failed": failed}, text)
    if failed:
        click.get_current_context().exit(1)
