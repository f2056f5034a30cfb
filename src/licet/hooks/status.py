"""What `licet hooks status` finds out: where hooks are installed, if they reach this licet, and what would stop them.

Settings are read as they are now; nothing is written. A canary makes each hook refuse a call.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from licet.clients.jsonc import BadConfig
from licet.clients.known import Unusable
from licet.errors import LicetError
from licet.hooks.agent_gate import accepted_manifest
from licet.hooks.agent_settings import (
    Directories,
    Found,
    Target,
    codex_rules_file,
    codex_rules_text,
    found_hooks,
    installed_events,
    switches_in,
    targets,
)
from licet.hooks.agents import AGENTS
from licet.hooks.agents.dialect import Dialect
from licet.hooks.canary import Canary, deciding, try_command
from licet.hooks.install import AgentHere, codex_trust, notes_about, read_own_or_none
from licet.hooks.policy_choice import NoPolicy, choose, read_policies
from licet.hooks.resident_control import resident_status
from licet.own_files import is_there
from licet.policy_files.policy_paths import PLACES


class InstalledAt(Struct, frozen=True):
    """Our hooks in one file."""

    scope: str
    file: str
    client: tuple[str, ...]  # the words that start the client
    is_this: bool  # whether that is the client of this licet
    missing: tuple[str, ...]  # events without a hook
    wrong: tuple[str, ...]  # what else is not as `licet hooks install` writes it


class CallsSeen(Struct, frozen=True):
    """Which calls the hooks are told of, and what can be answered, from the table of the agent."""

    decided: tuple[str, ...]  # tools that are decided about
    rewritten: tuple[str, ...]
    refused: tuple[str, ...]  # tools that are always refused unless a policy names them
    unseen_tools: tuple[str, ...]
    unseen: tuple[str, ...]
    asked: str


class AgentStatus(Struct, frozen=True):
    """The state of one agent's hooks."""

    name: str
    product: str
    program: str  # its path; empty if it is not on PATH
    program_name: str
    version: str
    tried: tuple[str, ...]  # versions that the facts were seen at, and how
    installed: tuple[InstalledAt, ...]
    switches: tuple[str, ...]
    problems: tuple[str, ...]
    calls: CallsSeen
    runs_after_failure: tuple[str, ...]
    notes: tuple[str, ...]  # about this version of it
    canaries: tuple[Canary, ...]

    @property
    def is_well(self) -> bool:
        """Whether its hooks are installed, point to this licet, and refuse."""
        there = bool(self.installed) and all(one.is_this and not one.missing for one in self.installed)
        seen = all(one.outcome != "not seen" for one in self.canaries)
        return there and seen and not self.switches and not self.problems


class PolicyStatus(Struct, frozen=True):
    """The policy of a directory, or of all others."""

    where: str
    policy: str
    accepted: bool
    problem: str = ""


class Status(Struct, frozen=True):
    """Everything that `licet hooks status` says."""

    agents: tuple[AgentStatus, ...]
    policies: tuple[PolicyStatus, ...]
    residents: tuple[dict[str, str], ...]


def status_of(agents: Iterable[AgentHere], here: Directories, client: Sequence[str], *, canary: bool) -> Status:
    """The state of everything that hooks need."""
    found = tuple(_agent(one, here, client, canary=canary) for one in agents)
    return Status(found, tuple(_policies(here)), tuple(resident_status()))


def _agent(agent: AgentHere, here: Directories, client: Sequence[str], *, canary: bool) -> AgentStatus:
    dialect = AGENTS[agent.name]
    problems: list[str] = []
    installed: list[InstalledAt] = []
    canaries: list[Canary] = []
    for one in targets(agent.name, here):
        try:
            seen = read_own_or_none(one)
            hooks = found_hooks(one, seen.text) if seen is not None else []
        except (Unusable, BadConfig) as wrong:
            problems.append(f"{one.path}: {wrong}")
            continue
        if not hooks:
            continue
        installed.append(_installed(one, hooks, client))
        if canary:
            canaries.append(_canary(one, hooks, here.project))
    if canary and not installed:
        canaries.append(Canary("not tried", "command", "no hook is installed"))
    if len(installed) > 1:
        problems.append("hooks are installed twice, so each call is decided twice: `licet hooks install` mends it")
    if agent.name == "codex" and installed:
        problems += _of_codex(agent, here, client)
    tried = tuple(f"{one.version} ({one.how})" for one in dialect.seen)
    switches, unread = _switches(dialect, here)
    return AgentStatus(
        agent.name,
        dialect.product,
        agent.program,
        dialect.program,
        agent.version,
        tried,
        tuple(installed),
        tuple(switches),
        (*problems, *unread),
        _calls(dialect),
        dialect.failing_hook_runs,
        tuple(notes_about(agent)),
        tuple(canaries),
    )


