"""The drafts of `licet lock --init`: the entries of servers that have no `tools` yet, for a person to review."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import CLASSES, ELEVATED
from licet.core.policy.lock import LockedServer
from licet.core.policy.servers import Server
from licet.core.policy.tool import ToolSpec
from licet.lock.tool_guesses import Guess, guesses
from licet.mcp.shown_names import without_clashes
from licet.policy_files.additions import Noted, with_server_keys
from licet.policy_files.draft import exact_fit, strongest_class

_REVIEW = "guesses: review every line"
_PATHS = "paths by their names; others than in `needs` are refused"


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
        keys["args"] = Noted({name: {"scope": scope} for name, scope in guess.args.items()}, f"guess: {_PATHS}")
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
