"""The user's own rules about shell lines in the settings of an agent, as argument rules of a policy.

Once lines are rewritten, an agent judges the new line alone, so its rules for the old ones have no force any more.
Exact and prefix rules that deny or ask become patterns for the agent's shell tool. They are at least as strict: what
the agent would deny at the beginning of a part of a line (`x; git push`, `sh -c 'git push'`, `env A=1 git push`), the
pattern denies too. All other rules are named, so that a person can decide whether to go on without them.
"""

import ast
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from licet.clients.jsonc import BadConfig, Jsonc
from licet.clients.toml_tables import Toml
from licet.hooks.agent_settings import Directories, is_codex_rules
from licet.hooks.agents import AGENTS

Verdict = Literal["deny", "ask"]
EVERY_LINE = r"^[\s\S]*"


class LineRule(Struct, frozen=True):
    """A rule that the policy gets: words at the beginning of a command, or a whole line."""

    verdict: Verdict
    words: tuple[str, ...]  # none: every line
    exact: bool  # nothing may follow
    source: str  # as the user wrote it
    file: str
    alternatives: tuple[tuple[str, ...], ...] = ()  # for each word, others that may stand in its place


class OtherRule(Struct, frozen=True):
    """A rule that the policy cannot have, and why."""

    source: str
    file: str
    why: str


class UserRules(Struct, frozen=True):
    """All rules about shell lines in the files of one agent."""

    agent: str
    lines: tuple[LineRule, ...] = ()
    others: tuple[OtherRule, ...] = ()
    problems: tuple[str, ...] = ()  # files that cannot be read


class RuleFile(Struct, frozen=True):
    """A file, or all files of a kind in a folder, with rules. `base` is the directory below which links count."""

    path: Path
    base: Path
    ending: str = ""  # of the files in a folder


def rule_files(agent: str, here: Directories) -> Iterator[RuleFile]:
    """Where an agent has rules about shell lines."""
    match agent:
        case "claude":
            folder, base = here.moved("CLAUDE_CONFIG_DIR", ".claude")
            yield RuleFile(folder / "settings.json", base)
            for name in ("settings.json", "settings.local.json"):
                yield RuleFile(here.project / ".claude" / name, here.project)
            yield RuleFile(here.machine / "claude-code" / "managed-settings.json", here.machine)
        case "codex":
            folder, base = here.moved("CODEX_HOME", ".codex")
            yield RuleFile(folder / "rules", base, ".rules")
            yield RuleFile(here.project / ".codex" / "rules", here.project, ".rules")
        case "gemini":
            yield RuleFile(here.home / ".gemini" / "settings.json", here.home)
            yield RuleFile(here.project / ".gemini" / "settings.json", here.project)
            yield RuleFile(here.machine / "gemini-cli" / "settings.json", here.machine)
            yield RuleFile(here.home / ".gemini" / "policies", here.home, ".toml")
            yield RuleFile(here.project / ".gemini" / "policies", here.project, ".toml")
        case "opencode":
            folder, base = here.moved("XDG_CONFIG_HOME", ".config")
            for name in ("opencode.json", "opencode.jsonc"):
                yield RuleFile(folder / "opencode" / name, base)
                yield RuleFile(here.project / name, here.project)
        case "cursor":
            yield RuleFile(here.home / ".cursor" / "cli-config.json", here.home)
            yield RuleFile(here.project / ".cursor" / "cli.json", here.project)
        case _:
            return


def read_rules(agent: str, file: str, text: str) -> UserRules:
    """The rules of one file. Raises `BadConfig` if it cannot be read."""
    match agent:
        case "claude":
            found = _claude(file, Jsonc().read(text))
        case "codex":
            found = () if is_codex_rules(text) else tuple(_codex(file, text))
        case "gemini":
            found = _gemini_policy(file, text) if file.endswith(".toml") else _gemini(file, Jsonc().read(text))
        case "opencode":
            found = _opencode(file, Jsonc().read(text))
        case "cursor":
            found = _claude(file, Jsonc().read(text), tool="Shell")
        case _:
            found = ()
    rules = tuple(found)
    lines = tuple(one for one in rules if isinstance(one, LineRule))
    return UserRules(agent, lines, tuple(one for one in rules if isinstance(one, OtherRule)))


def joined(agent: str, parts: Iterable[UserRules]) -> UserRules:
    """The rules of several files of one agent as one."""
    found = list(parts)
    return UserRules(
        agent,
        tuple(dict.fromkeys(rule for one in found for rule in one.lines)),
        tuple(dict.fromkeys(rule for one in found for rule in one.others)),
        tuple(problem for one in found for problem in one.problems),
    )


# The rules of each agent ----------------------------------------------------------------------------------------------

_ALLOWS = "it allows: lines run behind walls without a prompt, whether a rule allows them or not"
_WILD = "its wildcard is not at the end"
_GLOBS = re.compile(r"[*?\[]")
_CALL = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)

