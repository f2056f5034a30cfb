"""Refusals and problems that can be predicted from files: a tool that does not fit, an address that is never dialled.

`decide` assumes that a gate has registered the tool, and knows no addresses. A review has only files, so it checks here
what the gate and the handles would refuse later.

What the process of an MCP server holds under a manifest: `servers.NAME.grants`, as far as the ceiling allows it.
"""

from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_network

from msgspec import UNSET
from msgspec.structs import replace

from licet.core.algebra.rules import Capability, Use, use_of_url
from licet.core.algebra.scope import TOP, host_ancestors, host_text, is_address
from licet.core.algebra.set import CapabilitySet, TooManyPairs
from licet.core.decision.decide import decide
from licet.core.decision.decision import Decision, Deny, address_grounds
from licet.core.decision.fixes import pin, stand
from licet.core.decision.folding import CEILINGS
from licet.core.decision.placing import tunnel_grounds
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import REASON_OF_DOMAIN, Ground, Request
from licet.core.decision.validate import argument_grounds, misfit_grounds, unmet_needs
from licet.core.limits import MOST_PAIRS, MOST_PARTS
from licet.core.policy.addresses import address_kind, beyond, common_ranges, refused_addresses
from licet.core.policy.layer import ELEVATED, EffectClass, Layer, Rule, permits
from licet.core.policy.manifest import COMMANDS, Manifest, admit_commands
from licet.core.policy.servers import (
    PROMPTS,
    RESOURCES,
    SERVER_PROCESS,
    Server,
    ServerToolEntry,
    servers_of,
    tool_parts,
)
from licet.core.policy.terms import Approvals, approvals_of, least_limits, private_lists, private_of
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem, key_bytes

_PER_SESSION = ("max_calls_per_session", "max_cost_usd")
_CHANGES = CapabilitySet(("fs:write:*", "fs:delete:*"))
LOOPBACK = ("127.0.0.0/8", "::1/128")
# Names that have no address in the public DNS: RFC 6761 (localhost), RFC 6762 (local, and the private names of its
# appendix G), RFC 8375 (home.arpa), and `internal`, which ICANN reserves for private use. Names without a dot have none
# either.
_NOT_PUBLIC = (".localhost", ".local", ".internal", ".intranet", ".private", ".corp", ".home", ".lan", ".home.arpa")


def foreseen(decision: Decision, manifest: Manifest) -> Decision:
    """The decision that a gate would make: it also refuses every call of a misfit, and addresses that are closed."""
    if (locked := manifest.lock_problem) is not None:
        ground = Ground("MANIFEST_CHANGED", f"found {locked.found}", locked.origin, locked.hint)
        return Deny(decision.request, (ground,))
    reach = reach_of(manifest, decision.request.tool)
    if reach is None:
        return decision
    use = decision.use if isinstance(decision, Deny) else next(iter(decision.request.uses), None)
    known = decision.rules if isinstance(decision, Deny) else ()
    if use and reach.spec.name == COMMANDS and (looked_into := tuple(tunnel_grounds(use, reach))):
        if not known:
            return Deny(decision.request, looked_into, use)
        # The missing rule is still what an upgrade needs.
        known = (*known, *(replace(ground, fix="") for ground in looked_into))
        decision = Deny(decision.request, known, use)
    closed = _never_dialled(use, reach) if use else ()
    if closed and isinstance(decision, Deny):
        return Deny(decision.request, (*closed, *(replace(ground, fix="") for ground in known)), use)
    unmet = unfit_grounds(reach)
    steps = {step for ground in known for step in _steps(ground.fix)}
    more = tuple(ground for ground in unmet if not (known and _steps(ground.fix) <= steps))
    if use and use.domain == "network" and not closed and is_address(use.target):
        if not known or not _will_be_named(use, reach):
            closed = address_grounds(use, (_without_brackets(use.target),), reach)
    elif use and use.domain == "network" and has_no_public_address(use.target):
        closed = tuple(_unlisted_grounds(host_text(use.target), reach))
    return Deny(decision.request, (*known, *closed, *more), use) if closed or more else decision


def _will_be_named(use: Use, reach: Reach) -> bool:
    """Whether every list names an address exactly once the missing rules are added, which opens it."""

    def names(rules: Iterable[Capability]) -> bool:
        return any(rule.key == use.target and rule.covers_use(use) for rule in rules)

    ceilings = [layer for layer in reach.layers if layer.kind in CEILINGS]
    listing = [one.admission.layer for one in reach.bundles if one.private is not None]
    added = names(reach.wanted(use))
    return None not in listing and all(
        names(rule.capability for rule in layer.allows) or (added and not layer.without_denies.has(use))
        for layer in (*ceilings, *filter(None, listing))
    )


