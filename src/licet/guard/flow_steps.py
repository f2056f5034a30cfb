"""How does a call meet the rules of flow, and what does its result add to what the session knows?

`judge_call` is the step between deciding and asking. `hand_over` is the last step of a call: what the caller gets is
remembered, in the order of the receipts. `flow_fact` is what a receipt keeps of both: digests and places, no text.
"""

import hmac
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.approval import shown
from licet.core.decision.flow_judgement import from_task, judge, readers_ceiling
from licet.core.decision.reach import Reach
from licet.core.decision.request import FLOW_REASONS
from licet.core.flow.judgement import Found, Judgement, Met, Unmet, value_name
from licet.core.flow.labels import ANY_READ, is_private, labels_of_result, leaves, scalars, secrets_of_result
from licet.core.flow.session_knowledge import Known, Reading, was_read
from licet.core.ledger.entry import (
    FlowFact,
    FoundFact,
    MetFact,
    SecretFact,
    UnmetFact,
)
from licet.core.policy.flow import Flow, ResultLabels, SecretSource
from licet.core.policy.layer import Layer, Rule
from licet.core.review.sensitive import holds_keys
from licet.declare.arguments import received
from licet.guard.facts import Call
from licet.guard.grant import Grant
from licet.guard.kept_result import Brought, Repeated
from licet.guard.limits import (
    LEAST_OF_A_VALUE,
    LEAVES_COUNTED,
    LONG_ARGUMENTS,
    MOST_UNMET,
    PLACES_SHOWN,
    POINTERS_LISTED,
    UNMET_SHOWN,
)
from licet.guard.read_elsewhere import above, restore
from licet.guard.redaction.redact import Redactor
from licet.guard.registration import Registered
from licet.guard.result_parts import ResultParts

_UNTRUSTED = ResultLabels()
# That a person is asked about a call is said in words of licet alone. If it tainted, the same call would be asked about
# a second time when it is repeated: first because it writes, then because of the question.
QUESTIONS = FLOW_REASONS | {"APPROVAL_REQUIRED", "APPROVAL_DENIED", "APPROVAL_EXPIRED"}
# The fields of blocks of an MCP result that are not its value: of text, and of a document that only one of them is.
_BLOCK, _DOCUMENT = "#block", "#document"
_READERS = "what may be done after this session has read a secret (`flow.secrets`)"
_MODEL = "the model wrote this itself, or changed it"
_NOT_FOUND = "not found; what this session had read before it was opened again is unknown"


# Before the call ------------------------------------------------------------------------------------------------------


async def judge_call(call: Call, registered: Registered, grant: Grant, flow: Flow) -> Judgement:
    """Judge a call by what its session knew when it was made. A program is not asked about secrets: it holds less."""
    memory = call.session.remembering()
    await restore(call, memory)
    names = registered.sent_names
    # A copy, since the tool could change its own: what it gets is judged, in the form in which it would be sent.
    arguments = call.plain = {names.get(name, name): received(value) for name, value in call.arguments.items()}
    reach = grant.reach

    def question(known: Known) -> Judgement:
        nonlocal reach
        known.suppose(flow.secrets)
        narrows = is_program(registered) and not flow.only_watches
        ceiling = readers_ceiling(flow, known.secrets_read) if narrows else None
        if ceiling is not None:
            reach = with_readers(reach, ceiling)
        call.from_task = from_task(arguments, known)
        return judge(reach, flow, arguments, known)

    judgement = await memory.ask(call.moment, question, is_long=are_long(arguments))
    grant.reach = reach
    return replace(judgement, reopened=memory.is_reopened)


def is_program(registered: Registered) -> bool:
    """Whether a tool is a program behind walls, which can be started with less than the policy gives it."""
    return bool(registered.tool.command_argument) or getattr(registered.tool, "is_shell_line", False)


