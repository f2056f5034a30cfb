"""How `flow:` is read from plain data and written to it, what two policies say together, and what differs.

What two policies state together believes less, and asks more, than each of them: labels are the weaker ones, `own` and
the origins of a role are what both have, and secrets are those of both. A policy with the preset `off` asks about
nothing, so the other one counts alone.

What single tools say (`flow`, `from`, `of`, `always` and `asked_by`) is here, too. All policies that admit a tool must
be met there, so nothing is met.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet, expand_rule
from licet.core.policy.argument_ties import FLOW_WORDS
from licet.core.policy.flow import (
    BY_ANCHOR,
    LABELS,
    OF_ROLE,
    ORIGINS,
    ArgumentFlow,
    Flow,
    FlowOrigin,
    Label,
    Preset,
    ResultLabels,
    Role,
    SecretSource,
    Source,
)
from licet.core.policy.terms import Step

Under = tuple[tuple[str, str], ...]
# Two ways to decide that cannot be compared: by the origins of arguments, or by what was read before a call.
_BY_ORIGIN: tuple[Preset, ...] = ("off", "watch", "guarded", "strict")
_BY_CALL: tuple[Preset, ...] = ("off", "trifecta", "rule_of_two")


# Labels ---------------------------------------------------------------------------------------------------------------


def weaker(one: Label, two: Label) -> Label:
    """The label that believes less. `authored` believes more than `trusted`, since it may be long text.

    `ack` is outside of the order: next to any other label, nothing is believed.

    >>> weaker("identity", "authored"), weaker("ack", "trusted")
    ('identity', 'untrusted')
    """
    if "ack" in (one, two):
        return one if one == two else "untrusted"
    return min(one, two, key=LABELS.index)


def is_raised(before: Label, after: Label) -> bool:
    """Whether a label believes more than before; a change from or to `ack` is neither more nor less."""
    return "ack" not in (before, after) and LABELS.index(after) > LABELS.index(before)


def label_at(labels: ResultLabels, field: str) -> Label:
    """The label of a field: its own, else that of the nearest field around it, else that of the whole result."""
    stated = dict(labels.fields)
    while field:
        if field in stated:
            return stated[field]
        field = field.rpartition("/")[0]
    return labels.label


def _at_or_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above.rstrip('/')}/")


def _lies_within(under: Under, other: Under) -> bool:
    """Whether every call that one condition fits, the other fits too."""
    return all(any(name == mine and _at_or_below(path, above) for mine, path in under) for name, above in other)


def _met_under(one: Under, two: Under) -> Under | None:
    """The condition that fits where both do; None if there is no such call."""
    every = {*one, *two}
    kept = sorted(pair for pair in every if not any(_lies_within((other,), (pair,)) for other in every - {pair}))
    for (name, path), (other, beside) in combinations(kept, 2):
        # Neither is below the other. Below different roots, such as `~` and `/`, both may name the same place.
        if name == other and path.partition("/")[0] == beside.partition("/")[0]:
            return None
    return tuple(kept)


def _labels(under: Under, label: Label, fields: Mapping[str, Label], creates: bool) -> ResultLabels:
    """Labels in normal form: without fields that say what the fields around them say."""
    kept: dict[str, Label] = {}
    for name in sorted(fields):
        around = ResultLabels(label=label, fields=tuple(kept.items()))
        if label_at(around, name) != fields[name]:
            kept[name] = fields[name]
    return ResultLabels(under=under, label=label, fields=tuple(kept.items()), creates=creates)


def _in_order(entries: Iterable[ResultLabels]) -> tuple[ResultLabels, ...]:
    """Labels of a tool without those that never count. Folders in one argument are sorted, the deepest first."""
    reached: list[ResultLabels] = []
    for entry in entries:
        if not any(_lies_within(entry.under, earlier.under) for earlier in reached):
            reached.append(entry)
    conditions = [pair for entry in reached for pair in entry.under]
    if len({name for name, _ in conditions}) <= 1 and all(len(entry.under) <= 1 for entry in reached):
        reached.sort(key=lambda entry: [(-len(path), path) for _, path in entry.under] or [(1, "")])
    kept: list[ResultLabels] = []
    for entry in reversed(reached):
        if entry != ResultLabels(under=entry.under) or any(
            _met_under(entry.under, one.under) is not None for one in kept
        ):
            kept.insert(0, entry)
    return tuple(kept)


def _met_labels(one: ResultLabels, two: ResultLabels, under: Under) -> ResultLabels:
    names = {name for name, _ in (*one.fields, *two.fields)}
    fields = {name: weaker(label_at(one, name), label_at(two, name)) for name in names}
    return _labels(under, weaker(one.label, two.label), fields, one.creates and two.creates)


Results = Mapping[str, tuple[ResultLabels, ...]]


def _met_results(one: Results, two: Results) -> dict[str, tuple[ResultLabels, ...]]:
    """The weaker label of each field. A tool that only one of the two labels is untrusted."""
    met = {}
    for tool in one.keys() | two.keys():
        both = ((mine, theirs) for mine in one.get(tool, ()) for theirs in two.get(tool, ()))
        pairs = ((mine, theirs, _met_under(mine.under, theirs.under)) for mine, theirs in both)
        met[tool] = _in_order(_met_labels(mine, theirs, under) for mine, theirs, under in pairs if under is not None)
    return met


def _that_count(results: Results, sources: tuple[Source, ...]) -> dict[str, tuple[ResultLabels, ...]]:
    """Labels of tools in normal form. A tool without entries is untrusted, whatever it reads.

    Without a source that is believed, that is true of every tool, and needs no saying.
    """
    believed = any(one.label != "untrusted" for one in sources)
    return {tool: results[tool] for tool in sorted(results) if results[tool] or believed}


# Sources, secrets, domains, roles -------------------------------------------------------------------------------------


def _by_label(sources: Iterable[Source]) -> dict[Label, CapabilitySet]:
    uses: dict[Label, list[str]] = {}
    for one in sources:
        uses.setdefault(one.label, []).append(one.use)
    return {label: CapabilitySet(uses[label]) for label in LABELS if label in uses}


def _sources(stated: Iterable[tuple[Label, CapabilitySet]]) -> tuple[Source, ...]:
    """Sources in normal form, without those that a weaker one covers."""
    rules: dict[Label, CapabilitySet] = {}
    for label, uses in stated:
        rules[label] = rules.get(label, CapabilitySet()) | uses
    kept: list[Source] = []
    weaker_ones = CapabilitySet()
    for label in (label for label in LABELS if label in rules):
        kept += (Source(use=str(use), label=label) for use in rules[label].allow if use not in weaker_ones)
        weaker_ones = weaker_ones | rules[label]
    return tuple(sorted(kept, key=lambda one: one.use))


def _met_sources(one: tuple[Source, ...], two: tuple[Source, ...]) -> tuple[Source, ...]:
    """The weaker label of each rule; what only one of the two covers is untrusted, as without any source."""
    mine, theirs = _by_label(one), _by_label(two)
    met = [(weaker(a, b), mine[a] & theirs[b]) for a in mine for b in theirs]
    return _sources((*met, *_perhaps_inside(one, two), *_perhaps_inside(two, one)))


def _perhaps_inside(one: tuple[Source, ...], two: tuple[Source, ...]) -> Iterator[tuple[Label, CapabilitySet]]:
    """The sources of one policy alone, if it is not known whether they lie inside others: below `~`, next to `/srv`.

    They are untrusted, as what one policy does not cover. Without them, a weaker label inside the others would be lost.
    """
    covered, every = CapabilitySet(source.use for source in two), (*one, *two)
    roots = {Capability(source.use).key.partition("/")[0] for source in every if source.use.startswith("fs:")}
    for source in one if len(roots) > 1 else ():
        if source.use.startswith("fs:") and not (rule := CapabilitySet((source.use,))) <= covered:
            yield "untrusted", rule


SecretKey = tuple[str, str, str]  # the tool and its field, or the rule


def _by_field(secrets: Iterable[SecretSource]) -> dict[SecretKey, CapabilitySet]:
    """The readers of each secret: of a field that is listed twice, those that are in both lists."""
    found: dict[SecretKey, CapabilitySet] = {}
    for secret in secrets:
        readers = CapabilitySet(secret.readers)
        for field in secret.fields or ("",):
            key = secret.tool, field, secret.use
            found[key] = found[key] & readers if key in found else readers
    return found


def _secrets(secrets: Iterable[SecretSource]) -> tuple[SecretSource, ...]:
    """Secrets in normal form: the fields of a tool that have the same readers are one."""
    together: dict[tuple[str, str, bool, tuple[str, ...]], list[str]] = {}
    for (tool, field, use), readers in sorted(_by_field(secrets).items(), key=lambda item: item[0]):
        # Every leaf of a tool is another secret than some of its fields.
        together.setdefault((tool, use, not field, tuple(map(str, readers.allow))), []).append(field)
    return tuple(
        SecretSource(tool=tool, fields=() if whole else tuple(fields), use=use, readers=readers)
        for (tool, use, whole, readers), fields in together.items()
    )


def _met_own(one: Iterable[str], two: Iterable[str]) -> tuple[str, ...]:
    """The domains that lie in a domain of both."""
    return _domains(a if _is_below(a, b) else b for a in one for b in two if _is_below(a, b) or _is_below(b, a))


def _is_below(domain: str, above: str) -> bool:
    return domain == above or domain.endswith(f".{above}")


def _domains(stated: Iterable[str]) -> tuple[str, ...]:
    """Domains in normal form, without those below another."""
    every = {*stated}
    return tuple(sorted(one for one in every if not any(one != other and _is_below(one, other) for other in every)))


def origins_of_role(flow: Flow, role: Role | None) -> tuple[FlowOrigin, ...]:
    """The origins that a policy takes for a role, without what an anchor adds and `strict` drops; none without one."""
    return () if role is None else flow.roles.get(role, OF_ROLE.get(role, ()))


def _met_roles(one: Flow, two: Flow) -> dict[Role, tuple[FlowOrigin, ...]]:
    met = {}
    for role in OF_ROLE:
        both = {*origins_of_role(one, role)} & {*origins_of_role(two, role)}
        if both != {*OF_ROLE[role]}:
            met[role] = tuple(origin for origin in ORIGINS if origin in both)
    return met


# Two policies ---------------------------------------------------------------------------------------------------------


def _strictest(flows: Iterable[Flow], among: tuple[Preset, ...]) -> Preset:
    return max((one for flow in flows for one in flow.presets if one in among), key=among.index, default="off")


def _met_presets(*flows: Flow) -> tuple[Preset, tuple[Preset, ...]]:
    """The strictest preset of each way to decide: one that decides by origin does not replace one that does by call."""
    by_origin, by_call = (_strictest(flows, among) for among in (_BY_ORIGIN, _BY_CALL))
    if by_call == "off" or by_origin in ("off", "watch"):  # `watch` lets everything pass, so anything else is stricter
        return (by_call if by_call != "off" else by_origin), ()
    return by_origin, (by_call,)


def met_flow(one: Flow, two: Flow) -> Flow:
    """What two policies say about flow together. One that is `off` says nothing."""
    if bool(one) != bool(two):
        return one or two
    preset, also = _met_presets(one, two)
    sources, secrets = _met_sources(one.sources, two.sources), _secrets((*one.secrets, *two.secrets))
    guessing = any("trifecta" in flow.presets and flow.guesses_secrets for flow in (one, two))
    return Flow(
        preset=preset,
        also=also,
        otherwise="deny" if "deny" in (one.otherwise, two.otherwise) else "ask",
        own=_met_own(one.own, two.own),
        results=_that_count(_met_results(one.results, two.results), sources),
        sources=sources,
        secrets=secrets,
        also_guessed=bool(secrets) and guessing and "trifecta" in (preset, *also),
        roles=_met_roles(one, two),
        task_through_client=one.task_through_client and two.task_through_client,
        prompt_is_task=one.prompt_is_task and two.prompt_is_task,
    )


def narrowed_flow(flow: Flow, above: Mapping[str, Any]) -> Flow:
    """What a policy says under an organisation. A key, or a tool, that `above` leaves out does not narrow."""
    said, fields = flow_of(above), {key: _FIELD.get(key, key) for key in above}
    stated = {field: getattr(said, field) for field in fields.values() if field != "preset" or said}
    if "results" in stated:
        # A tool that it calls untrusted has no labels left, and must not keep those of the policy.
        stated["results"] = {**flow.results, **{tool: said.results.get(tool, ()) for tool in above["results"]}}
    return met_flow(flow, replace(flow, **({"also": ()} if "preset" in stated else {}), **stated)) if stated else flow


# Plain data -----------------------------------------------------------------------------------------------------------

_FIELD = {"task": "prompt_is_task"}  # keys that are not called as their fields


def flow_of(data: Mapping[str, Any]) -> Flow:
    """The value of a checked `flow:` in normal form."""
    stated = {tool: _in_order(map(_entry_of, _entries(labels))) for tool, labels in data.get("results", {}).items()}
    roles = {role: tuple(one for one in ORIGINS if one in origins) for role, origins in data.get("roles", {}).items()}
    roles = {role: roles[role] for role in OF_ROLE if roles.get(role, OF_ROLE[role]) != OF_ROLE[role]}
    sources = _sources((one["label"], CapabilitySet((one["use"],))) for one in _whole(data, "sources", "use", "label"))
    return Flow(
        preset=data.get("preset", "off"),
        also=tuple(data.get("also", ())),
        otherwise=data.get("otherwise", "ask"),
        own=_domains(data.get("own", ())),
        results=_that_count(stated, sources),
        sources=sources,
        secrets=_secrets(map(_secret_of, _whole(data, "secrets", "from"))),
        also_guessed=data.get("also_guessed", False),
        roles=roles,
        task_through_client=data.get("task_through_client", False),
        prompt_is_task=data.get("task") == "prompt",
    )


def _whole(data: Mapping[str, Any], key: str, *needed: str) -> Iterator[Mapping[str, Any]]:
    """The entries of a list that have all they need. One that has not was reported, and its policy is dropped."""
    return (one for one in data.get(key, ()) if one.keys() >= {*needed})


def _entries(labels: Any) -> Iterable[Any]:
    return labels if isinstance(labels, list | tuple) else (labels,)


def _entry_of(stated: Any) -> ResultLabels:
    """Labels as a word, as a mapping of fields, or with all keys."""
    if isinstance(stated, str):
        return ResultLabels(label=cast(Label, stated))
    if not stated.keys() <= {*LABEL_KEYS}:
        return _labels((), "untrusted", stated, False)
    under = [(name, path) for name, at in stated.get("under", {}).items() for path in _entries(at)]
    label, fields = stated.get("label", "untrusted"), stated.get("fields", {})
    return _labels(tuple(sorted(under)), label, fields, stated.get("creates", False))


LABEL_KEYS = ("under", "label", "fields", "creates")


def _secret_of(stated: Mapping[str, Any]) -> SecretSource:
    source, readers = stated["from"], tuple(stated.get("readers", ()))
    if isinstance(source, str):
        return SecretSource(use=source, readers=readers)
    return SecretSource(tool=source.get("tool", ""), fields=tuple(source.get("fields", ())), readers=readers)


def flow_document(flow: Flow) -> dict[str, Any]:
    """The value as plain data, from which `flow_of` makes it again: what says nothing is left out."""
    stated: dict[str, Any] = {
        "preset": flow.preset if flow else None,
        "also": list(flow.also),
        "otherwise": None if flow.otherwise == "ask" else flow.otherwise,
        "own": list(flow.own),
        "results": {tool: [_entry_document(one) for one in entries] for tool, entries in flow.results.items()},
        "sources": [{"use": one.use, "label": one.label} for one in flow.sources],
        "secrets": list(map(_secret_document, flow.secrets)),
        "also_guessed": flow.also_guessed,
        "roles": {role: list(origins) for role, origins in flow.roles.items()},
        "task_through_client": flow.task_through_client,
        "task": "prompt" if flow.prompt_is_task else None,
    }
    return {key: value for key, value in stated.items() if value}


def stated_flow_document(stated: Mapping[str, Any]) -> dict[str, Any]:
    """What an organisation says as plain data in normal form, with each key and tool that it has.

    An empty `own` narrows, and one that is left out does not.
    """
    document: dict[str, Any] = dict.fromkeys(stated) | flow_document(flow_of(stated))
    labels = document.get("results") or {}
    return document | (
        {"results": {tool: labels.get(tool, []) for tool in stated["results"]}} if "results" in stated else {}
    )


def _entry_document(entry: ResultLabels) -> dict[str, Any]:
    under: dict[str, list[str]] = {}
    for name, path in entry.under:
        under.setdefault(name, []).append(path)
    paths = {name: at[0] if len(at) == 1 else at for name, at in under.items()}
    stated = {"under": paths, "label": entry.label, "fields": dict(entry.fields), "creates": entry.creates}
    return {key: value for key, value in stated.items() if value}


def _secret_document(secret: SecretSource) -> dict[str, Any]:
    of_tool = {"tool": secret.tool, **({"fields": list(secret.fields)} if secret.fields else {})}
    return {"from": of_tool if secret.tool else secret.use, "readers": list(secret.readers)}


def expanded_flow(flow: Flow, workdir: str, home: str) -> Flow:
    """The value with real directories in place of `${workdir}` and `~`. `Malformed` without a home."""

    def rule(text: str) -> str:
        return str(expand_rule(Capability(text), workdir, home))

    def below(entry: ResultLabels) -> ResultLabels:
        paths = (
            (name, expand_rule(Capability(f"fs:read:{path or '/'}"), workdir, home).key) for name, path in entry.under
        )
        return replace(entry, under=tuple(sorted(paths)))

    sources = _sources((one.label, CapabilitySet((rule(one.use),))) for one in flow.sources)
    results = {tool: _in_order(map(below, entries)) for tool, entries in flow.results.items()}
    return replace(
        flow,
        results=_that_count(results, sources),
        sources=sources,
        secrets=_secrets(
            replace(one, use=rule(one.use) if one.use else "", readers=tuple(map(rule, one.readers)))
            for one in flow.secrets
        ),
    )


def flow_paths(flow: Flow) -> Iterator[str]:
    """The paths that a value names, for the roots that they begin with."""
    yield from (path for entries in flow.results.values() for entry in entries for _, path in entry.under)
    rules = [one.use for one in flow.sources]
    rules += [rule for one in flow.secrets for rule in (one.use, *one.readers) if rule]
    yield from (rule.key for rule in map(Capability, rules) if rule.domain == "fs")


# Differences ----------------------------------------------------------------------------------------------------------


def flow_steps(was: Flow, now: Flow) -> Iterator[Step]:
    """The parts that have an order. Where one of the two is off, that alone is the difference."""
    before, after = ([_strictest((flow,), among) for among in (_BY_ORIGIN, _BY_CALL)] for flow in (was, now))
    if before[1] != "off" or after[1] != "off":  # next to one that asks, `watch` is as good as nothing
        before[0], after[0] = ("off" if one[0] == "watch" else one[0] for one in (before, after))
    for place, among in enumerate((_BY_ORIGIN, _BY_CALL)):
        yield Step("flow", "preset", before[place], after[place], lambda one, among=among: -among.index(one))
    if bool(was) == bool(now):
        yield Step("flow", "otherwise", was.otherwise, now.otherwise, ("deny", "ask").index)
        yield Step("flow", "task_through_client", was.task_through_client, now.task_through_client, int)
        yield Step("flow", "the prompt is the task", was.prompt_is_task, now.prompt_is_task, int)
        if "trifecta" in was.presets and "trifecta" in now.presets:
            guessed = was.guesses_secrets, now.guesses_secrets
            yield Step("flow", "sensitive files count as secrets", *guessed, lambda one: -int(one))


def flow_only(here: Flow, there: Flow) -> Iterator[tuple[str, str]]:
    """What only the first believes or lets out, in words and as the item."""
    if bool(here) != bool(there):
        return
    for domain in here.own:
        if not any(_is_below(domain, other) for other in there.own):
            yield f"addresses in {domain} count as our own", domain
    for name, _, after in _label_differences(there, here, is_raised):
        yield f"{name} is labelled {after}", f"{name} {after}"
    for tool, mine, theirs in _both_labels(there, here):
        if theirs.creates and not mine.creates:
            yield (
                f"what `{tool}` creates may be named{where_text(theirs.under)}",
                f"{tool} creates{where_text(theirs.under)}",
            )
    yield from _no_longer_labelled(there, here)
    yield from _sources_only(here.sources, there.sources)
    yield from _readers_only(_by_field(here.secrets), _by_field(there.secrets))
    for role in OF_ROLE:
        for origin in origins_of_role(here, role):
            if origin not in origins_of_role(there, role):
                yield f"the role `{role}` takes {origin}", f"{role} {origin}"


def flow_shifts(was: Flow, now: Flow) -> Iterator[tuple[str, str, str]]:
    """The labels that became or were `ack`, which is neither more nor less: what, and both."""
    if bool(was) == bool(now):
        yield from _label_differences(was, now, lambda before, after: before != after and "ack" in (before, after))


def where_text(under: Under) -> str:
    """For which calls labels are meant, in words that follow a name; empty for all of them."""
    places = " and ".join(f"`{name}` is under {path or '/'}" for name, path in under)
    return f" where {places}" if under else ""


def _both_labels(was: Flow, now: Flow) -> Iterator[tuple[str, ResultLabels, ResultLabels]]:
    """The tools with the labels of both, for each kind of call that they can tell apart; `under` is that of both."""
    for tool in sorted(was.results.keys() | now.results.keys()):
        seen: list[Under] = []
        for mine in (*was.results.get(tool, ()), ResultLabels()):
            for theirs in (*now.results.get(tool, ()), ResultLabels()):
                under = _met_under(mine.under, theirs.under)
                if under is not None and not any(_lies_within(under, earlier) for earlier in seen):
                    seen.append(under)
                    yield tool, replace(mine, under=under), replace(theirs, under=under)


def _label_differences(was: Flow, now: Flow, counts: Any) -> Iterator[tuple[str, str, str]]:
    for tool, mine, theirs in _both_labels(was, now):
        if counts(mine.label, theirs.label):
            yield f"`{tool}`{where_text(theirs.under)}", mine.label, theirs.label
        for field in sorted({name for name, _ in (*mine.fields, *theirs.fields)}):
            both = label_at(mine, field), label_at(theirs, field)
            if counts(*both) and both != (mine.label, theirs.label):
                yield f"`{tool}:{field}`{where_text(theirs.under)}", *both


def _no_longer_labelled(was: Flow, now: Flow) -> Iterator[tuple[str, str]]:
    """The tools whose labels are now those of what they read, which may be more."""
    strongest = max((one.label for one in now.sources), key=LABELS.index, default=LABELS[0])
    for tool in sorted(was.results.keys() - now.results.keys()):
        entries = was.results[tool]
        stated = [label for one in entries for label in (one.label, *dict(one.fields).values())]
        stated += ["untrusted"] * all(one.under for one in entries)  # of calls that no entry fits
        if any(strongest != "untrusted" and (one == "ack" or is_raised(one, strongest)) for one in stated):
            yield f"`{tool}` has the label of what it reads, up to {strongest}", f"{tool} {strongest}"


def _sources_only(here: Iterable[Source], there: Iterable[Source]) -> Iterator[tuple[str, str]]:
    """What is read and believed more by the first; each part once, with the strongest label."""
    said: set[str] = set()
    for label in ("authored", "trusted", "identity"):
        mine, theirs = (_believed(each, LABELS.index(label)) for each in (here, there))
        for piece in mine - theirs:
            if str(piece) not in said:
                said.add(str(piece))
                yield f"what is read through {piece} is labelled {label}", f"{piece} {label}"


def _believed(sources: Iterable[Source], least: int) -> CapabilitySet:
    """The rules whose label is at least this one: a weaker source takes away what it covers."""
    sides: tuple[list[str], list[str]] = ([], [])
    for one in sources:
        sides[LABELS.index(one.label) < least].append(one.use)
    return CapabilitySet(*sides)


def _readers_only(
    here: Mapping[SecretKey, CapabilitySet], there: Mapping[SecretKey, CapabilitySet]
) -> Iterator[tuple[str, str]]:
    """What the first lets out of the secrets of the second."""
    for (tool, field, use), readers in sorted(there.items(), key=lambda item: item[0]):
        name = f"`{tool}:{field}`" if field else f"`{tool}`" if tool else f"what is read through {use}"
        mine = [here[key] for key in dict.fromkeys(((tool, field, use), (tool, "", use))) if key in here]
        if not mine and use:
            secret = CapabilitySet(other for (_, _, other), to in here.items() if other and to <= readers)
            for piece in CapabilitySet((use,)) - secret:
                yield f"what is read through {piece} is not secret", str(piece)
        elif not mine:
            yield f"{name} is not secret", name
        else:
            held = mine[0] & mine[-1]
            for piece in held - readers:
                yield f"{name} may be read by {piece}", f"{name} to {piece}"


# Tools ----------------------------------------------------------------------------------------------------------------


def argument_flow(rule: Any) -> ArgumentFlow | None:
    """What a rule on an argument says about its origin; None if it says nothing."""
    if not isinstance(rule, Mapping) or not ("flow" in rule or "from" in rule):
        return None
    stated = in_flow_order(rule)
    origins = stated.get("from")
    return ArgumentFlow(
        role=stated.get("flow"),
        origins=None if origins is None else tuple(origins),
        of=tuple(stated.get("of", ())),
        always=stated.get("always", False),
    )


def in_flow_order(rule: Any) -> Any:
    """A rule on an argument with its words about flow in normal form."""
    if not isinstance(rule, Mapping) or not rule.keys() & {*FLOW_WORDS}:
        return rule
    stated: dict[str, Any] = {key: value for key, value in rule.items() if key != "always" or value}
    if isinstance(stated.get("from"), list | tuple):  # anything else was reported, and its policy is dropped
        stated["from"] = [origin for origin in ORIGINS if origin in stated["from"]]
    if isinstance(stated.get("of"), list | tuple):
        stated["of"] = sorted({*map(str, stated["of"])})
    return stated


def asked_words(stated: Any) -> tuple[str, ...]:
    """The words of `asked_by`, of all languages, as they are compared."""
    lists = stated.values() if isinstance(stated, Mapping) else () if stated in (None, UNSET) else (stated,)
    return tuple(sorted({unicodedata.normalize("NFKC", word).casefold() for words in lists for word in words}))


def argument_flow_text(one: ArgumentFlow) -> str:
    """A rule about the origin of an argument, for people to read.

    >>> argument_flow_text(ArgumentFlow(role="ref", of=("files:id",), always=True))
    'ref of files:id, always'
    """
    text: str = one.role or ""
    if one.origins is not None:
        text += f"{' ' if text else ''}from {' or '.join(one.origins)}"
    text += f" of {' or '.join(one.of)}" if one.of else ""
    return f"{text}, always" if one.always else text


def asks_no_less(kept: Iterable[ArgumentFlow], rules: Iterable[ArgumentFlow]) -> bool:
    """Whether what the first rules let pass, the second let pass too; False where it cannot be decided."""
    return all(any(_is_narrower(one, rule) for one in kept) for rule in rules)


def _is_narrower(one: ArgumentFlow, other: ArgumentFlow) -> bool:
    if one.role != other.role:  # values of different roles are compared in different ways
        return False
    mine: tuple[FlowOrigin, ...] = one.origins if one.origins is not None else ()
    theirs: tuple[FlowOrigin, ...] = other.origins if other.origins is not None else ()
    if one.role is not None and (one.origins is None) != (other.origins is None):
        if one.role == "content":  # only the role looks at the addresses in the text
            return False
        anchored = BY_ANCHOR.get(one.role, ())
        mine = one.origins if one.origins is not None else (*OF_ROLE[one.role], *anchored)
        theirs = other.origins if other.origins is not None else OF_ROLE[one.role]
    ids = not other.of or (bool(one.of) and {*one.of} <= {*other.of})
    return {*mine} <= {*theirs} and ids and (one.always or not other.always)


def asked_no_less(kept: Iterable[tuple[str, ...]], lists: Iterable[tuple[str, ...]]) -> bool:
    """Whether a task that the first lists take is one that the second take: each has a list with no other words."""
    return all(
        any(all(any(word.startswith(start) for start in words) for word in one) for one in kept) for words in lists
    )