def unfit_grounds(reach: Reach) -> tuple[Ground, ...]:
    """Why a gate would refuse every call of a tool: unmet needs, and rules about arguments that it does not have."""
    return () if reach.manifest.narrow else (*unmet_needs(reach), *argument_grounds(reach))


def _unlisted_grounds(name: str, reach: Reach) -> Iterator[Ground]:
    """Why no call can connect to a name without a public address: no private address is in every `private` list."""
    if not _closed(name, reach):
        return
    for one in private_lists(reach.manifest, reach.bundles):
        missing = [text for text in _suggested_ranges(name) if beyond((text,), one.ranges)]
        where = f" in {one.key.removesuffix('.private')}" if one.key.startswith("bundles.") else ""
        why = f"`private` is empty{where}" if not one.ranges else f"`{one.key}` has no address that every list has"
        listed = ", ".join(f'"{text}"' for text in (*one.ranges, *missing))
        fix = f"set `{one.key}: [{listed}]` in {one.origin.file}"
        if missing:
            yield Ground("ADDRESS_NOT_ALLOWED", f"`{name}` has no public address, and {why}", one.origin, fix)


def _closed(name: str, reach: Reach) -> bool:
    """Whether a name without a public address cannot be reached: no address for it is in every list of the tool."""
    lists = private_of(reach.manifest, reach.bundles) or ((),)
    return not common_ranges((*lists, LOOPBACK) if on_this_machine(name) else lists)


def unreachable(rule: Capability, reach: Reach) -> bool:
    """Whether a tool can never connect to the host of a rule in its grant, because policy allows no address of it."""
    if rule.domain != "network" or not (is_address(rule.key) or has_no_public_address(rule.key)):
        return False
    if not is_address(rule.key):
        return _closed(host_text(rule.key), reach)
    ceilings = [layer.allows for layer in reach.layers if layer.kind in CEILINGS]
    bundles = [(one.private, one.admission.layer.allows if one.admission.layer else ()) for one in reach.bundles]
    lists = [(reach.manifest.private, all(_names_address(rule, allows) for allows in ceilings))]
    lists += [((private,), _names_address(rule, allows)) for private, allows in bundles if private is not None]
    return any(refused_addresses((_without_brackets(rule.key),), private, written) for private, written in lists)


def _names_address(rule: Capability, allows: Iterable[Rule]) -> bool:
    """Whether one of the rules in `allows` names exactly the address of a rule."""
    return any(one.capability.key == rule.key and one.capability.meet(rule) for one in allows)