async def narrow_program(call: Call, grant: Grant, flow: Flow) -> None:
    """Leave a program only what the readers of the secrets may do that its session has read by now.

    For a call that was decided earlier, maybe by another process: a restored grant is that of the policy alone.
    """
    if flow.only_watches:
        return
    memory = call.session.remembering()
    await restore(call, memory)

    def question(known: Known) -> CapabilitySet | None:
        known.suppose(flow.secrets)
        return readers_ceiling(flow, known.secrets_read)

    ceiling = await memory.ask(None, question)
    if ceiling is not None:
        grant.reach = with_readers(grant.reach, ceiling)


def are_long(arguments: Mapping[str, object]) -> bool:
    """Whether arguments are so long that looking for their origins would block the event loop."""
    return are_longer(arguments.values(), LONG_ARGUMENTS)


def are_longer(values: Iterable[object], most: int) -> bool:
    """Whether values have more text than that; of longer ones, only a beginning is looked at."""
    left = most
    for value in values:
        for _, one in scalars(value):
            left -= (len(one) if isinstance(one, str) else 0) + LEAST_OF_A_VALUE
            if left < 0:
                return True
    return False


def with_readers(reach: Reach, ceiling: CapabilitySet) -> Reach:
    """What a program may do after its session has read secrets: the same, met with their readers."""
    origin = reach.manifest.places.get("flow", reach.manifest.origin)

    def rules(found: CapabilitySet) -> tuple[Rule, ...]:
        return tuple(Rule(one, origin, "flow.secrets") for one in found.allow)

    denies = tuple(Rule(one, origin, "flow.secrets") for one in ceiling.deny)
    layer = Layer("readers", _READERS, origin, rules(ceiling), denies)
    return replace(reach, layers=(*reach.layers, layer), grant=reach.grant & ceiling)


# What a person is shown ----------------------------------------------------------------------------------------------


def unmet_lines(judgement: Judgement | None, redactor: Redactor | None = None) -> tuple[str, ...]:
    """What a person reads about the values that meet no rule: each value, its origins, and the record it stands in."""
    if judgement is None or not judgement.stops:
        return ()
    lines = [line for one in judgement.unmet[:UNMET_SHOWN] for line in _shown(one, reopened=judgement.reopened)]
    if more := len(judgement.unmet) - UNMET_SHOWN:
        lines += [f"and {more} more values"] * (more > 0)
    return tuple(lines if redactor is None else map(redactor.text, lines))


def _shown(unmet: Unmet, *, reopened: bool) -> Iterator[str]:
    name = value_name(unmet.argument, unmet.pointer)
    yield f"{name} = {shown(unmet.value)}" if name else unmet.text
    for one in unmet.found[:PLACES_SHOWN]:
        yield f"{name or 'what was read'}: {place_of(one, reopened=reopened)}"
    if unmet.record:
        yield f"{name} stands in {shown(unmet.record)}"


def place_of(found: Found, *, reopened: bool = False) -> str:
    """Where a value stands, in words. Of a session that was `reopened`, it may stand in what is not known any more."""
    if found.origin == "unknown":
        return _NOT_FOUND if reopened else _MODEL
    if found.origin == "task":
        return "in the task"
    label = f" ({found.label})" if found.label else ""
    where = " ".join(filter(None, (found.receipt, found.tool, found.pointer)))
    return f"{found.origin} in {where or 'what the session was given'}{label}"


# After the call -------------------------------------------------------------------------------------------------------


class Handed(Struct, frozen=True):
    """What a call is about to hand to its caller, as the session remembers it."""

    reading: Reading | None  # None if nothing is handed out
    taints: bool = False  # whether it does although nothing of it is remembered, since it was cut
    fact: FlowFact = FlowFact()
    brought: Brought | None = None  # what the same result brings again, if it is kept


