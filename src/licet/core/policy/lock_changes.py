"""What a new lock changes, as lines for a reviewer. Descriptions are shown word for word.

Texts of servers are quoted, or have a sign or a bar before each line, so that none passes for a line of licet. Hidden
and control characters are in them unchanged: make the lines safe for a terminal before you print them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from licet.core.limits import LONGEST_ON_A_LINE
from licet.core.policy.lock import (
    KINDS,
    Definition,
    Lock,
    LockedDistribution,
    LockedServer,
    LockedTool,
    OtherVersion,
    Resolved,
    differences,
    path_text,
)
from licet.core.policy.manifest import command_text
from licet.core.values import data_json

_TITLES = {"tools": "tool", "resources": "resource", "templates": "resource template", "prompts": "prompt"}
_TEXTS = ("description", "title")
_NAMES = ("name", "uri", "uriTemplate")  # one of them is in the title


def lock_changes(old: Lock, new: Lock) -> Iterator[str]:
    """What a new lock would change: `+` is added, `-` removed, `~` changed; indented lines belong to the one above."""
    for name, was, now in _pairs(old.manifests, new.manifests):
        version = new.versions.get(name, "")
        same = f"; {still_version(version)}" if version and version == old.versions.get(name) else ""
        yield _sign(was, now, f"manifest {_one(name)}", f"{_short(was)} -> {_short(now)}{same}")
    for name, was, now in _pairs(old.tools, new.tools):
        yield _sign(was, now, f"tool {_one(name)}", tool_difference(was, now) if now is not None else "")
    for name, was, now in _pairs(old.distributions, new.distributions):
        yield _sign(
            was, now, f"distribution {_one(name)} {_one((now or was).version)}", distribution_difference(was, now)
        )
    for name in sorted(old.servers.keys() | new.servers.keys()):  # equality in Python takes `true` for `1`
        before, after = old.servers.get(name), new.servers.get(name)
        if before is None or after is None:
            yield f"{'+' if before is None else '-'} server {_one(name)}"
        yield from _server_changes(_one(name), before or LockedServer(), after or LockedServer())


def still_version(version: str) -> str:
    """The warning about contents that changed while their version did not."""
    return f"its contents changed, and its version is still {_one(version)}"


def tool_difference(locked: LockedTool | None, now: LockedTool) -> str:
    """What differs between a tool and its entry in the lock; empty if nothing does."""
    if locked is None:
        return "is not in the lock"
    parts = ["declares something else"] if locked.digest != now.digest else []
    for file, was, is_now in _pairs(locked.sources, now.sources):
        parts.append(
            f"{'no longer loads' if is_now is None else 'also loads' if was is None else 'has another'} {_one(file)}"
        )
    return " and ".join(parts)


def distribution_difference(locked: LockedDistribution | None, now: LockedDistribution | None) -> str:
    """What differs between two entries of a distribution."""
    if locked is None or now is None:
        return ""
    if locked.version != now.version:
        return f"version {_one(locked.version)} -> {_one(now.version)}"
    platforms = [_one(platform) for platform, _, _ in _pairs(locked.files, now.files)]
    return f"other files on {', '.join(platforms)}; {still_version(now.version)}"


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each name whose value differs, with both values; a missing one is None."""
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was != now:
            yield name, was, now


def _sign(was: object, now: object, title: str, what: str) -> str:
    if was is None or now is None:
        return f"{'+' if was is None else '-'} {title}"
    return f"~ {title}: {what}"


def _short(digest: str | None) -> str:
    return (digest or "").removeprefix("sha256:")[:12]


def _server_changes(name: str, old: LockedServer, new: LockedServer) -> Iterator[str]:
    for field in ("command", "url", "version", "announced"):
        was, now = getattr(old, field), getattr(new, field)
        if was != now:
            yield f"~ server {name}: {field}: {_words(was)} -> {_words(now)}"
    if old.claimed_version != new.claimed_version:
        claims = (_quoted(one.claimed_version) if one.claimed_version else "none" for one in (old, new))
        yield f"~ server {name}: the version that it claims: {' -> '.join(claims)}"
    if old.instructions != new.instructions:
        yield f"~ server {name}: its instructions for models"
        yield from _value_changes("instructions", old.instructions, new.instructions)
    yield from _resolved_changes(name, old.resolved, new.resolved)
    for place, files, files_now in _pairs(old.code, new.code):
        yield f"~ server {name}: its code in {_one(place)}"
        yield from _hash_changes(files or {}, files_now or {})
    for kind in KINDS:
        before, after = old.listed(kind), new.listed(kind)
        yield from _list_changes(name, kind, before, after)
        if before.keys() == after.keys() and list(before) != list(after):
            yield f"~ server {name}: its {kind} are in another order"
    for version in sorted(old.other_versions.keys() | new.other_versions.keys()):
        yield from _version_changes(name, version, old, new)
    for one, *texts in _pairs(old.volatile, new.volatile):
        listed = " -> ".join(_words(paths or ()) for paths in texts)
        yield f"~ server {name}: texts of {_one(one)} that change by themselves: {listed}"
    if old.hidden != new.hidden:
        yield f"~ server {name}: hidden characters accepted in: {_words(old.hidden)} -> {_words(new.hidden)}"
    for tool, was, why in _pairs(old.refused, new.refused):
        state = f"is refused: {_quoted(why)}" if why else f"is no longer refused: {_quoted(was)}"
        yield f"~ server {name}: {_one(tool)} {state}"


