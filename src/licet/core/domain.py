"""The domains: which actions each has, what its scopes look like, and how a rule in it is written.

A new domain is one entry in `DOMAINS`, and a word about it wherever people read it: see CONTRIBUTING. A rule is a set
of finite atoms (bits of an int) on a scope key, and in `network` on a port. `phrases` are the sets of atoms that a
single rule can say, largest first.
"""

from collections.abc import Callable, Mapping

from licet.core import network
from licet.core.scope import (
    TOP,
    Malformed,
    binary,
    host_ancestors,
    hosts_below,
    name,
    name_ancestors,
    name_text,
    nothing_below,
    path_ancestors,
    path_key,
    path_text,
    paths_below,
    reversed_host,
    secret_ancestors,
    secret_key,
    secret_reference,
    secret_text,
    secrets_below,
    variable,
)
from licet.values import dataclass

PATH_DOMAINS = frozenset({"fs", "process"})  # whose scopes may be paths, and begin with `~` or `${workdir}`
STORAGE_KINDS = ("tool-private", "session", "personality")


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of outside surface and the grammar of its rules."""

    name: str
    actions: Mapping[str, int]  # with `*`, and the atoms each of them says
    parse: Callable[[str, str], tuple[int, str, int | None]]
    render: Callable[[int, str, int | None], str]
    ancestors: Callable[[str], tuple[str, ...]]
    phrases: tuple[int, ...]
    target: Callable[[str], str]
    top_phrases: frozenset[int]
    # Sorted by `sorted_as`, the keys that a key covers stand together and start with `begins_below` of it.
    begins_below: Callable[[str], str] = nothing_below
    sorted_as: Callable[[str], str] = str


def nearest(word: str, words: tuple[str, ...]) -> str:
    """A hint that names the closest valid word, or nothing."""
    import difflib  # what nobody misspells is not loaded

    near = difflib.get_close_matches(word.lower(), words, 1, 0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def _named(
    domain: str,
    actions: tuple[str, ...],
    key: Callable[[str], str],
    text: Callable[[str], str],
    ancestors: Callable[[str], tuple[str, ...]],
    target: Callable[[str], str],
    begins_below: Callable[[str], str] = nothing_below,
) -> Domain:
    every = (1 << len(actions)) - 1
    atoms = {**{action: 1 << bit for bit, action in enumerate(actions)}, "*": every}
    # With a single action `*` says the same atoms; the action's own name is the canonical one.
    phrases = {every: "*", **{atoms[action]: action for action in actions}}
    parse_key, render_key = key, text

    def parse(action: str, scope: str) -> tuple[int, str, int | None]:
        return atoms[action], parse_key(scope), None

    def render(mask: int, key: str, port: int | None) -> str:
        return f"{domain}:{phrases[mask]}:{render_key(key)}"

    order = tuple(sorted(phrases, key=lambda mask: -mask.bit_count()))
    return Domain(domain, atoms, parse, render, ancestors, order, target, frozenset(order), begins_below)


def _or_star(parse: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: TOP if text == "*" else parse(text)


def _storage() -> Domain:
    actions = ("read", "write")
    kinds = {kind: 0b11 << 2 * bit for bit, kind in enumerate(STORAGE_KINDS)} | {"*": 0b111111}
    sides = {"read": 0b010101, "write": 0b101010, "*": 0b111111}
    phrases = {
        sides[action] & kinds[kind]: (action, kind) for action in (*actions, "*") for kind in (*STORAGE_KINDS, "*")
    }

    def kind_of(text: str) -> str:
        if text not in STORAGE_KINDS:
            raise Malformed(text, f"one of {', '.join(STORAGE_KINDS)}", nearest(text, STORAGE_KINDS))
        return text

    def parse(action: str, scope: str) -> tuple[int, str, int | None]:
        return sides[action] & kinds[scope if scope == "*" else kind_of(scope)], TOP, None

    def render(mask: int, key: str, port: int | None) -> str:
        action, kind = phrases[mask]
        return f"storage:{action}:{kind}"

    order = tuple(sorted(phrases, key=lambda mask: -mask.bit_count()))
    whole = frozenset(mask for mask, (_, kind) in phrases.items() if kind == "*")
    return Domain("storage", sides, parse, render, name_ancestors, order, kind_of, whole)


def _network() -> Domain:
    def render(mask: int, key: str, port: int | None) -> str:
        return f"network:{network.scope_text(mask, key, port)}"

    phrases = tuple(network.PHRASES)
    return Domain(
        "network",
        network.ACTION_ATOMS,
        network.parse_scope,
        render,
        host_ancestors,
        phrases,
        str,
        frozenset(phrases),
        hosts_below,
        reversed_host,
    )


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        _named("fs", ("read", "write", "delete"), path_key, path_text, path_ancestors, str, paths_below),
        _network(),
        _named("process", ("exec",), _or_star(binary), name_text, name_ancestors, binary),
        _named("env", ("read",), _or_star(variable), name_text, name_ancestors, variable),
        _named("secret", ("read",), secret_key, secret_text, secret_ancestors, secret_reference, secrets_below),
        _storage(),
        _named("tool", ("call",), _or_star(name), name_text, name_ancestors, name),
        _named("connector", ("use",), _or_star(name), name_text, name_ancestors, name),
    )
}


def split_text(text: str) -> tuple[Domain, str, str]:
    """The domain, action and scope of `domain:action:scope`, or `Malformed` with the nearest spelling."""
    parts = str.split(text, ":", 2)
    domain = DOMAINS.get(parts[0])
    if domain is not None and len(parts) == 3 and parts[1] in domain.actions:
        return domain, parts[1], parts[2]
    if len(parts) != 3 or domain is None:
        if domain is None and len(parts) == 3:
            raise Malformed(parts[0], f"one of the domains {', '.join(DOMAINS)}", nearest(parts[0], tuple(DOMAINS)))
        raise Malformed(text, "`domain:action:scope`, such as `fs:read:/srv/data`")
    words = tuple(domain.actions)
    raise Malformed(parts[1], f"one of {', '.join(words)} after `{domain.name}:`", nearest(parts[1], words))


def parse_rule(text: str) -> tuple[str, int, str, int | None]:
    """The domain, atoms, scope key and port of a rule's text."""
    domain, action, scope = split_text(text)
    return domain.name, *domain.parse(action, scope)


def said(domain: Domain, atoms: int) -> list[int]:
    """The phrases that say some atoms and no others, the largest first; the last of them may repeat a few."""
    found, left = [], atoms
    for phrase in domain.phrases:
        if phrase & left and not phrase & ~atoms:
            found.append(phrase)
            left &= ~phrase
    return found