def handed_of(call: Call, parts: ResultParts, flow: Flow) -> Handed:
    """What a call hands out. An error text is untrusted, and so is a result that was cut.

    Nothing of a cut result is remembered, and its beginning may have held anything: all secrets of its sources.
    """
    if not call.is_heard:
        return Handed(None)
    if parts.refusal is not None and not call.hands_out:
        # It returned nothing: what its refusal quotes, such as the name of a tool, is the caller's.
        is_told = bool(parts.error) and parts.reason not in QUESTIONS
        return Handed(None, is_told, FlowFact(taints=is_told or UNSET))
    if parts.refusal is not None and parts.value is None:
        value: object = parts.error
    else:
        value = parts.value
    brought = _brought(call, parts, flow) if call.repeated is None else _brought_again(call, call.repeated, flow)
    labels, secret = brought.labels, brought.secret
    if parts.truncated:
        value, labels = None, _UNTRUSTED
    elif parts.refusal is None and (remembered := getattr(_tool(call), "remembered", None)) is not None:
        value = remembered(value)
        labels = labels_of_mcp(labels)
    counts, untrusted, taints = counted(value, labels, call.plain)
    reading = Reading(
        receipt=call.receipt,
        tool=call.tool,
        value=value,
        arguments=call.plain,
        labels=labels,
        secret=secret,
        from_task=brought.from_task,
        size=call.result_bytes,
        is_untrusted=parts.truncated or (taints if counts.total() < LEAVES_COUNTED else None),
        is_cut=parts.truncated,
        private=brought.private,
    )
    taints = taints or parts.truncated
    fact = FlowFact(
        labels=dict(sorted(counts.items())) or UNSET,
        untrusted=tuple(map(visible, untrusted)) or UNSET,
        taints=taints or UNSET,
        secrets=tuple(_secret_fact(one) for one in secret if was_read(one, reading)) or UNSET,
        private=reading.private or UNSET,
    )
    if value is None and not (secret or reading.private):
        return Handed(None, parts.truncated, fact, brought)
    return Handed(reading, parts.truncated, fact, brought)


def _brought(call: Call, parts: ResultParts, flow: Flow) -> Brought:
    """What the result of a call brings into its session."""
    uses, labels = read_uses(call, parts), _UNTRUSTED
    if parts.refusal is None:
        labels = labels_of_result(flow, call.tool, call.plain, uses)
        if (hinted := getattr(_tool(call), "hinted", None)) is not None:  # what its server says can only lower them
            labels = hinted(labels)
    secret = secrets_of_result(flow, call.tool, uses) if call.running else ()
    private = flow.guesses_secrets and is_private(uses, holds_keys)
    return Brought(labels, secret, private, call.from_task)


def _brought_again(call: Call, repeated: Repeated, flow: Flow) -> Brought:
    """The same of a result that is handed out again. Under another policy it is untrusted, and may have read all."""
    kept = repeated.result
    if kept.brought is not None and kept.policy == policy_name(call):
        return kept.brought
    return Brought(_UNTRUSTED, secrets_of_result(flow, call.tool, ANY_READ), flow.guesses_secrets)


def policy_name(call: Call) -> str:
    """The policy that decides a call, with the organisations above it: labels of a result hold under the same alone."""
    return " ".join((call.policy.digest, *(one.digest for one in call.policy.manifest.organisations)))


def _tool(call: Call) -> object:
    return call.registered.tool if call.registered is not None else None


def unrecorded(call: Call, handed: Handed, error: str) -> Handed:
    """What a call hands out whose receipt could not be kept: an error in place of its result, and what it had read."""
    reading = handed.reading
    if reading is None or not call.running:
        return replace(handed, reading=None, taints=call.is_heard)
    told = replace(reading, value=error, labels=_UNTRUSTED, from_task=False, size=len(error), is_untrusted=True)
    return replace(handed, reading=told)