def closed_address_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about each host in a grant that no tool can reach, because the `private` lists have no common address."""
    reached: set[str] = set()
    closed: dict[str, Reach] = {}
    seen: set[object] = set()
    for reach in filter(None, (reach_of(manifest, name) for name in manifest.admissions)):
        key = reach.grant, reach.layers, tuple(bundle.name for bundle in reach.bundles)
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
        wanted = (str(ip_network(_without_brackets(host))),) if is_address(host) else _suggested_ranges(name)
        lacking = [one for one in reversed(lists) if not common_ranges((one.ranges, wanted))]
        one = (lacking or lists[-1:])[0]
        if host in reached or not (one.ranges or one.key.startswith("bundles.")):
            continue  # if the manifest has no list at all, `address_problems` warns about the rule
        listed = ", ".join(f'"{text}"' for text in wanted)
        found = f"`{one.key}` without the addresses of `{name}`, which a rule allows"
        hint = f"no call connects to it: add {listed}, or remove the rule"
        yield Problem(one.origin, found, "an address that every list of `private` has", hint, "warning")


def address_problems(manifest: Manifest, unassigned: Iterable[Layer] = ()) -> Iterator[Problem]:
    """Warn about each rule for a host that cannot be reached: a metadata service, or a name without public addresses.

    `unassigned` are the layers of bundles that are not assigned to this agent, which are checked too.
    """
    assigned = [admission.layer for held in manifest.admissions.values() for admission in held if admission.layer]
    layers = [*dict.fromkeys((*manifest.layers, *assigned, *unassigned))]
    rules = [(layer, rule) for layer in layers for rule in layer.allows if rule.capability.domain == "network"]
    yield from (_metadata_problem(rule) for _, rule in rules if never_dialled(rule.capability))
    if not _opens_nothing(manifest):
        return
    inner = [(layer, rule) for layer, rule in rules if has_no_public_address(rule.capability.key)]
    reported = {rule.capability.key for layer, rule in inner if layer.kind in CEILINGS}
    for layer, rule in inner:
        if layer.kind in CEILINGS:
            yield _unopened_problem(rule)
        elif reported.isdisjoint(host_ancestors(rule.capability.key)):  # else the warning about the ceiling is enough
            yield _unopened_problem(rule, " in the manifest")


def pair_problems(manifest: Manifest) -> Iterator[Problem]:
    """Report an error if the grants of all tools together would take too much memory."""
    declared = [manifest.tools[name] for name in manifest.admissions if name in manifest.tools]
    bundles = [admission.layer for held in manifest.admissions.values() for admission in held if admission.layer]
    layers = [*manifest.layers, *dict.fromkeys(bundles)]
    rules = [rule.capability for layer in layers for rule in (*layer.allows, *layer.denies)]
    lines = sum(map(len, manifest.connectors.profiles))
    needs = [need for spec in declared for need in spec.touches]
    by_hand = [layer for layer in layers if layer.kind != "protected paths"]
    written = [rule.capability for layer in by_hand for rule in (*layer.allows, *layer.denies)]
    parts = sum(rule.key.count("." if rule.domain == "network" else "/") for rule in (*written, *needs))
    if parts > MOST_PARTS:
        found, expected = f"{parts} parts in the paths and names of all rules", f"at most {MOST_PARTS}"
        yield Problem(manifest.origin, found, expected, "write the directories above them, or split the agent")
        return
    ports = sum(rule.port is not None for rule in (*rules, *needs))
    if (len(declared) + ports + 1) * (len(rules) + len(needs) + lines) <= MOST_PAIRS:
        return  # fast path: an upper bound is below the limit
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
    """Report a quorum that cannot be met. Checked on the complete policy, since the keys may be in another file."""
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
    if keys and quorum > distinct:  # an empty list is allowed: it states that no one can approve
        origin = place("approvals.keys")
        yield Problem(origin, f"a quorum of {quorum}", f"at most {distinct}, the number of keys")


def unpinned_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about each line that approves writes in the file while nothing pins the file."""
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
    # One warning for each line, although the key and its value are two places.
    for origin in {(one.file, one.line): one for one in sorted(filter(None, stated))}.values():
        found, expected = "`manifest` as approval, and no pin", "a pin; without one it means `session`"
        yield Problem(origin, found, expected, f"{pin(manifest)}, or say `session`", "warning")


def standing_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about `approvals.delete: manifest` while no standing approval covers the deletes of this policy here."""
    if manifest.approvals.delete != "manifest" or manifest.standing is not None or manifest.lock_problem is not None:
        return
    why = manifest.standing_problem or "nobody has given a standing approval of them"
    found, expected = f"`manifest` as approval of deletes, and {why}", "a standing approval; without it, `session`"
    hint = f"{stand(manifest)}, or say `session`" if stand(manifest) else "say `session`"
    yield Problem(manifest.places.get("approvals.delete", manifest.origin), found, expected, hint, "warning")


def session_budget_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn if tools of servers are limited per session alone: each connection to a gateway is a new session."""
    names = [name for name in manifest.admissions if tool_parts(name, manifest.servers) is not None]
    admissions = [admission for name in names for admission in manifest.admissions[name]]
    bundles = [manifest.bundles[one.bundle] for one in admissions if one.bundle in manifest.bundles]
    budgets = [manifest.budget, *(bundle.budget for bundle in bundles)]
    if any(one.max_calls_per_day is not None or one.max_cost_usd_per_day is not None for one in budgets):
        return
    places = [
        manifest.places.get(key, manifest.origin) for key in _PER_SESSION if getattr(manifest.budget, key) is not None
    ]
    places += [one.place("budget") for one in bundles if one.budget]
    places += [one.origin for one in admissions if one.max_calls is not None or one.max_cost_usd is not None]
    if names and places:
        expected = "a budget that a new connection does not begin again"
        hint = "a client that connects again opens a new session: add `max_calls_per_day` or `max_cost_usd_per_day`"
        found = "only budgets of a session, and tools of MCP servers"
        yield Problem(places[0], found, expected, hint, "warning")