Rules = Iterable[LineRule | OtherRule]


def _table(data: Any, *path: str) -> dict[str, Any]:
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, dict) else {}


def _texts(data: Any) -> list[str]:
    return [one for one in data if isinstance(one, str)] if isinstance(data, list) else []


def _claude(file: str, data: Mapping[str, Any], tool: str = "Bash") -> Rules:
    """`Bash`, `Bash(words)`, `Bash(words:*)` and `Bash(words *)`; it looks at each part of a compound line."""
    permissions = _table(data, "permissions")
    for kind in ("deny", "ask", "allow"):
        for source in _texts(permissions.get(kind)):
            named = _CALL.fullmatch(source.strip())
            if named is None or named[1] != tool:
                continue
            if kind == "allow":
                yield OtherRule(source, file, _ALLOWS)
            else:
                verdict: Verdict = "deny" if kind == "deny" else "ask"
                yield _from_glob(verdict, (named[2] or "*").replace(":*", " *"), source, file)


def _from_glob(verdict: Verdict, glob: str, source: str, file: str) -> LineRule | OtherRule:
    """A text with one wildcard at its end as a prefix, and one without any as a whole line."""
    text = glob.strip()
    body = text[:-1].rstrip() if text.endswith("*") else text
    if _GLOBS.search(body):
        return OtherRule(source, file, _WILD)
    try:
        words = tuple(shlex.split(body))
    except ValueError:
        return OtherRule(source, file, "its quotes are not closed")
    if text.endswith("*") and not text.endswith(" *") and body:
        return OtherRule(source, file, "its wildcard is in the middle of a word")
    if not words and not text.endswith("*"):
        return OtherRule(source, file, "it names no words")
    return LineRule(verdict, words, not text.endswith("*"), source, file)


_CODEX_VERDICTS: Mapping[str, Verdict] = {"forbidden": "deny", "prompt": "ask"}