def hand_over(call: Call, handed: Handed | None) -> None:
    """Remember what the caller gets now. `handed` is None if that is not known.

    If the policy of the gate has another `flow` by now, it says nothing about what was read under that of the call.
    """
    now = call.session.gate.policy
    is_same = bool(now.unusable) or now.flow == call.flow  # under one that cannot be used, nothing is called
    if not call.is_heard or (is_same and call.flow is None):
        return
    # A delegate that was ended meanwhile has none any more, and its result still goes to the code of its parent.
    memories = (one.memory for one in (call.session, *above(call.session)))
    memory = next((one for one in memories if one is not None), None)
    if memory is None:
        if call.flow is not None or call.session.ended:
            return
        memory = call.session.remembering()
    if handed is None or not is_same:
        if call.hands_out:
            memory.lose(call.receipt)
        else:
            memory.taint(call.receipt)
        return
    if handed.reading is not None:
        memory.remember(handed.reading)
    elif handed.taints:
        memory.hear_of(Reading(call.receipt, call.tool, None, is_untrusted=True))


def counted(
    value: object, labels: ResultLabels, arguments: Mapping[str, object]
) -> tuple[Counter[str], Mapping[str, None], bool]:
    """How many leaves of a result have each label, the first pointers of untrusted ones, and whether it has any.

    A result that nobody labelled is untrusted as a whole, and is not looked through.
    """
    counts: Counter[str] = Counter()
    untrusted: dict[str, None] = {}
    if value is None or value == "":
        return counts, untrusted, False
    if labels == _UNTRUSTED:
        return counts, untrusted, True
    for leaf in leaves(value, labels, arguments):
        counts[leaf.label] += 1
        if leaf.label == "untrusted" and len(untrusted) < POINTERS_LISTED:
            untrusted[leaf.pointer] = None  # a key and its value have the same
        if counts.total() == LEAVES_COUNTED:  # the rest is not known here, so it counts as untrusted on reopening
            return counts, untrusted, True
    return counts, untrusted, counts["untrusted"] > 0


def read_uses(call: Call, parts: ResultParts) -> tuple[str, ...]:
    """What a call has touched: the uses that handles saw, and the rules in force around what no handle sees."""
    grant, registered = call.grant, call.registered
    if grant is None or registered is None or not call.running:
        return ()
    seen = grant.granted_uses
    rules = [str(rule) for rule in grant.reach.grant.allow]
    found = [*ANY_READ, *rules] if seen is None else [*seen]
    found += [rule for rule in rules if rule.startswith("connector:")]
    exact = getattr(registered.tool, "reads_as_checked", False)  # whoever runs it reads just what was checked
    if (call.is_elsewhere and not exact) or _is_of_server(registered):
        found += rules
    for one in (parts.access, *parts.program_access.sets):
        if one is not None and one.direct:
            found += one.granted if one.counts[0] == len(one.granted) else ANY_READ
    if parts.program_access.more or (parts.programs is not None and not parts.program_access.sets):
        found += ANY_READ
    return tuple(dict.fromkeys(filter(None, found)))


def _is_of_server(registered: Registered) -> bool:
    """Whether a process that is older than the call answers it: no handle of the call sees what it reads."""
    return getattr(registered.tool, "server", None) is not None


def value_of_mcp(result: object) -> object:
    """The result of an MCP tool as the value that is remembered, for which the labels of fields are written.

    For the gateway: its tools return it from `remembered`. The value is `structuredContent`, or without it the one JSON
    document of the only text block. A block that equals `structuredContent` is no leaf of its own. A document beside
    others may be the text of a mail, whatever fields it has: it has the label of the whole result at most. Every other
    block is one untrusted leaf, since no field of it has a label.
    """
    if not isinstance(result, Mapping):
        return result
    structured = result.get("structuredContent")
    blocks = result.get("content")
    blocks = blocks if isinstance(blocks, list) else []
    texts = [_text_of_block(block) for block in blocks]
    is_value = structured is None and sum(text is not None for text in texts) == 1
    found: list[object] = [] if structured is None else [structured]
    others: list[object] = []
    for block, text in zip(blocks, texts, strict=True):
        document = None if text is None else _document(text)
        if document is None:
            others.append({_BLOCK: block if text is None else text})
        elif is_value:
            found.append(document.value)
        elif structured is None or document.value != structured:
            others.append({_DOCUMENT: document.value})
    return found[0] if found and not others else [*found, *others]