def server_delete_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about each server whose tools may delete files while its process may not.

    It starts before anybody is asked. So only a standing approval can let it remove and rename files.
    """
    for server in servers_of(manifest.servers).values():
        if server.kind != "isolated" or not server.holds & _CHANGES:
            continue
        names = (name for name in sorted(manifest.admissions) if name.startswith(f"{server.name}."))
        known = [(name, reach) for name in names if (reach := reach_of(manifest, name)) and reach.effect in ELEVATED]
        if known and not any(reach.delete_approval == "manifest" for _, reach in known):
            name, reach = min(known, key=lambda one: one[1].effect != "full")
            stated = f"`approvals.delete: {reach.approvals.delete}`"
            lacks = " without a standing approval" if reach.approvals.delete == "manifest" else ""
            found = f"`{name}`, which is {reach.effect}, and {stated}{lacks}"
            fix = "set `approvals.delete: manifest`, and " if reach.approvals.delete != "manifest" else ""
            fix = f"state class full, since destructive asks at each call; {fix}" if reach.effect != "full" else fix
            hint = (
                f"the process of `{server.name}` removes and renames no files, as git and editors do: a server starts"
            )
            hint = f"{hint} before anybody is asked; to allow it, {fix}{stand(manifest)}"
            origin = manifest.places.get(f"servers.{server.name}", manifest.origin)
            yield Problem(origin, found, "`approvals.delete: manifest` with a standing approval", hint, "warning")


def on_this_machine(host: str) -> bool:
    """Whether a name is `localhost` or below it, and so resolves to loopback addresses."""
    return host.rpartition(".")[2] == "localhost"


def never_dialled(about: Capability | Use) -> bool:
    """Whether a rule or a use is about an address that no manifest can open, such as a metadata service."""
    host = about.key if isinstance(about, Capability) else about.target
    return about.domain == "network" and is_address(host) and address_kind(_without_brackets(host)).metadata


def _never_dialled(use: Use, reach: Reach) -> tuple[Ground, ...]:
    return address_grounds(use, (_without_brackets(use.target),), reach) if never_dialled(use) else ()


def _without_brackets(host: str) -> str:
    return host.strip("[]")


def has_no_public_address(host: str) -> bool:
    """Whether a host key is a name, or a pattern of names, without public addresses."""
    if host == TOP or is_address(host):
        return False
    return "." not in host or f".{host}".endswith(_NOT_PUBLIC)


def _opens_nothing(manifest: Manifest) -> bool:
    """Whether at least one ceiling opens no private address at all."""
    return not manifest.private or not all(manifest.private)


def _private_fix(name: str, where: str = "") -> str:
    ranges = "" if on_this_machine(name) else ", or the ranges that your network has"
    listed = ", ".join(f'"{text}"' for text in _suggested_ranges(name))
    return f"add `private: [{listed}]` next to `destinations`{where}{ranges}"


def _suggested_ranges(name: str) -> tuple[str, ...]:
    return LOOPBACK if on_this_machine(name) else ("10.0.0.0/8",)


def _steps(fix: str) -> set[str]:
    return {step.partition(" (")[0] for step in fix.split("; ") if step}


def _metadata_problem(rule: Rule) -> Problem:
    host = rule.capability.key
    found, expected = f"`{host}`, {address_kind(_without_brackets(host)).title}", "a host that can be reached"
    return Problem(rule.origin, found, expected, "no call connects there, whatever is allowed: remove it", "warning")


def _unopened_problem(rule: Rule, where: str = "") -> Problem:
    name = host_text(rule.capability.key)
    found, expected = f"`{name}`, which has no public address", "its addresses under `private`"
    return Problem(rule.origin, found, expected, _private_fix(name, where), "warning")


_CPU_SECONDS = 10**8  # a server ends with its gateway, not by its processor time


def process_name(server: Server) -> str:
    """The name of a server's process in decisions. No tool can have it, since names have no spaces."""
    return f"{SERVER_PROCESS} {server.name}"


def process_reach(
    manifest: Manifest, server: Server, tools: Iterable[Reach], directories: tuple[str, str] | None = None
) -> Reach:
    """What the process of a server holds: its grants, variables and secrets, as far as the manifest allows them.

    `tools` are those of the server that this agent may call. `directories` are the working and the home directory, if
    they are filled in in the manifest.

    The process only reads if none of the tools writes. It removes and renames files only if a tool does and a standing
    approval covers that: a server starts before anybody is asked.
    """
    tools = tuple(tools)
    writes = any(tool.effect not in (None, "read_only") for tool in tools)
    reach = _process_reach(manifest, server, "write_limited" if writes else "read_only", directories)
    if not any(tool.delete_approval == "manifest" for tool in tools):
        return reach
    # Not its whole grant at this class: DELETE requests ask, and a server can ask nobody.
    deleting = _process_reach(manifest, server, "full", directories)
    if deleting.standing is None:  # the process would delete more than the approval covers
        return reach
    return replace(reach, delete_approval="manifest", free_deletes=deleting.free_deletes)


