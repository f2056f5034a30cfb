"""What a review can tell beyond the decision itself: a tool that no gate would register, an address no call goes to.

`decide` judges one call of a tool that is registered. Whoever only has files wants to know the rest too.
"""

from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_network

from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.algebra.grid import TooManyPairs
from licet.core.algebra.scope import TOP, host_ancestors, host_text, is_address
from licet.core.algebra.use import Use
from licet.core.canonical import key_bytes
from licet.core.decision.bundle_rules import approvals_of, private_of
from licet.core.decision.decision import Decision, Deny
from licet.core.decision.fixes import pin
from licet.core.decision.folding import CEILINGS, MOST_PAIRS
from licet.core.decision.obstacles import address_grounds
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Ground
from licet.core.decision.validate import argument_grounds, unmet_needs
from licet.core.origin import Origin, Problem
from licet.core.policy.addresses import address_kind, beyond, common_ranges, private_lists, refused_addresses
from licet.core.policy.layer import Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Approvals

MOST_PARTS = 150_000  # of paths and names in all rules: each part is compared with other rules
LOOPBACK = ("127.0.0.0/8", "::1/128")
# Names that the public DNS has no addresses for: RFC 6761 (localhost), RFC 6762 (local, and the private names of its
# appendix G), RFC 8375 (home.arpa), and `internal`, which ICANN keeps for private use. Names without a dot are too.
_INNER = (".localhost", ".local", ".internal", ".intranet", ".private", ".corp", ".home", ".lan", ".home.arpa")


def foreseen(decision: Decision, manifest: Manifest) -> Decision:
    """The decision as a gate would come to it: a misfit is refused whole, an address never dialled too."""
    if (locked := manifest.lock_problem) is not None:
        ground = Ground("MANIFEST_CHANGED", f"found {locked.found}", locked.origin, locked.hint)
        return Deny(decision.request, (ground,))
    reach = reach_of(manifest, decision.request.tool)
    if reach is None:
        return decision
    use = decision.use if isinstance(decision, Deny) else next(iter(decision.request.uses), None)
    known = decision.rules if isinstance(decision, Deny) else ()
    closed = _never_dialled(use, reach) if use else ()
    if closed and isinstance(decision, Deny):
        return Deny(decision.request, (*closed, *(replace(ground, fix="") for ground in known)), use)
    unmet = unfit_grounds(reach)
    steps = {step for ground in known for step in _steps(ground.fix)}
    more = tuple(ground for ground in unmet if not (known and _steps(ground.fix) <= steps))
    if not known and use and use.domain == "network" and not closed and is_address(use.target):
        closed = address_grounds(use, (_bare(use.target),), reach)
    elif not known and use and use.domain == "network" and _inner(use.target):
        closed = tuple(_shut_grounds(host_text(use.target), reach))
    return Deny(decision.request, (*closed, *known, *more), use) if closed or more else decision


def unfit_grounds(reach: Reach) -> tuple[Ground, ...]:
    """Why a gate denies every call of a tool that `decide` would let through: it does not fit its manifest."""
    return () if reach.manifest.narrow else (*unmet_needs(reach), *argument_grounds(reach))


def _shut_grounds(name: str, reach: Reach) -> Iterator[Ground]:
    """Why no call can connect to a name without a public address: the lists of `private` leave no address for it."""
    if not _closed(name, reach):
        return
    alone = len(reach.manifest.private) < 2
    for one in private_lists(reach.manifest, reach.bundles):
        missing = [text for text in _wanted(name) if beyond((text,), one.ranges)]
        where = f" in {one.key.removesuffix('.private')}" if one.key.startswith("bundles.") else ""
        why = f"`private` is empty{where}" if not one.ranges else f"`{one.key}` has no address that every list has"
        listed = ", ".join(f'"{text}"' for text in (*one.ranges, *missing))
        fix = f"set `{one.key}: [{listed}]` in {one.origin.file}"
        if not (one.ranges or where) and alone:
            fix = _opening(name)
        if missing:
            yield Ground("ADDRESS_NOT_ALLOWED", f"`{name}` has no public address, and {why}", one.origin, fix)


def _closed(name: str, reach: Reach) -> bool:
    """Whether no address that a name without public ones may have is in every list of a tool."""
    lists = private_of(reach.manifest, reach.bundles) or ((),)
    return not common_ranges((*lists, LOOPBACK) if on_this_machine(name) else lists)


def unreachable(rule: Capability, reach: Reach) -> bool:
    """Whether no call of a tool can connect to the host of a rule that it holds."""
    if rule.domain != "network" or not (is_address(rule.key) or _inner(rule.key)):
        return False
    if not is_address(rule.key):
        return _closed(host_text(rule.key), reach)
    ceilings = [layer.allows for layer in reach.layers if layer.kind in CEILINGS]
    bundles = [(one.private, one.admission.layer.allows if one.admission.layer else ()) for one in reach.bundles]
    lists = [(reach.manifest.private, all(_writes(rule, allows) for allows in ceilings))]
    lists += [((private,), _writes(rule, allows)) for private, allows in bundles if private is not None]
    return any(refused_addresses((_bare(rule.key),), private, written) for private, written in lists)


