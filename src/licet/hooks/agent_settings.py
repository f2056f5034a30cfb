"""The settings of coding agents that hold our hooks: which file for which scope, what is written, and what is ours.

Texts in, texts out: nothing is read or written here. A file is either a settings file that others use too, where our
entries are added to lists and comments stay, or one that is ours alone. An entry is ours if its command starts licet's
client with `hook`, wherever that licet lies: so one of an older licet is found, and replaced.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from licet.clients.jsonc import BadConfig, Jsonc, with_item, without_member
from licet.hooks.agents import AGENTS
from licet.hooks.agents.dialect import Dialect
from licet.hooks.limits import INSTALLED_SECONDS
from licet.hooks.opencode_plugin import plugin_text, plugin_words

Scope = Literal["user", "project", "managed"]
SCOPES: tuple[Scope, ...] = ("user", "project", "managed")
ALL_TOOLS = "*"
_MILLISECONDS = 1000
_JSONC = Jsonc()
_CLIENT = "/licet/hooks/resident_client.py"


class Target(Struct, frozen=True):
    """A file that holds our hooks for one agent. `base` is the directory below which no part may be a link."""

    agent: str
    scope: Scope
    path: Path
    base: Path
    is_own: bool = False  # nobody else writes there


class Found(Struct, frozen=True):
    """One of our entries in a file: its event, the words of its command, and where it stands."""

    event: str
    words: tuple[str, ...]
    line: str = ""  # the same, as it is written for a shell
    place: tuple[str, ...] = ()  # keys and indexes
    timeout: Any = None
    closes: bool = True  # whether it says that its failure refuses, where the agent has a word for it

    @property
    def client(self) -> tuple[str, ...]:
        """The words that start the client, without the event."""
        return self.words[:-3]


class Directories(Struct, frozen=True):
    """Where files of settings lie: the home directory, the project, and the variables that move some of them."""

    home: Path
    project: Path
    environ: Mapping[str, str] = {}
    machine: Path = Path("/etc")

    def moved(self, variable: str, below_home: str) -> tuple[Path, Path]:
        """A directory that a variable names, or one below the home directory; and the directory to start from."""
        stated = Path(self.environ.get(variable, ""))
        return (stated, stated) if stated.is_absolute() else (self.home / below_home, self.home)


def target(agent: str, scope: Scope, here: Directories) -> Target | None:
    """The file for an agent's hooks in a scope; None if the agent has none there."""
    match agent, scope:
        case "claude", "user":
            folder, base = here.moved("CLAUDE_CONFIG_DIR", ".claude")
            return Target(agent, scope, folder / "settings.json", base)
        case "claude", "project":  # the shared file would have paths of this machine
            return Target(agent, scope, here.project / ".claude" / "settings.local.json", here.project)
        case "claude", "managed":
            return Target(agent, scope, here.machine / "claude-code" / "managed-settings.json", here.machine)
        case "codex", "user":
            folder, base = here.moved("CODEX_HOME", ".codex")
            return Target(agent, scope, folder / "hooks.json", base)
        case "codex", "project":
            return Target(agent, scope, here.project / ".codex" / "hooks.json", here.project)
        case "gemini", "user":
            return Target(agent, scope, here.home / ".gemini" / "settings.json", here.home)
        case "gemini", "project":
            return Target(agent, scope, here.project / ".gemini" / "settings.json", here.project)
        case "copilot", "user":
            return Target(agent, scope, here.home / ".copilot" / "hooks" / "licet.json", here.home, is_own=True)
        case "copilot", "project":
            return Target(agent, scope, here.project / ".github" / "hooks" / "licet.json", here.project, is_own=True)
        case "copilot", "managed":
            path = here.machine / "github-copilot" / "policy.d" / "licet.json"
            return Target(agent, scope, path, here.machine, is_own=True)
        case "opencode", "user":
            folder, base = here.moved("XDG_CONFIG_HOME", ".config")
            return Target(agent, scope, folder / "opencode" / "plugins" / "licet.js", base, is_own=True)
        case "opencode", "project":
            return Target(agent, scope, here.project / ".opencode" / "plugins" / "licet.js", here.project, is_own=True)
        case "cursor", "user":
            return Target(agent, scope, here.home / ".cursor" / "hooks.json", here.home)
        case "cursor", "project":
            return Target(agent, scope, here.project / ".cursor" / "hooks.json", here.project)
        case _:
            return None


def targets(agent: str, here: Directories) -> Iterator[Target]:
    """All files that may hold our hooks for an agent."""
    for scope in SCOPES:
        if (one := target(agent, scope, here)) is not None:
            yield one


def installed_events(dialect: Dialect) -> tuple[str, ...]:
    """The events that our hook is registered for."""
    return tuple(name for name, event in dialect.events.items() if event.installed)


