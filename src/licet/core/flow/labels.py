"""Who wrote each part of a result? The labels that a manifest gives it, leaf by leaf.

A leaf is a scalar, or a key of a mapping. Nobody's word but the manifest's raises a label, and what the manifest does
not name is untrusted.
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from licet.core.algebra.rules import Capability, InvalidUse, Use, use_of_path
from licet.core.algebra.scope import Malformed, resolved_path, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.flow.text import folded, normal
from licet.core.flow.written_values import number_of
from licet.core.limits import DEEPEST_POINTER, LONGEST_ACK, LONGEST_NAME_IN_A_RESULT, MOST_WORDS_OF_A_NAME
from licet.core.policy.flow import Flow, Label, ResultLabels, SecretSource

UNTRUSTED = ResultLabels()
ANY_READ = (
    "fs:read:*",
    "network:read:*",
    "env:read:*",
    "process:exec:*",
    "socket:connect:*",
)  # what a program may do that nobody saw
# What is data of a result. What only lets a call do something, such as a secret or a connector, is not.
_READS = ("fs:read:", "fs:*:", "network:", "env:", "socket:", "storage:read:", "storage:*:")
KEYS = "#keys"  # how a field names the keys of a mapping
# From the weakest to the strongest. `ack` is outside of the order: it says nothing about what was read.
_STRENGTH: Mapping[Label, int] = {"untrusted": 0, "ack": 0, "identity": 1, "trusted": 2, "authored": 3}
_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_LONGEST_SEGMENT = 64  # characters of a key in a pointer; a result may have keys of megabytes
# What a reader of a path could make of it beyond its characters: `under` holds only where there is one reading.
_TWO_READINGS = ("\\", "\0", "%2e", "%2f", "%5c")


class Leaf(Struct, frozen=True, gc=False):
    """One scalar of a result, or one key of a mapping in it."""

    above: str  # the JSON pointer of what it is in, cut where it is long
    segment: str | int  # what its own pointer has besides: an index, or a name with its `/`
    field: str  # its pointer without indices and the first `/`, as a manifest names it
    text: str  # in normal form
    value: object
    label: Label  # after those that read like a letter became untrusted
    record: int
    is_echo: bool  # whether an argument of the call that returned it is equal

    @property
    def pointer(self) -> str:
        """Its JSON pointer, cut where it is long."""
        return below(self.above, self.segment)


# Labels of a result ---------------------------------------------------------------------------------------------------


def labels_of_result(
    flow: Flow, tool: str, arguments: Mapping[str, object], read_uses: tuple[str, ...]
) -> ResultLabels:
    """The labels of a result: those stated for the tool, else the weakest source of all that the call read.

    `read_uses` are the uses that handles saw, or the rules in force where nothing sees each use: only reads count.
    """
    if tool in flow.results:
        return next((one for one in flow.results[tool] if _lies_under(one.under, arguments)), UNTRUSTED)
    if not flow.sources:
        return UNTRUSTED
    labels = [_label_of_use(flow, use) for use in read_uses if use.startswith(_READS)]
    if not labels:
        return UNTRUSTED
    weakest = min(labels, key=_STRENGTH.__getitem__)
    return ResultLabels(label=weakest) if _STRENGTH[weakest] else UNTRUSTED


def secrets_of_result(flow: Flow, tool: str, read_uses: tuple[str, ...]) -> tuple[SecretSource, ...]:
    """The secret sources that a call may have read from: its tool, or anything that it touched or could touch.

    Each use counts, of whatever kind: what a policy calls secret is secret, also if it only let the call do something.
    """
    return tuple(
        one
        for one in flow.secrets
        if (one.tool and one.tool == tool) or (one.use and any(_touches(one.use, use) for use in read_uses))
    )


def is_private(read_uses: tuple[str, ...], is_sensitive: Callable[[str], bool]) -> bool:
    """Whether a call without labels read something private: a secret, a connector, or a file that is sensitive."""
    for text in read_uses:
        domain, _, rest = text.partition(":")
        action, _, scope = rest.partition(":")
        if domain in ("secret", "connector") or (domain == "fs" and action in ("read", "*") and is_sensitive(scope)):
            return True
    return False


def _label_of_use(flow: Flow, text: str) -> Label:
    """The weakest label of the sources that a use, or a rule in force, touches; untrusted if none covers it."""
    touched = [one for one in flow.sources if _touches(one.use, text)]
    read = _rule_or_use(text)
    if read is None or not touched or not CapabilitySet(one.use for one in touched).has(read):
        return "untrusted"
    return min((one.label for one in touched), key=_STRENGTH.__getitem__)


def _touches(rule: str, text: str) -> bool:
    """Whether a source and a use or rule in force have something in common. What nobody can read may be anything."""
    match _rule_or_use(text):
        case Capability() as other:
            return Capability(rule).meet(other) is not None
        case Use() as use:
            return Capability(rule).covers_use(use)
        case _:
            return rule.partition(":")[0] == text.partition(":")[0]


def _rule_or_use(text: str) -> Capability | Use | None:
    """A text as a rule, so that a directory is all that is below it; else as a use, whose path may have any sign."""
    try:
        return Capability(text)
    except Malformed:
        pass
    domain, _, rest = text.partition(":")
    action, _, scope = rest.partition(":")
    try:
        return use_of_path(action, scope) if domain == "fs" else Use(text)
    except InvalidUse:
        return None


def _lies_under(under: tuple[tuple[str, str], ...], arguments: Mapping[str, object]) -> bool:
    return all(name in arguments and _is_below(arguments[name], place) for name, place in under)


def _is_below(value: object, place: str) -> bool:
    """Whether a path, or each of a list of paths, is at or below a place. Only paths with one reading are."""
    place = place or "/"  # as rules write the root
    if isinstance(value, list | tuple):
        return bool(value) and all(_is_below(one, place) for one in value)
    if not isinstance(value, str) or not value or any(sign in value.lower() for sign in _TWO_READINGS):
        return False
    if (value[0] == "/") != (place[:1] == "/"):
        return False
    if value[0] != "/" and ".." in value.split("/"):  # it leads to a place that only the tool knows
        return False
    found, top = (resolved_path(one if one[:1] == "/" else f"/{one}") for one in (value, place))
    return found == top or found.startswith(f"{top.rstrip('/')}/")


# Leaves ---------------------------------------------------------------------------------------------------------------


class _Fields:
    """The labels of fields as a tree: a field has the label of the nearest one above it that is named."""

    __slots__ = ("below", "label")

    def __init__(self, label: Label | None = None) -> None:
        self.label = label
        self.below: dict[str, _Fields] = {}


def _fields_of(labels: ResultLabels) -> _Fields:
    root = _Fields(labels.label)
    for pointer, label in labels.fields:
        node = root
        for name in pointer.strip("/").split("/"):
            node = node.below.setdefault(name.replace("~1", "/").replace("~0", "~"), _Fields())
        node.label = label
    return root


class _Part:
    """A field of a result, made once for all records that have it."""

    __slots__ = ("below", "field", "key_label", "label", "named", "segment")

    def __init__(self, field: str, segment: str, named: _Fields | None, label: Label) -> None:
        self.field, self.segment, self.named, self.label = field, segment, named, label
        self.below: dict[str, _Part] = {}
        of_keys = named.below.get(KEYS) if named is not None else None
        self.key_label = label if of_keys is None or of_keys.label is None else of_keys.label

    def part(self, name: str) -> "_Part":
        """Its part of this name."""
        named = self.named.below.get(name) if self.named is not None and name != KEYS else None
        label = self.label if named is None or named.label is None else named.label
        part = self.below[name] = _Part(_joined(self.field, name), _segment(name), named, label)
        return part


class _Echoes:
    """The scalars of the arguments of a call: a result that repeats one of them says nothing new."""

    __slots__ = ("longest", "numbers", "texts")  # `longest`: how long a leaf can be that is one

    def __init__(self, arguments: Mapping[str, object]) -> None:
        found = [value for name in arguments for _, value in scalars(arguments[name])]
        self.texts = frozenset(folded(text_of(value)) for value in found) - {""}
        self.numbers = frozenset(number for value in found if (number := number_of(value)) is not None)
        longest = max(map(len, self.texts), default=0)
        self.longest = max(longest, LONGEST_NAME_IN_A_RESULT) if self.numbers else longest

    def has(self, value: object, text: str) -> bool:
        """Whether an argument is equal to a leaf, in any case of its letters, or as a number."""
        if (text.lower() if text.isascii() else folded(text)) in self.texts:
            return True
        return bool(self.numbers) and len(text) <= LONGEST_NAME_IN_A_RESULT and number_of(value) in self.numbers


def leaves(value: object, labels: ResultLabels, arguments: Mapping[str, object]) -> Iterator[Leaf]:
    """Visit every leaf of a result in its order. `arguments` are those of the call that returned it.

    Null and empty text say nothing and are no leaves. A key that the manifest names is the manifest's word, and a key
    that comes again in another record is the same leaf.
    """
    echoes, records = _Echoes(arguments), 0
    root = _Part("", "", _fields_of(labels), labels.label)
    # What is left of each container around the present place. The whole result stands as if it were an item of a list.
    rest: list[tuple[Iterator[tuple[object, Any]], str, _Part, int, bool]]
    rest = [(iter([("", value)]), "", root, 0, True)]
    while rest:
        items, above, part, record, is_list = rest[-1]
        for key, one in items:
            inner: _Part = part
            segment: Any = key
            if not is_list:
                name = key if type(key) is str else text_of(key)
                found = part.below.get(name)
                inner = part.part(name) if found is None else found
                segment = inner.segment
                if found is None and inner.named is None and name:
                    place = _joined(part.field, KEYS)
                    yield _leaf(name, name, above, segment, place, part.key_label, record, echoes)
            kind = type(one)
            if kind is str:
                if one:
                    yield _leaf(one, one, above, segment, inner.field, inner.label, record, echoes)
            elif kind is int or kind is float or kind is bool:
                yield _leaf(one, text_of(one), above, segment, inner.field, inner.label, record, echoes)
            elif isinstance(one, Mapping):
                is_record = is_list and len(rest) > 1
                records += is_record
                items = iter(one.items())
                rest.append((items, below(above, segment), inner, records if is_record else record, False))
                break
            elif isinstance(one, list | tuple | set | frozenset):
                each = enumerate(one if isinstance(one, list | tuple) else sorted(one, key=repr))
                rest.append((each, below(above, segment), inner, record, True))
                break
            elif one is not None:
                yield _leaf(one, text_of(one), above, segment, inner.field, inner.label, record, echoes)
        else:
            rest.pop()


def below(above: str, segment: object) -> str:
    """The pointer of a part of what another pointer leads to, cut where it is long."""
    if len(above) >= DEEPEST_POINTER:
        return above
    return f"{above}/{segment}" if isinstance(segment, int) else f"{above}{segment}"


def _leaf(
    value: object, raw: str, above: str, segment: Any, field: str, label: Label, record: int, echoes: _Echoes
) -> Leaf:
    text = normal(raw)  # text of signs that nobody sees is still text that somebody wrote
    if label != "untrusted" and label != "authored" and reads_like_a_letter(raw, text, label):
        label = "untrusted"
    is_echo = len(text) <= echoes.longest and echoes.has(value, text)
    return Leaf(above, segment, field, text, value, label, record, is_echo)


def reads_like_a_letter(raw: str, text: str, label: Label) -> bool:
    """Whether a name is so long that it may be a message to a reader: then it is nobody's word but its writer's."""
    longest = LONGEST_ACK if label == "ack" else LONGEST_NAME_IN_A_RESULT
    if len(raw) > longest or len(text) > longest or text.count(" ") >= MOST_WORDS_OF_A_NAME:
        return True
    return not raw.isprintable() and any(sign in raw for sign in _LINE_BREAKS)


def is_untrusted(value: object, labels: ResultLabels, arguments: Mapping[str, object]) -> bool:
    """Whether a result has an untrusted leaf."""
    if labels.label == "untrusted" and not labels.fields:
        return any(one != "" for _, one in scalars(value))  # whatever their texts are
    return any(leaf.label == "untrusted" for leaf in leaves(value, labels, arguments))


def scalars(value: object, pointer: str = "") -> Iterator[tuple[str, object]]:
    """The scalars in an argument and the keys of its mappings, each with its pointer; null is none."""
    rest: list[tuple[str, object]] = [(pointer, value)]
    while rest:
        place, one = rest.pop()
        if isinstance(one, Mapping):
            for key in one:
                yield f"{_pointed(place, text_of(key))}/{KEYS}", key
            rest.extend(reversed([(_pointed(place, text_of(key)), item) for key, item in one.items()]))
        elif isinstance(one, list | tuple | set | frozenset):
            items = one if isinstance(one, list | tuple) else sorted(one, key=repr)
            rest.extend(reversed([(_pointed(place, str(number)), item) for number, item in enumerate(items)]))
        elif one is not None:
            yield place, one


def text_of(value: object) -> str:
    """A scalar as text: numbers as JSON writes them."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 4096:  # Python does not write very long integers in decimal
        return f"{value:x}"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return str(value) if isinstance(value, int | float | Decimal) else repr(value)


def _joined(field: str, name: str) -> str:
    short = name.replace("~", "~0").replace("/", "~1")
    # A field that is this long has no name in any manifest: what is cut off is compared with nothing.
    return f"{field}/{short}"[:DEEPEST_POINTER] if field else short[:DEEPEST_POINTER]


def _segment(name: str) -> str:
    """A key as a part of a pointer, on one line, and cut where it is long."""
    if len(name) > _LONGEST_SEGMENT:
        name = f"{name[: _LONGEST_SEGMENT - 1]}…"
    return f"/{visible(name).replace('~', '~0').replace('/', '~1')}"


def _pointed(pointer: str, name: str) -> str:
    return pointer if len(pointer) > DEEPEST_POINTER else pointer + _segment(name)