def _writes(rule: Capability, allows: Iterable[Rule]) -> bool:
    """Whether some of the rules name exactly the address of a rule."""
    return any(one.capability.key == rule.key and one.capability.meet(rule) for one in allows)


def closed_address_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each host that tools hold and none of them can reach, since bundles leave no address for it."""
    reached: set[str] = set()
    closed: dict[str, Reach] = {}
    seen: set[object] = set()
    for reach in filter(None, (reach_of(manifest, name) for name in manifest.admissions)):
        key = id(reach.grant), id(reach.layers), tuple(bundle.name for bundle in reach.bundles)
        if key in seen:
            continue
        seen.add(key)
        for rule in reach.grant.allow:
            if not unreachable(rule, reach):
                reached.add(rule.key)
            elif not never_dialled(rule):
                closed.setdefault(rule.key, reach)
    for host, reach in closed.items():
        name, lists = host_text(host), list(private_lists(manifest, reach.bundles))
        wanted = (str(ip_network(_bare(host))),) if is_address(host) else _wanted(name)
        lacking = [one for one in reversed(lists) if not common_ranges((one.ranges, wanted))]
        one = (lacking or lists[-1:])[0]
        if host in reached or not (one.ranges or one.key.startswith("bundles.")):
            continue  # where the manifest lists nothing at all, the rule for the host has a warning
        listed = ", ".join(f'"{text}"' for text in wanted)
        found = f"`{one.key}` without the addresses of `{name}`, which a rule allows"
        hint = f"no call connects to it: add {listed}, or remove the rule"
        yield Problem(one.origin, found, "an address that every list of `private` has", hint, "warning")


def address_problems(manifest: Manifest, unassigned: Iterable[Layer] = ()) -> Iterator[Problem]:
    """A warning for each rule that looks as if it opened something and does not, because of where it leads.

    `unassigned` are the lists of bundles that this agent does not have: a reader of the workspace sees them too.
    """
    assigned = [admission.layer for held in manifest.admissions.values() for admission in held if admission.layer]
    layers = list({id(layer): layer for layer in (*manifest.layers, *assigned, *unassigned)}.values())
    rules = [(layer, rule) for layer in layers for rule in layer.allows if rule.capability.domain == "network"]
    yield from (_metadata(rule) for _, rule in rules if never_dialled(rule.capability))
    if not _shut(manifest):
        return
    inner = [(layer, rule) for layer, rule in rules if _inner(rule.capability.key)]
    told = {rule.capability.key for layer, rule in inner if layer.kind in CEILINGS}
    for layer, rule in inner:
        if layer.kind in CEILINGS:
            yield _unopened(rule)
        elif told.isdisjoint(host_ancestors(rule.capability.key)):  # else the warning about the ceiling says it
            yield _unopened(rule, " in the manifest")


def pair_problems(manifest: Manifest) -> Iterator[Problem]:
    """An error if the grants of a manifest's tools would take too much memory, all together."""
    declared = [manifest.tools[name] for name in manifest.admissions if name in manifest.tools]
    bundles = [admission.layer for held in manifest.admissions.values() for admission in held if admission.layer]
    layers = [*manifest.layers, *{id(layer): layer for layer in bundles}.values()]
    rules = [rule.capability for layer in layers for rule in (*layer.allows, *layer.denies)]
    lines = sum(map(len, manifest.connectors.profiles))
    needs = [need for spec in declared for need in spec.touches]
    by_hand = [layer for layer in layers if layer.kind != "policy files"]
    written = [rule.capability for layer in by_hand for rule in (*layer.allows, *layer.denies)]
    parts = sum(rule.key.count("." if rule.domain == "network" else "/") for rule in (*written, *needs))
    if parts > MOST_PARTS:
        found, expected = f"{parts} parts in the paths and names of all rules", f"at most {MOST_PARTS}"
        yield Problem(manifest.origin, found, expected, "write the directories above them, or split the agent")
        return
    ports = sum(rule.port is not None for rule in (*rules, *needs))
    if (len(declared) + ports + 1) * (len(rules) + len(needs) + lines) <= MOST_PAIRS:
        return  # most manifests: whatever meets what, it is not too much
    try:
        for spec in (manifest.ceiling and declared) or ():
            reach_of(manifest, spec.name)
    except TooManyPairs:
        kinds = len({(spec.touches, spec.connector, manifest.admissions[spec.name][0].bundle) for spec in declared})
        denies = sum(len(layer.denies) for layer in layers)
        found = f"{kinds} tools with different needs under {len(rules) - denies} rules and {denies} denies"
        expected = f"at most {MOST_PAIRS} pairs of a tool and a rule or deny that it holds"
        hint = "write equal needs where tools do the same, deny whole directories and domains, or split the agent"
        yield Problem(
            manifest.places.get("deny") or manifest.places.get("tools", manifest.origin), found, expected, hint
        )


