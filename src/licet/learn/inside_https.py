"""Which hosts does a draft look into, and which keys could stay outside? From what was seen inside HTTPS.

Only recordings of `licet observe --inspect` show that. A host that was seen as a tunnel alone keeps its `tcp` rule.
Where requests were seen too, they have rules of their own, and `tcp` is drafted only for an upgrade such as WebSocket.
"""

from collections.abc import Container, Iterable, Iterator, Mapping

from msgspec import Struct

from licet.core.algebra.domains import place_text
from licet.core.algebra.rules import Capability, Use
from licet.core.policy.inspection import HTTPS_PORT, StandIn, places_of
from licet.core.policy.keys import INSPECT, STAND_INS
from licet.core.policy.manifest import Manifest
from licet.core.review.known_keys import KNOWN_KEYS, entry_text
from licet.core.review.recording_lines import Calls, Recorded
from licet.policy_files.additions import Entry


class LookedInto(Struct, frozen=True):
    """One host for `inspect`, and the requests that were seen inside its connections."""

    host: str
    calls: str
    off: bool  # whether all lines about it are left to a person


def requests_inside(recorded: Recorded) -> frozenset[Use]:
    """The requests that were seen inside HTTPS."""
    return frozenset(use for text in recorded.inside if (use := recorded.used[text][0]).action == "https")


def mere_tunnels(recorded: Recorded) -> frozenset[Use]:
    """The tunnels to places whose requests are known from another recording."""
    places = {(use.target, use.port) for use in requests_inside(recorded)}
    return frozenset(
        use
        for text, (use, _) in recorded.used.items()
        if use.action == "tcp" and (use.target, use.port) in places and text not in recorded.inside
    )


def hosts_inside(
    inside: Iterable[Use], uses: Mapping[Use, Calls], rules: Iterable[tuple[Capability, bool]]
) -> tuple[LookedInto, ...]:
    """The hosts of requests, as the rules name them; each rule with whether it is left to a person."""
    index: dict[str, list[tuple[Capability, bool]]] = {}
    for rule, off in rules:
        if rule.domain == "network":
            index.setdefault(rule.key, []).append((rule, off))
    found: dict[str, tuple[Calls, bool]] = {}
    for use in inside:
        for rule, off in (pair for key in use.keys for pair in index.get(key, ())):
            if rule.covers_use(use):
                host = place_text(rule.key, None if use.port == HTTPS_PORT else use.port)
                calls, known_off = found.get(host, (Calls(), True))
                calls.merge(uses[use])
                found[host] = calls, known_off and off
                break
    return tuple(LookedInto(host, calls.text("request"), off) for host, (calls, off) in sorted(found.items()))


def inspect_entries(looked_into: Iterable[LookedInto], policy: Manifest) -> Iterator[Entry]:
    """The hosts that a policy does not look into yet."""
    known = places_of(INSPECT.of(policy))
    for one in looked_into:
        if not places_of((one.host,)) <= known:
            yield Entry(("inspect",), one.host, one.calls, one.off)


def offered_keys(looked_into: Iterable[LookedInto], policy: Manifest, variables: Container[str]) -> tuple[StandIn, ...]:
    """The stand-ins for known keys of hosts that are looked into: of `variables`, or else of each kind of key there.

    No recording shows which variables a program reads. What a policy has already is not offered again.
    """
    places = places_of(one.host for one in looked_into if not one.off)
    stated = {entry.name: entry for entry in STAND_INS.of(policy)}
    set_here, first = [], []
    for known in KNOWN_KEYS:
        hosts = tuple(sorted(host for host in known.hosts if places_of((host,)) <= places))
        if not hosts or not stated.keys().isdisjoint(known.variables):
            continue
        entries = [StandIn(name=name, secret=name, hosts=hosts, headers=known.headers) for name in known.variables]
        set_here += [entry for entry in entries if entry.name in variables]
        first.append(entries[0])
    keyed = places_of(host for entry in (*set_here, *stated.values()) for host in entry.hosts)
    others = [entry for entry in first if not keyed & entry.places]
    return tuple(sorted((*set_here, *others), key=lambda entry: entry.name))


def key_entries(offered: Iterable[StandIn]) -> Iterator[Entry]:
    """Comments that place keys: their secrets, and their stand-ins."""
    for entry in offered:
        why = f"a key for {', '.join(entry.hosts)} that programs need not have: `{entry.name}` under `stand_ins`"
        yield Entry(("secrets",), entry.secret, why, off=True)
        placed = entry_text(entry).removeprefix(f"{entry.name}: ")
        yield Entry(("stand_ins",), entry.name, "programs see a value without worth", off=True, value=placed)