# What is written ------------------------------------------------------------------------------------------------------


def command(client: Sequence[str], agent: str, event: str) -> str:
    """The command of one hook, for a POSIX shell. `client` are absolute words that start licet's client."""
    return shlex.join((*client, "hook", agent, event))


def entry(agent: str, event: str, client: Sequence[str]) -> dict[str, Any]:
    """What stands in the list of an event."""
    dialect, line = AGENTS[agent], command(client, agent, event)
    seconds = INSTALLED_SECONDS * (_MILLISECONDS if dialect.timeout_unit == "milliseconds" else 1)
    if agent == "codex" and event == "SessionEnd":
        seconds = 3  # it accepts no more there
    timeout = {dialect.timeout_key: seconds}
    has_tool = dialect.events[event].moment in ("before a call", "after a call")
    matcher = {"matcher": ALL_TOOLS} if has_tool else {}
    match agent:
        case "claude":
            return {**matcher, "hooks": [{"type": "command", "command": line, **timeout, "onFailure": "block"}]}
        case "codex":
            return {**matcher, "hooks": [{"type": "command", "command": line, **timeout}]}
        case "gemini":
            return {**matcher, "hooks": [{"name": "licet", "type": "command", "command": line, **timeout}]}
        case "copilot":
            return {"type": "command", "bash": line, **timeout}
        case "cursor":
            return {"command": line, **timeout, **({"failClosed": True} if _decides(dialect, event) else {})}
        case _:
            raise ValueError(f"`{agent}` has no entries")


def _decides(dialect: Dialect, event: str) -> bool:
    return dialect.events[event].moment == "before a call"


def with_hooks(one: Target, text: str | None, client: Sequence[str]) -> str:
    """The text of a file with our hooks in it, and none of another licet. Raises `BadConfig`.

    A text that has them already is returned as it is.
    """
    if one.agent == "opencode":
        return plugin_text(client)
    events = installed_events(AGENTS[one.agent])
    if one.is_own:
        hooks = {event: [entry(one.agent, event, client)] for event in events}
        return json.dumps({"version": 1, "hooks": hooks}, indent=2) + "\n"
    if text is not None and _has_exactly(one, text, client):
        return text
    bare = without_hooks(one, text) if text is not None else ""
    edited = _with_version(bare) if one.agent == "cursor" and "version" not in _JSONC.read(bare) else bare
    for event in events:
        edited = with_item(edited, ("hooks", event), entry(one.agent, event, client))
    _check(one, bare, edited, client)
    return edited


def _with_version(text: str) -> str:
    if not text.strip():
        return '{\n  "version": 1\n}\n'
    return text.replace("{", '{\n  "version": 1,' if _JSONC.read(text) else '{\n  "version": 1', 1)


def _has_exactly(one: Target, text: str, client: Sequence[str]) -> bool:
    wanted = {event: entry(one.agent, event, client) for event in installed_events(AGENTS[one.agent])}
    hooks = _hooks_of(_JSONC.read(text))
    ours = [(found.event, hooks[found.event][int(found.place[2])]) for found in found_hooks(one, text)]
    return dict(ours) == wanted and len(ours) == len(wanted)


def _check(one: Target, before: str, after: str, client: Sequence[str]) -> None:
    """Refuse an edit that says something else than was meant."""
    if not _has_exactly(one, after, client):
        raise BadConfig("the edit would say something else than was meant")
    was = _JSONC.read(before)
    left = _JSONC.read(without_hooks(one, after, was))
    if one.agent == "cursor" and "version" not in was:
        left.pop("version", None)
    if left != was:
        raise BadConfig("the edit would change more than our hooks")


# What is there --------------------------------------------------------------------------------------------------------


def found_hooks(one: Target, text: str) -> list[Found]:
    """Our entries in a file, in its order. Raises `BadConfig` for a file that cannot be read."""
    if one.agent == "opencode":
        words = plugin_words(text)
        return (
            [Found(event, (*words, "hook", one.agent, event)) for event in installed_events(AGENTS["opencode"])]
            if words
            else []
        )
    found: list[Found] = []
    for event, groups in _hooks_of(_JSONC.read(text)).items():
        for index, group in enumerate(groups):
            inner = group.get("hooks") if isinstance(group, dict) else None
            place = ("hooks", event, str(index))
            if isinstance(inner, list):
                for number, each in enumerate(inner):
                    if (mine := _ours(one, event, each, (*place, "hooks", str(number)))) is not None:
                        found.append(mine)
            elif (mine := _ours(one, event, group, place)) is not None:
                found.append(mine)
    return found