def _process_reach(
    manifest: Manifest, server: Server, effect: EffectClass, directories: tuple[str, str] | None
) -> Reach:
    name = process_name(server)
    held = server.holds if directories is None else server.holds.expand(*directories)
    origin = manifest.places.get(f"servers.{server.name}", manifest.origin)
    spec = ToolSpec(name, held, effect, "isolated", origin=origin)
    limits = {**least_limits(manifest.limits, server.limits), "cpu_seconds": _CPU_SECONDS}
    admitted = admit_commands(replace(manifest, limits=limits), name).declare([spec])
    reach = reach_of(admitted, name)
    assert reach is not None  # noqa: S101 - it was admitted above
    return reach


def process_misfits(reach: Reach) -> tuple[Ground, ...]:
    """The grants, variables and secrets of a server of which the manifest leaves nothing.

    The process holds the overlap of its grants and the ceiling, so that agents with less can share a server. Only a
    secret that is not allowed keeps it from starting: `is_needed`.
    """
    ceiling = reach.manifest.ceiling
    uncovered = {str(rule): rule for rule in reach.spec.needs.allow if not CapabilitySet((rule,)) & ceiling}
    known = {ground.capability: ground for ground in misfit_grounds(reach)}
    return tuple(known.get(text) or _uncovered(reach, text, rule.domain) for text, rule in uncovered.items())


def is_needed(misfit: Ground, server: Server) -> bool:
    """Whether a server cannot start without what a misfit is about: a secret, or the host of a remote one."""
    return bool(server.url) or misfit.reason == REASON_OF_DOMAIN["secret"]


def _uncovered(reach: Reach, rule: str, domain: str) -> Ground:
    text = f"`{reach.spec.name}` needs {rule}, which the manifest does not allow"
    return Ground(REASON_OF_DOMAIN[domain], text, reach.manifest.origin, "", rule)


def remote_misfits(server: Server, reach: Reach) -> tuple[Ground, ...]:
    """Why a remote server cannot be reached under a manifest: its host, its address or a secret is not allowed."""
    asked = Request(reach.spec.name, (use_of_url("GET", server.url),))
    answer = foreseen(decide(asked, reach.manifest), reach.manifest)
    return process_misfits(reach) or (answer.rules if isinstance(answer, Deny) else ())


def server_grant_problems(manifest: Manifest, workdir: str, home: str) -> Iterator[Problem]:
    """The misfits of each server of which this agent may call a tool, with real directories filled in.

    The host of a remote server is not among them: each of its tools needs it, so it is a misfit of the tools. A grant
    that none of the tools uses is not among them either: another agent shares the server, and its tools use it.
    """
    manifest = manifest.expand(workdir, home)
    servers = servers_of(manifest.servers)
    for server in servers.values():
        parts = (tool_parts(name, servers) for name in manifest.admissions)
        tools = [part[1] for part in parts if part is not None and part[0] == server.name]
        if not tools:
            continue
        granted = CapabilitySet(server.grants).expand(workdir, home)
        used = [_used(manifest, server, tool, granted, workdir, home) for tool in tools]
        unused = {str(rule) for rule in granted.allow if not any(CapabilitySet((rule,)) & one for one in used)}
        reach = process_reach(manifest, server, (), (workdir, home))
        for ground in process_misfits(reach):
            if server.url and ground.reason in ("HOST_NOT_ALLOWED", "ADDRESS_NOT_ALLOWED"):
                continue
            if ground.capability in unused:
                continue
            place = manifest.places.get(f"servers.{server.name}", manifest.origin)
            found = f"that the server `{server.name}` gets less than its grants: {ground.text}"
            expected = f"a server whose grants fit the agent `{manifest.agent}`"
            yield Problem(place, found, expected, ground.fix, "error" if is_needed(ground, server) else "warning")


def _used(
    manifest: Manifest, server: Server, tool: str, granted: CapabilitySet, workdir: str, home: str
) -> CapabilitySet:
    """What one tool of a server can use of its grants: what it says it needs, or else what its class permits."""
    spec = manifest.tools.get(f"{server.name}.{tool}")
    entry = ServerToolEntry(effect="read_only") if tool in (RESOURCES, PROMPTS) else server.entry(tool)
    if entry is None:
        return CapabilitySet()
    effect = entry.effect if spec is None else spec.effect
    needs = granted if entry.needs is UNSET else CapabilitySet((*entry.needs, *entry.optional)).expand(workdir, home)
    return needs if effect is None else needs & permits(effect, CapabilitySet(("network:tcp:*",)))