def quorum_problems(manifest: Manifest) -> Iterator[Problem]:
    """What is wrong with a quorum that nobody can meet; told of the whole policy, since keys may be another file's."""
    yield from _quorum_problems(manifest.approvals, lambda key: manifest.places.get(key, manifest.origin))
    names = sorted({admission.bundle for admissions in manifest.admissions.values() for admission in admissions})
    for bundle in (manifest.bundles[name] for name in names if name in manifest.bundles):
        approvals = approvals_of(manifest, (bundle,))
        if (approvals.quorum, approvals.keys) == (manifest.approvals.quorum, manifest.approvals.keys):
            continue
        yield from _quorum_problems(approvals, bundle.place)
        if bundle.approvals.get("keys") and not approvals.keys:
            found, expected = "keys of which the manifest lists none", "a key that is in both lists"
            yield Problem(bundle.place("approvals.keys"), found, expected, "nobody can approve as it stands", "warning")


def _quorum_problems(approvals: Approvals, place: Callable[[str], Origin]) -> Iterator[Problem]:
    quorum, keys = approvals.quorum, approvals.keys
    if keys is None and quorum > 1:
        origin = place("approvals.quorum")
        found, expected = f"a quorum of {quorum} without `keys`", "keys that tell those who approve apart"
        hint = "as it stands nobody can approve anything: list their public keys under `approvals.keys`"
        yield Problem(origin, found, expected, hint, "warning")
    distinct = len({key_bytes(key) for key in keys or ()} - {None})
    if keys and quorum > distinct:  # an empty list says on purpose that nobody approves
        origin = place("approvals.keys")
        yield Problem(origin, f"a quorum of {quorum}", f"at most {distinct}, the number of keys")


def unpinned_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each line that lets the file approve writes, where nothing pins the file."""
    if manifest.pinned or manifest.lock_problem is not None:
        return
    stated = {
        admission.approval_origin
        for held in manifest.admissions.values()
        for admission in held
        if admission.approval == "manifest"
    }
    if manifest.approvals.write == "manifest" and "approvals.write" in manifest.places:
        stated.add(manifest.places["approvals.write"])
    # One for each line: the value of a key and the key itself are two places.
    for origin in {(one.file, one.line): one for one in sorted(filter(None, stated))}.values():
        found, expected = "`manifest` as approval, and no pin", "a pin; without one it means `session`"
        yield Problem(origin, found, expected, f"{pin(manifest)}, or say `session`", "warning")


def on_this_machine(host: str) -> bool:
    """Whether a name leads to the loopback addresses of whoever looks it up."""
    return host.rpartition(".")[2] == "localhost"


def never_dialled(about: Capability | Use) -> bool:
    """Whether a rule or a use is about an address that no manifest opens."""
    host = about.key if isinstance(about, Capability) else about.target
    return about.domain == "network" and is_address(host) and address_kind(_bare(host)).metadata


def _never_dialled(use: Use, reach: Reach) -> tuple[Ground, ...]:
    return address_grounds(use, (_bare(use.target),), reach) if never_dialled(use) else ()


def _bare(host: str) -> str:
    return host.strip("[]")


def _inner(host: str) -> bool:
    """Whether a host, or every name below it, has no public address."""
    if host == TOP or is_address(host):
        return False
    return "." not in host or f".{host}".endswith(_INNER)


def _shut(manifest: Manifest) -> bool:
    """Whether some ceiling opens no address at all beside the public ones."""
    return not manifest.private or not all(manifest.private)


def _opening(name: str, where: str = "") -> str:
    ranges = "" if on_this_machine(name) else ", or the ranges that your network has"
    return f"add `private: [{_ranges(name)}]` beside `destinations`{where}{ranges}"


def _ranges(name: str) -> str:
    return ", ".join(f'"{text}"' for text in _wanted(name))


def _wanted(name: str) -> tuple[str, ...]:
    return LOOPBACK if on_this_machine(name) else ("10.0.0.0/8",)


def _steps(fix: str) -> set[str]:
    return {step.partition(" (")[0] for step in fix.split("; ") if step}


def _metadata(rule: Rule) -> Problem:
    host = rule.capability.key
    found, expected = f"`{host}`, {address_kind(_bare(host)).title}", "a host that can be reached"
    return Problem(rule.origin, found, expected, "no call connects there, whatever is allowed: remove it", "warning")


def _unopened(rule: Rule, where: str = "") -> Problem:
    name = host_text(rule.capability.key)
    found, expected = f"`{name}`, which has no public address", "its addresses under `private`"
    return Problem(rule.origin, found, expected, _opening(name, where), "warning")