def labels_of_mcp(labels: ResultLabels) -> ResultLabels:
    """The labels of a result with those of its blocks. A document in one has the label of the whole, if it has one."""
    of_document = "untrusted" if labels.fields else labels.label
    return replace(labels, fields=(*labels.fields, (_BLOCK, "untrusted"), (_DOCUMENT, of_document)))


def _text_of_block(block: object) -> str | None:
    text = block.get("text") if isinstance(block, Mapping) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


class _Document(Struct, frozen=True):
    value: object


def _document(text: str) -> _Document | None:
    """A text that is one JSON document. One that says a key twice is text: a reader sees what a parser would drop."""
    try:
        return _Document(json.loads(text, object_pairs_hook=_once))
    except (ValueError, RecursionError):
        return None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key that comes twice")
    return found


# What a receipt keeps ------------------------------------------------------------------------------------------------


def flow_fact(call: Call, handed: Handed | None = None) -> FlowFact | UnsetType:
    """What a receipt, or with nothing handed out yet a decision, has about flow."""
    if call.flow is None:
        return UNSET
    before = call.decision.flow if call.decision is not None else UNSET  # by another process, if it has none of its own
    judged = before if isinstance(before, FlowFact) and call.usage.flow is None else _judged(call)
    if handed is None:
        return judged
    fact = handed.fact
    handed_out = {name: getattr(fact, name) for name in ("labels", "untrusted", "taints", "secrets", "private")}
    return replace(judged, **handed_out)


def _judged(call: Call) -> FlowFact:
    judgement, memory = call.usage.flow, call.session.memory
    if judgement is None:
        return FlowFact()
    request = next((one.request for one in call.approvals if one.approval.flow and one.request), call.flow_request)
    return FlowFact(
        tainted_by=tuple(visible(why)[:200] for why in judgement.tainted_by),
        unmet=tuple(_unmet_fact(call, one) for one in judgement.unmet[:MOST_UNMET]) or UNSET,
        met=tuple(_met_fact(call, one) for one in judgement.met[:MOST_UNMET]) or UNSET,
        watched=(not judgement.enforced) or UNSET,
        request=request or UNSET,
        reopened=(memory is not None and memory.is_reopened) or UNSET,
    )


def _unmet_fact(call: Call, one: Unmet) -> UnmetFact:
    return UnmetFact(
        reason=one.reason,
        argument=visible(one.argument) or UNSET,
        pointer=visible(one.pointer) or UNSET,
        value_digest=_digest(call, one.value) if one.argument else UNSET,
        origins=tuple(map(_found_fact, one.found[:MOST_UNMET])),
        allowed=one.allowed,
        rule=visible(str(one.place)) if one.place is not None else UNSET,
    )


def _met_fact(call: Call, one: Met) -> MetFact:
    return MetFact(
        argument=visible(one.argument),
        pointer=visible(one.pointer) or UNSET,
        origins=tuple(map(_found_fact, one.found[:MOST_UNMET])),
    )


def _found_fact(one: Found) -> FoundFact:
    return FoundFact(
        origin=one.origin,
        receipt=visible(one.receipt) or UNSET,
        tool=visible(one.tool) or UNSET,
        pointer=visible(one.pointer) or UNSET,
        label=one.label or UNSET,
    )


def _secret_fact(one: SecretSource) -> SecretFact:
    return SecretFact(tool=one.tool or UNSET, fields=one.fields or UNSET, use=one.use or UNSET, readers=one.readers)


def _digest(call: Call, value: str) -> str:
    memory = call.session.memory
    key = memory.key if memory is not None else b""
    return f"hmac-sha256:{hmac.digest(key, value.encode('utf-8', 'surrogatepass'), 'sha256').hex()}"