def _codex(file: str, text: str) -> Iterator[LineRule | OtherRule]:
    """Calls of `prefix_rule` with literal words, which is what a Starlark file of rules has."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadConfig("it is no file of rules that licet can read") from None
    for statement in body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        source = (ast.get_source_segment(text, statement) or "").strip()
        if isinstance(call, ast.Constant):
            continue  # a text that stands alone
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            yield OtherRule(source, file, "it is no plain rule")
            continue
        try:
            given = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
            yield _codex_rule(given if call.func.id == "prefix_rule" and not call.args else {}, source, file)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            yield OtherRule(source, file, f"it is no `prefix_rule` with plain words: `{call.func.id}`")


def _codex_rule(given: Mapping[str | None, Any], source: str, file: str) -> LineRule | OtherRule:
    decision, pattern = given.get("decision", "allow"), given.get("pattern")
    if decision == "allow" and pattern:
        return OtherRule(source, file, _ALLOWS)
    verdict = _CODEX_VERDICTS.get(str(decision))
    if verdict is None or not isinstance(pattern, list) or not pattern:
        raise ValueError
    choices = [word if isinstance(word, list) else [word] for word in pattern]
    if not all(each and all(isinstance(word, str) for word in each) for each in choices):
        raise ValueError
    words = tuple(each[0] for each in choices)
    more = tuple(tuple(each[1:]) for each in choices)
    return LineRule(verdict, words, False, source, file, more)


_SHELLS_OF_GEMINI = ("run_shell_command", "ShellTool")


def _gemini(file: str, data: Mapping[str, Any]) -> Rules:
    """`run_shell_command(words)` in the lists of excluded tools; it looks at each part of a compound line."""
    lists = {
        "exclude": [*_texts(_table(data, "tools").get("exclude")), *_texts(data.get("excludeTools"))],
        "allow": [
            *_texts(_table(data, "tools").get("core")),
            *_texts(_table(data, "tools").get("allowed")),
            *_texts(data.get("coreTools")),
        ],
    }
    for kind, sources in lists.items():
        for source in sources:
            named = _CALL.fullmatch(source.strip())
            if named is None or named[1] not in _SHELLS_OF_GEMINI:
                continue
            if kind == "allow":
                yield OtherRule(source, file, _ALLOWS)
            else:
                yield _from_glob("deny", f"{named[2]} *" if named[2] else "*", source, file)


_GEMINI_VERDICTS: Mapping[str, Verdict] = {"deny": "deny", "ask_user": "ask"}


def _gemini_policy(file: str, text: str) -> Rules:
    rules = Toml().read(text).get("rule", [])
    for rule in rules if isinstance(rules, list) else ():
        if not isinstance(rule, dict):
            continue
        tools = rule.get("toolName")
        named = tools if isinstance(tools, list) else [tools]
        prefixes = rule.get("commandPrefix")
        if not any(one in _SHELLS_OF_GEMINI for one in named) and prefixes is None and "commandRegex" not in rule:
            continue
        source = json.dumps(rule, ensure_ascii=False, default=str)
        if rule.get("decision") == "allow":
            yield OtherRule(source, file, _ALLOWS)
            continue
        verdict = _GEMINI_VERDICTS.get(str(rule.get("decision")))
        unknown = rule.keys() - {"toolName", "commandPrefix", "decision", "priority", "denyMessage", "deny_message"}
        if verdict is None or unknown:
            yield OtherRule(source, file, f"it has `{min(unknown) if unknown else 'decision'}`")
            continue
        for prefix in prefixes if isinstance(prefixes, list) else [prefixes]:
            yield _from_glob(verdict, f"{prefix} *" if prefix else "*", source, file)


def _opencode(file: str, data: Mapping[str, Any]) -> Rules:
    """`permission.bash`, where the last rule that fits counts: one that a later `allow` may undo is named."""
    found = _table(data, "permission").get("bash")
    if isinstance(found, str):
        found = {"*": found}
    globs = list(found.items()) if isinstance(found, dict) else []
    later = [glob for glob, decision in globs if decision == "allow"]
    for place, (glob, decision) in enumerate(globs):
        source = json.dumps({glob: decision}, ensure_ascii=False)
        if decision == "allow":
            yield OtherRule(source, file, _ALLOWS)
        elif decision not in ("deny", "ask"):
            yield OtherRule(source, file, f"its decision is `{decision}`")
        elif undoing := next((one for one in _after(globs, place) if one in later and _overlap(glob, one)), None):
            yield OtherRule(source, file, f"`{undoing}` after it allows a part of it again")
        else:
            yield _from_glob(decision, glob, source, file)
    for agent, settings in _table(data, "agent").items():
        if isinstance(settings, dict) and "bash" in _table(settings, "permission"):
            yield OtherRule(f"agent.{agent}.permission.bash", file, "it holds for one of its agents alone")


def _after(globs: Sequence[tuple[str, Any]], place: int) -> list[str]:
    return [glob for glob, _ in globs[place + 1 :]]


def _overlap(one: str, other: str) -> bool:
    first, second = (re.split(r"[*?]", glob, maxsplit=1)[0] for glob in (one, other))
    return first.startswith(second) or second.startswith(first)


# As patterns ----------------------------------------------------------------------------------------------------------

# Where a command may begin: at the start of the line, after what separates commands, in a quoted script of another
# shell, after the words of programs that start others, and after assignments and the path of a program.
_BEGINNING = r"""(?:(?:^|[;&|(){}!`"'\n])\s*|\s(?:-c|--|then|do|else|elif|if|while|until)\s+)"""
_STARTERS = (
    "sudo|doas|env|nohup|nice|ionice|timeout|time|xargs|exec|command|builtin|stdbuf|setsid|eval|chroot|watch|unshare"
    "|then|do|else|if"
)
_BEFORE = rf"""(?:(?:\S*/)?(?:{_STARTERS})\s+|-\S*\s+|[0-9]\S*\s+|[A-Za-z_][A-Za-z0-9_]*=\S*\s+)*(?:[^\s;&|]*/)?"""
_END = r"""(?:[^\w-]|$)"""
_QUOTE = r"""['"\\]*"""


def pattern_of(rule: LineRule) -> str:
    """The pattern of a rule, for a JSON Schema: it fits every line that the rule is about, and some more."""
    if not rule.words:
        return EVERY_LINE
    words = []
    for word, others in zip_longest(rule.words, rule.alternatives, fillvalue=()):
        every = (str(word), *others)
        text = "|".join(_escaped(one) for one in every)
        words.append(f"{_QUOTE}(?:{text}){_QUOTE}" if every[1:] else f"{_QUOTE}{text}{_QUOTE}")
    body = _BEGINNING + _BEFORE + r"\s+".join(words)
    if rule.exact:
        return body + r"""\s*(?:[;&|)}`"'\n#]|$)"""
    return body + _END


def _escaped(word: str) -> str:
    """A word as a pattern; no engine takes an escaped letter or blank for itself."""
    return re.sub(r"([^\w\s/,:=@%-])", r"\\\1", word, flags=re.ASCII)


def argument_rules(rules: UserRules) -> dict[str, dict[str, Any]]:
    """Rules for the arguments of the agent's shell tools, by the tool's full name; none without rules."""
    patterns: dict[str, list[str]] = {"deny": [], "ask": []}
    for rule in rules.lines:
        if (found := pattern_of(rule)) not in patterns[rule.verdict]:
            patterns[rule.verdict].append(found)
    schema: dict[str, Any] = {}
    for verdict, key in (("deny", "not"), ("ask", "ask")):
        if patterns[verdict]:
            schema[key] = {"anyOf": [{"pattern": one} for one in patterns[verdict]]}
    if not schema:
        return {}
    shells = [row for row in AGENTS[rules.agent].tools.values() if row.kind == "shell"]
    return {f"{rules.agent}.{row.name}": {"args": {row.text: schema}} for row in shells}