def _hooks_of(data: Mapping[str, Any]) -> dict[str, list[Any]]:
    hooks = data.get("hooks", {})
    if not isinstance(hooks, dict):
        raise BadConfig("`hooks` is no object")
    if wrong := next((event for event, groups in hooks.items() if not isinstance(groups, list)), None):
        raise BadConfig(f"`hooks.{wrong}` is no list")
    return hooks


def _ours(one: Target, event: str, handler: Any, place: tuple[str, ...]) -> Found | None:
    if not isinstance(handler, dict):
        return None
    line = handler.get("bash" if one.agent == "copilot" else "command")
    words = our_words(line, one.agent)
    if words is None:
        return None
    key = AGENTS[one.agent].timeout_key
    closes = {"claude": handler.get("onFailure") == "block", "cursor": handler.get("failClosed") is True}
    return Found(event, words, str(line), place, handler.get(key), closes.get(one.agent, True))


def our_words(line: object, agent: str) -> tuple[str, ...] | None:
    """The words of a command, if it is our hook for an agent; None for any other command."""
    if not isinstance(line, str) or _CLIENT not in line:
        return None
    try:
        words = tuple(shlex.split(line))
    except ValueError:
        return None
    is_ours = len(words) >= 5 and words[-4].endswith(_CLIENT) and words[-3:-1] == ("hook", agent)
    return words if is_ours else None


def without_hooks(one: Target, text: str, before: Mapping[str, Any] | None = None) -> str:
    """The text without our entries. What is empty then, and was not there `before`, is taken out as well."""
    while found := found_hooks(one, text):
        last = found[-1]
        group = last.place[:3]
        alone = len(last.place) == 5 and len(_at(text, (*group, "hooks"))) == 1
        text = without_member(text, group if alone else last.place)
    if before is None:
        return text
    was = before.get("hooks")
    for event, groups in _hooks_of(_JSONC.read(text)).items():
        if not groups and event in AGENTS[one.agent].events and not (isinstance(was, dict) and event in was):
            text = without_member(text, ("hooks", event))
    if was is None and _JSONC.read(text).get("hooks") == {}:
        text = without_member(text, ("hooks",))
    return text


def _at(text: str, place: Sequence[str]) -> Any:
    found: Any = _JSONC.read(text)
    for key in place:
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


# Switches -------------------------------------------------------------------------------------------------------------

_OFF: Mapping[str, tuple[tuple[tuple[str, ...], Any], ...]] = {
    "claude": ((("disableAllHooks",), True), (("allowManagedHooksOnly",), True)),
    "copilot": ((("disableAllHooks",), True),),
    "gemini": ((("hooksConfig", "enabled"), False), (("tools", "enableHooks"), False)),
}


def switches_in(agent: str, scope: str, text: str) -> list[str]:
    """The keys in a settings file that switch our hooks off, or may. Raises `BadConfig`."""
    data = _toml(text) if agent == "codex" else _JSONC.read(text)
    found = []
    for path, value in _OFF.get(agent, ()):
        if _inner(data, path) is value and not (scope == "managed" and path == ("allowManagedHooksOnly",)):
            found.append(f"{'.'.join(path)}: {str(value).lower()}")
    if agent == "gemini" and isinstance(names := _inner(data, ("hooksConfig", "disabled")), list) and names:
        found.append(f"hooksConfig.disabled: {json.dumps(names)}")
    if agent == "codex":
        keys = ("hooks", "codex_hooks")
        found += [f"features.{key} = false" for key in keys if _inner(data, ("features", key)) is False]
    return found


def _inner(data: Any, path: Sequence[str]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _toml(text: str) -> dict[str, Any]:
    from licet.clients.toml_tables import Toml

    return Toml().read(text)


# Codex's own rules ----------------------------------------------------------------------------------------------------

_RULE_MARK = "# Written by `licet hooks install`."


def codex_rules_file(here: Directories) -> Target:
    """The file of Codex's exec policy that is ours alone."""
    folder, base = here.moved("CODEX_HOME", ".codex")
    return Target("codex", "user", folder / "rules" / "licet.rules", base, is_own=True)


def codex_rules_text(client: Sequence[str]) -> str:
    """A rule that lets the exact words of our client run outside Codex's own sandbox: the line runs inside ours."""
    words = ", ".join(json.dumps(word) for word in (*client, "line"))
    return (
        f"{_RULE_MARK} A shell line that licet has put behind its own walls runs outside of\n"
        "# Codex's sandbox, in which it could not reach licet. The words are those of licet's client alone.\n"
        f'prefix_rule(pattern=[{words}], decision="allow")\n'
    )


def is_codex_rules(text: str) -> bool:
    """Whether a file of rules is the one that licet writes."""
    return bool(re.match(re.escape(_RULE_MARK), text)) and _CLIENT in text