def _list_changes(
    name: str, kind: str, before: Mapping[str, Definition], after: Mapping[str, Definition], where: str = ""
) -> Iterator[str]:
    for one in sorted(before.keys() | after.keys()):
        shown = _one(one)
        title = f"{_TITLES[kind]} {name}.{shown}" if kind == "tools" else f"{_TITLES[kind]} {shown} of {name}"
        yield from _definition_changes(f"{title}{where}", one, before.get(one), after.get(one))


def _version_changes(name: str, version: str, old: LockedServer, new: LockedServer) -> Iterator[str]:
    """What changed in another version of the protocol. One that is new is compared with the main version."""
    known, knows = version in old.other_versions, version in new.other_versions
    if known != knows:
        state = "also locked" if knows else "no longer locked"
        yield f"~ server {name}: it is {state} in protocol {_one(version)}"
    if not knows:
        return
    there = new.in_version(version)
    before = old.in_version(version) if known else new
    where = f" in protocol {_one(version)}"
    if known and new.other_versions[version] == old.other_versions[version] == OtherVersion():
        return  # as in the main version, whose changes are shown
    if before.instructions != there.instructions:
        yield f"~ server {name}: its instructions for models{where}"
        yield from _value_changes("instructions", before.instructions, there.instructions)
    for kind in KINDS:
        yield from _list_changes(name, kind, before.listed(kind), there.listed(kind), where)


def _words(value: str | tuple[str, ...]) -> str:
    return _one(value) if value and isinstance(value, str) else command_text(value) or "none"


def _one(text: str) -> str:
    """A word from a lock: quoted if it is more than one plain word."""
    return command_text((text,))


def _resolved_changes(name: str, old: Resolved | None, new: Resolved | None) -> Iterator[str]:
    if old == new:
        return
    republished = old is not None and new is not None and new.version == old.version and _other_hashes(old, new)
    same = f"; {still_version(new.version)}" if republished and new is not None and new.version else ""
    yield f"~ server {name}: starts: {_resolved(old)} -> {_resolved(new)}{same}"
    for platform, was, now in _pairs(old.integrity if old else {}, new.integrity if new else {}):
        yield from _hash_changes(was or {}, now or {}, f"{_one(platform)}: ")


def _other_hashes(old: Resolved, new: Resolved) -> bool:
    """Whether a package of a platform that both have, in the same version, has another hash."""
    known = ((old.integrity.get(platform, {}), hashes) for platform, hashes in new.integrity.items())
    return any(before.get(package, digest) != digest for before, now in known for package, digest in now.items())


def _hash_changes(before: Mapping[str, str], after: Mapping[str, str], title: str = "") -> Iterator[str]:
    """The names whose hash is new, gone or another one, in one line each."""
    for sign, found in (
        ("+", sorted(after.keys() - before.keys())),
        ("-", sorted(before.keys() - after.keys())),
        ("~", sorted(one for one in before.keys() & after.keys() if before[one] != after[one])),
    ):
        if found:
            same = " (the same version, other contents)" if title and sign == "~" else ""  # versions are in the names
            yield f"    {sign} {title}{', '.join(map(_one, found))}{same}"


def _resolved(one: Resolved | None) -> str:
    if one is None:
        return "nothing"
    if one.kind == "file":
        return f"the file {_one(one.program)} ({_one(_short(one.digest))})"
    program = f" ({_one(one.program)})" if one.program else ""
    return " ".join((one.kind, *(_one(word) for word in (one.name, one.version) if word))) + program


def _definition_changes(title: str, name: str, old: Definition | None, new: Definition | None) -> Iterator[str]:
    if new is None:
        yield f"- {title}"
    elif old is None:
        yield f"+ {title}"
        for place, text in _described(new):
            yield from _text_lines(place, text)
        if rest := _without_texts({key: value for key, value in new.items() if key not in _NAMES or value != name}):
            yield f"    says also: {data_json(rest).decode()}"
    elif places := list(differences(old, new)):
        yield f"~ {title}"
        for path, was, now in places:
            yield from _value_changes(path_text(path), was, now)


def _text_lines(place: str, text: str) -> Iterator[str]:
    """A text of a server, quoted; if it has several lines, each has a bar before it."""
    lines = text.splitlines()
    if len(lines) < 2:
        yield f"    {_one(place)}: {_quoted(text)}"
        return
    yield f"    {_one(place)}:"
    yield from (f"      | {line}" for line in lines)


def _quoted(text: str) -> str:
    return data_json(text).decode()


def _without_texts(value: Any) -> Any:
    """A value without the descriptions and titles in it; models read the rest too, such as names and defaults."""
    if isinstance(value, dict):
        kept = ((key, item) for key, item in value.items() if not (key in _TEXTS and isinstance(item, str)))
        return {key: _without_texts(item) for key, item in kept}
    return [_without_texts(item) for item in value] if isinstance(value, list) else value


def _described(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """All descriptions and titles in a definition, each with its path."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        here = (*path, str(key))
        if isinstance(item, str) and key in _TEXTS:
            yield "/".join(here), item
        else:
            yield from _described(item, here)


def _value_changes(path: str, old: Any, new: Any) -> Iterator[str]:
    if (
        isinstance(old, str)
        and isinstance(new, str)
        and ("\n" in old or "\n" in new or len(old) + len(new) > LONGEST_ON_A_LINE)
    ):
        import difflib  # a gate only asks whether something differs

        yield f"    {_one(path)}:"
        lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1))
        # The first two lines are a header. Lines of the texts begin with their sign, so only marks begin with `@@`.
        yield from (f"      {line}" for line in lines[2:] if not line.startswith("@@"))
    else:
        texts = ("none" if one is None else data_json(one).decode() for one in (old, new))
        yield f"    {_one(path)}: {' -> '.join(texts)}"