def _installed(one: Target, hooks: Sequence[Found], client: Sequence[str]) -> InstalledAt:
    names = {hook.event for hook in hooks}
    missing = tuple(event for event in installed_events(AGENTS[one.agent]) if event not in names)
    clients = tuple(dict.fromkeys(hook.client for hook in hooks))
    wrong = []
    if clients[1:]:
        wrong.append("entries start different clients")
    if any(hook.words[-1] != hook.event for hook in hooks):
        wrong.append("an entry answers another event than its own")
    if any(not hook.closes for hook in hooks):
        wrong.append(f"an entry lacks {AGENTS[one.agent].fail_closed}")
    if lost := next((word for word in clients[0] if word.startswith("/") and not Path(word).exists()), None):
        wrong.append(f"{lost} is not there any more")
    return InstalledAt(one.scope, str(one.path), clients[0], clients == (tuple(client),), missing, tuple(wrong))


def _canary(one: Target, hooks: Sequence[Found], directory: Path) -> Canary:
    hook = deciding(one.agent, hooks)
    if hook is None:
        return Canary("not seen", "command", "no hook is there for the event before a call")
    return try_command(one.agent, hook, directory)


def _of_codex(agent: AgentHere, here: Directories, client: Sequence[str]) -> Iterator[str]:
    trusted = codex_trust(agent.program, here, client, write=False)
    if trusted.problem:
        yield trusted.problem
    elif trusted.runs < len(installed_events(AGENTS["codex"])):
        text = f"Codex trusts {trusted.runs} of {trusted.hooks} hooks, and runs no other"
        yield f"{text}: `licet hooks install` has it trust them"
    rules = codex_rules_file(here)
    try:
        seen = read_own_or_none(rules)
    except Unusable as wrong:
        yield str(wrong)
        return
    if seen is None or seen.data != codex_rules_text(client).encode():
        yield f"{rules.path} is missing or of another licet: under Codex's own sandbox shell lines are refused"


def _switches(dialect: Dialect, here: Directories) -> tuple[list[str], list[str]]:
    """What switches hooks off, in any file that counts; and files that cannot be read."""
    found: list[str] = []
    unread: list[str] = []
    for path, scope in _settings_files(dialect, here):
        try:
            text = path.read_text("utf-8")
            found += [f"{path}: {what}" for what in switches_in(dialect.name, scope, text)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError, BadConfig) as wrong:
            unread.append(f"{path} cannot be read, so it may switch hooks off: {wrong}")
    return found, unread


def _settings_files(dialect: Dialect, here: Directories) -> Iterator[tuple[Path, str]]:
    for place in dialect.places:
        if place.folder or not ({"settings", "hooks"} & set(place.holds)):
            continue
        if place.path.endswith(".toml" if dialect.name == "codex" else (".json", ".jsonc")):
            yield _located(place.path, here), place.scope


def _located(path: str, here: Directories) -> Path:
    if path.startswith("~/.claude/"):
        return here.moved("CLAUDE_CONFIG_DIR", ".claude")[0] / path.removeprefix("~/.claude/")
    if path.startswith("~/.codex/"):
        return here.moved("CODEX_HOME", ".codex")[0] / path.removeprefix("~/.codex/")
    if path.startswith("~/"):
        return here.home / path[2:]
    if path.startswith("./"):
        return here.project / path[2:]
    return here.machine / path.removeprefix("/etc/")


def _calls(dialect: Dialect) -> CallsSeen:
    seen = [row for row in dialect.tools.values() if row.seen]
    named = ("service", "code")
    return CallsSeen(
        decided=tuple(row.name for row in seen if row.kind in ("read", "search", "write", "delete", "patch", "fetch")),
        rewritten=tuple(row.name for row in seen if row.kind == "shell"),
        refused=tuple(row.name for row in seen if row.kind in named),
        unseen_tools=tuple(row.name for row in dialect.tools.values() if not row.seen),
        unseen=dialect.unseen,
        asked="in its own prompt" if dialect.asks else "never: refused, with the command that approves it",
    )


def _policies(here: Directories) -> Iterator[PolicyStatus]:
    try:
        policies = read_policies()
    except LicetError as wrong:
        yield PolicyStatus(str(here.project), "", False, str(wrong))
        return
    try:
        choice = choose(str(here.project), policies)
        yield _policy(str(here.project), choice.policy)
    except NoPolicy as why:
        own = next((str(here.project / place) for place in PLACES if is_there(here.project / place)), "")
        # `licet hooks install` would take it; until then hooks do not use it, accepted or not.
        problem = f"hooks do not use it yet: {why}" if own else str(why)
        yield PolicyStatus(str(here.project), own, False, problem)
    if policies.default:
        yield _policy("every other directory", policies.default)
    else:
        yield PolicyStatus(
            "every other directory", "", False, "there is no default policy: agents are refused everything there"
        )


def _policy(where: str, path: str) -> PolicyStatus:
    try:
        accepted_manifest(Path(path))
    except NoPolicy as why:
        return PolicyStatus(where, path, False, str(why))
    return PolicyStatus(where, path, True)
