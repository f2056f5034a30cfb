"""The drafts of `licet lock --init`: the entries of servers that have no `tools` yet, for a person to review.

What a tool needs and its class are guessed from schemas and annotations. A server may say anything about itself, so
each guess is marked for review. Inside walls a class that is too weak only stops more.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import CLASSES, ELEVATED, EffectClass
from licet.core.policy.lock import Definition, LockedServer
from licet.core.policy.servers import Server
from licet.core.policy.tool import ToolSpec
from licet.core.review.sensitive import Whereabouts
from licet.mcp.shown_names import without_clashes
from licet.policy_files.additions import Noted, with_server_keys
from licet.policy_files.draft import exact_fit, strongest_class

_READING = (
    "browse calculate check compare convert count current describe diff echo explain fetch find get grep head info "
    "inspect list log lookup ls peek preview query read resolve retrieve search select show stat status tail tree "
    "validate verify view"
)
_REMOVING = "clear delete destroy drop erase kill move prune purge remove rename reset rm truncate wipe"
_READS, _REMOVES = frozenset(_READING.split()), frozenset(_REMOVING.split())
_PATHS = re.compile(
    r"(?i)(?:^|_|\b)(?:path|paths|file|files|filename|dir|directory|folder|root|repo|source|destination)$"
)
_URLS = re.compile(r"(?i)(?:^|_|\b)(?:url|urls|uri|host|hostname|domain|endpoint|link)$")
_WRITTEN = re.compile(r"(?:/|~/|\.{1,2}/|\$\{workdir\}(?:/|$))")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SHOWN = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_FS = DOMAINS["fs"].actions


class Guess(Struct, frozen=True):
    """What one tool probably needs, its class, and why; the texts hold nothing that a server could have worded."""

    needs: tuple[str, ...]
    needs_why: str
    effect: EffectClass
    effect_why: str
    args: Mapping[str, str] = {}  # the arguments that are taken for paths, with the `scope` of each


def argument_grants(words: Iterable[str], workdir: str, home: str) -> list[str]:
    """Rules to read the paths among the arguments of a command, as they are written there.

    A word that is no path for certain, such as `notes` or `@scope/package`, counts if there is such a file, or such a
    directory above it. One that is written as a path counts before it exists: a server may make its database itself.
    """
    found = []
    for word in words:
        path = word.rpartition("=")[2]
        real = path.replace("${workdir}", workdir)
        real = home + real[1:] if home and (real == "~" or real.startswith("~/")) else real
        place = os.path.normpath(os.path.join(workdir, real))
        above = os.path.dirname(place) if "/" in real else place
        if place != "/" and (_WRITTEN.match(path) or os.path.lexists(place) or os.path.isdir(above)):
            found.append(_rule(place, Whereabouts(workdir, home)))
    return list(dict.fromkeys(filter(None, found)))


def _rule(path: str, where: Whereabouts) -> str:
    try:
        return str(Capability(f"fs:read:{where.short(path)}"))
    except Malformed:
        return ""


def guesses(server: Server, locked: LockedServer) -> dict[str, Guess]:
    """A guess for each tool that can be used, in the order of the server."""
    usable = {
        name: one for name, one in locked.in_all_versions("tools").items() if f"tools/{name}" not in locked.refused
    }
    return {name: _guess(server, name, definition) for name, definition in usable.items()}


def _guess(server: Server, name: str, definition: Definition) -> Guess:
    effect, why = _effect(name, definition)
    needs, needs_why = _needs(server, definition, effect)
    paths = _paths(definition) if not server.url and any(Capability(rule).domain == "fs" for rule in needs) else []
    scope, required = "fs:read" if effect == "read_only" else "fs:write", _required(definition)
    if left := [f"`{name}`" for name in paths if name not in required][:3]:
        needs_why = f"{needs_why}; no rule on {', '.join(left)}, since a rule would make it required"
    return Guess(tuple(needs), needs_why, effect, why, {name: scope for name in paths if name in required})


def _effect(name: str, definition: Definition) -> tuple[EffectClass, str]:
    given = definition.get("annotations")
    annotations: Mapping[str, Any] = given if isinstance(given, dict) else {}
    words = [word.lower() for word in _WORD.findall(name)]
    if annotations.get("destructiveHint") is True or (_REMOVES & set(words) and not annotations.get("readOnlyHint")):
        said = "the server says `destructiveHint`" if annotations.get("destructiveHint") is True else "by its name"
        return "full", said
    if annotations.get("readOnlyHint") is True:
        return "read_only", "the server says `readOnlyHint`"
    if annotations.get("readOnlyHint") is False:
        return "write_limited", "the server says that it writes"
    if _READS & set(words):
        return "read_only", "by its name"
    return "write_limited", "nothing says that it only reads"


def _needs(server: Server, definition: Definition, effect: EffectClass) -> tuple[list[str], str]:
    grants = [Capability(rule) for rule in server.grants]
    if effect == "read_only":
        grants = [one for one in grants if one.domain != "fs" or one.atoms & _FS["read"]]
    names = list(_arguments(definition))
    paths, urls = ([name for name in names if kind.search(name)] for kind in (_PATHS, _URLS))
    kinds = {kind for kind, found in (("fs", paths), ("network", urls)) if found}
    held = [one for one in grants if not kinds or one.domain in kinds or one.domain not in ("fs", "network")]
    shown = [f"`{name}`" for name in (*paths, *urls) if _SHOWN.fullmatch(name)][:3]
    why = f"it takes {', '.join(shown)}" if shown else "all that its process may touch"
    writable = any(one.domain == "fs" and one.atoms & _FS["write"] for one in held)
    if effect != "read_only" and not writable and any(one.domain == "fs" for one in held):
        why = f"{why}; to write files it needs `fs:write:…` too, here and in `grants`"
    return [str(one) for one in held], why if held else "its process may touch nothing"


def _paths(definition: Definition) -> list[str]:
    """The arguments that probably hold paths, and whose schemas say that they are texts."""
    taken = _arguments(definition).items()
    return [name for name, schema in taken if _PATHS.search(name) and _SHOWN.fullmatch(name) and _texts(schema)]


def _required(definition: Definition) -> list[Any]:
    schema = definition.get("inputSchema")
    listed = schema.get("required") if isinstance(schema, dict) else None
    return listed if isinstance(listed, list) else []


def _texts(schema: object) -> bool:
    """Whether a schema is for a text or a list of texts, or for nothing instead."""
    if not isinstance(schema, dict):
        return False
    several = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), None)
    if several is not None:
        left = [one for one in several if one != {"type": "null"}]
        return bool(left) and all(map(_texts, left))
    kind = schema.get("type")
    kinds = {one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str)} - {"null"}
    items = schema.get("items")
    of_texts = isinstance(items, dict) and items.get("type") == "string"
    return bool(kinds) and kinds <= ({"string", "array"} if of_texts else {"string"})


def _arguments(definition: Definition) -> dict[str, Any]:
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: one for name, one in properties.items() if isinstance(name, str)}


# The entries ----------------------------------------------------------------------------------------------------------

_REVIEW = "guesses: review every line"
_ABOUT_PATHS = "paths by their names; others than in `needs` are refused"


class Draft(Struct, frozen=True):
    """The draft of one server: what is put into its entry, and the guesses about its tools."""

    server: Server
    is_new: bool  # the entry is not there yet
    has_grants: bool  # the entry states its grants already
    tools: Mapping[str, Guess]
    refused: Mapping[str, str]


def drafts_of(
    servers: Mapping[str, Server], taken: Mapping[str, LockedServer], entries: Mapping[str, Mapping[str, object]]
) -> list[Draft]:
    """A draft for each server whose definitions were taken; `entries` are those that the policy has."""
    return [
        Draft(
            servers[name],
            name not in entries,
            "grants" in entries.get(name, ()),
            guesses(servers[name], locked),
            locked.refused,
        )
        for name, locked in without_clashes(taken, "").items()
    ]


def with_drafts(text: str, drafts: Sequence[Draft]) -> str:
    """The text of a policy file with drafts put into its `servers:`."""
    return with_server_keys(text, {draft.server.name: _keys(draft) for draft in drafts})


def _keys(draft: Draft) -> dict[str, Noted]:
    keys, server = {}, draft.server
    if draft.is_new:
        keys["command"] = Noted(server.command)
    if server.grants and not draft.has_grants:
        keys["grants"] = Noted(server.grants, "guessed from its command: what its process may touch")
    return {**keys, "tools": Noted({name: Noted(_guessed(one)) for name, one in draft.tools.items()}, _REVIEW)}


def _guessed(guess: Guess) -> dict[str, Noted]:
    keys = {
        "needs": Noted(guess.needs, f"guess: {guess.needs_why}"),
        "effect": Noted(guess.effect, f"guess: {guess.effect_why}"),
    }
    if guess.args:
        keys["args"] = Noted({name: {"scope": scope} for name, scope in guess.args.items()}, f"guess: {_ABOUT_PATHS}")
    return keys


def needed_capabilities(drafts: Sequence[Draft]) -> dict[str, object]:
    """What a manifest says to admit all drafted tools: their names, what they need, and the class of the strongest."""
    specs = [
        ToolSpec(f"{draft.server.name}.{tool}", CapabilitySet(guess.needs), guess.effect, "isolated")
        for draft in drafts
        for tool, guess in draft.tools.items()
    ]
    # A server is given its variables and secrets whatever its tools need, and one on another machine has a host.
    given = [replace(draft.server, grants=()) for draft in drafts]
    fit = exact_fit((*specs, *(ToolSpec(server.name, server.holds, "read_only", "isolated") for server in given)))
    found: dict[str, object] = {"tools": [spec.name for spec in specs]}
    nested: dict[str, dict[str, list[str]]] = {}
    for key, items in fit.items.items():
        outer, _, inner = key.partition(".")
        if inner:
            found[outer] = nested.setdefault(outer, {})
            nested[outer][inner] = sorted(items)
        else:
            found[outer] = sorted(items)
    if (strongest := strongest_class(specs)) != CLASSES[0]:
        found["max_side_effect_class"] = strongest
    if strongest in ELEVATED:
        found["budget"] = {"max_calls_per_session": 100}
    return found
