"""What does a manifest say that was written from the signatures of tools alone, by one rule for all tools?

The rule reads names and types, and nothing else: no task, no attack, no result. It is what a user gets who labels
nothing by hand, so it is never changed to please a suite. `reviewed.py` is the place for what a person would write.

- *Class.* A tool whose name begins with a verb of `READS` only reads; every other tool writes.
- *Role.* The words of a parameter's name say its role, by `role_of`. What is not text needs none: a number is bounded
  by the schema, not traced. Text of a writing tool that no word explains is a `choice`, so it must come from the task.
- *Label.* Without `returns`, none: all that a tool returns is untrusted. With it, by `label_of`: what is not text is
  trusted, ids and times are, an address is an identity, and all other text stays untrusted. A field that is a mapping
  has the labels of the types of its keys and values.
"""

import re
import types
from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel, EmailStr


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READS = _words(
    "browse check count describe display download fetch find get inspect list load lookup open peek preview query read "
    "search show summarize view"
)
REMOVES = _words("cancel clear delete destroy discard drop erase kick purge remove revoke trash uninstall")
CREATES = _words("add book create generate make new post publish register reserve schedule upload write")
SETS = _words("change configure edit modify set update")
# What a user says who wants something gone, or a credential changed: the beginnings of words.
REMOVING_WORDS = ("cancel", "clear", "delet", "destroy", "discard", "drop", "eras", "kick", "purg", "remov", "revok")
CREDENTIAL_WORDS = ("credential", "login", "passcode", "passphrase", "password", "pin", "secret", "token")

IDS = _words("id ids identifier identifiers uid uuid")
URLS = _words("href link links uri url urls webpage website")
CREDENTIALS = _words("credential credentials passcode passphrase password passwd pin secret token")
CODES = _words("code otp verification")
TIMES = _words("date dates day days deadline due end month start time times timestamp until when year")
PEOPLE = _words(
    "account address addressee assignee attendee attendees author bcc beneficiary cc channel channels contact contacts "
    "creator email emails guest guests iban invitee invitees member members organizer owner participant participants "
    "payee people person phone receiver receivers recipient recipients sender to user username users"
)
OBJECTS = _words("attachment attachments directory document documents file files filename folder folders path paths")
TEXT = _words(
    "body caption comment content contents description label location memo message note notes place purpose reason "
    "remark subject summary text title topic venue"
)
NAMES = _words("name names nickname")
DIRECTORIES = _words("channels colleagues contacts directory employees groups members people users")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_NOT_TEXT = (bool, int, float, complex, Decimal, Enum, date, time, timedelta)


class Signature(Struct, frozen=True):
    """A tool as its signature shows it: its name, the types of its parameters, and the type of what it returns."""

    name: str
    parameters: Mapping[str, Any]
    returns: Any = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its name."""
        return words_of(self.name)

    @property
    def reads_only(self) -> bool:
        """Whether it writes nothing, by its verb."""
        return _begins(self, READS)

    @property
    def is_networked(self) -> bool:
        """Whether it opens an address that it is given."""
        return any(URLS.intersection(words_of(name)) for name in self.parameters)

    @property
    def acts(self) -> bool:
        """Whether a call of it can do what an attacker wants: it writes, or opens an address."""
        return not self.reads_only or self.is_networked

    @property
    def destinations(self) -> tuple[str, ...]:
        """Its parameters that say where something goes: who receives it, or which address is opened or written."""
        roles = {name: role_of(self, name, annotation) for name, annotation in self.parameters.items()}
        return tuple(name for name, role in roles.items() if role == "to" or (role and URLS & {*words_of(name)}))


def flow_of(tools: Iterable[Signature], *, returns: bool, preset: str = "guarded") -> dict[str, Any]:
    """The key `flow:` of a manifest for these tools. `returns`: label results by their types."""
    flow: dict[str, Any] = {"preset": preset}
    if returns:
        labels = {one.name: found for one in tools if (found := labels_of(one)) is not None}
        if labels:
            flow["results"] = labels
    return flow


def admissions_of(tools: Iterable[Signature], *, returns: bool) -> dict[str, dict[str, Any]]:
    """The key `capabilities: tools:` of a manifest: of each tool, the roles of its arguments and who must ask for it.

    `returns`: tie each reference to the fields that give such ids.
    """
    tools = tuple(tools)
    admitted = {}
    for one in tools:
        arguments: dict[str, Any] = {}
        for name, annotation in one.parameters.items():
            role = role_of(one, name, annotation)
            if role:
                arguments[name] = {"flow": role}
                if role == "ref" and returns and (given := giving(name, one, tools)):
                    arguments[name]["of"] = list(given)
        admission: dict[str, Any] = {"args": arguments} if arguments else {}
        if asked_by := asked_by_of(one):
            admission["asked_by"] = list(asked_by)
        admitted[one.name] = admission
    return admitted


def role_of(tool: Signature, name: str, annotation: Any) -> str:
    """The role of a parameter; empty if it needs none."""
    words = words_of(name)
    known = frozenset(words)
    is_id = bool(words) and words[-1] in IDS
    if tool.reads_only:
        return "link" if known & URLS else ""
    if known & CREDENTIALS:
        return "value"
    if is_id:
        return "ref"
    if not _holds_text(annotation):
        return ""
    by_word = (
        (URLS, "value"),
        (CODES, "code"),
        (TIMES, "when"),
        (PEOPLE, "ref" if _begins(tool, REMOVES) else "to"),
        (OBJECTS, "content" if _begins(tool, CREATES) else "ref"),
        (TEXT, "content"),
        (NAMES, "value" if _begins(tool, SETS) else "content"),
    )
    return next((role for among, role in by_word if known & among), "value" if _begins(tool, SETS) else "choice")


def asked_by_of(tool: Signature) -> tuple[str, ...]:
    """The beginnings of words of which a task must have one: for tools that remove, or set a credential."""
    if tool.reads_only:
        return ()
    if _begins(tool, REMOVES):
        return REMOVING_WORDS
    named = {word for name in tool.parameters for word in words_of(name)}
    return CREDENTIAL_WORDS if named & CREDENTIALS else ()


def giving(name: str, tool: Signature, tools: Iterable[Signature]) -> tuple[str, ...]:
    """The fields, as `tool:field`, that give ids such as this parameter takes: `file_id` by tools that return files."""
    kind = {word for word in words_of(name) if word not in IDS} or {*tool.words[1:]}
    found = []
    for one in tools:
        model = _model_of(one.returns)
        if model is not None and kind & {*words_of(model.__name__)}:
            ids = (field for field in model.model_fields if words_of(field) in (("id",), ("uid",), ("uuid",)))
            found += [f"{one.name}:{field}" for field in ids]
    return tuple(found)


def labels_of(tool: Signature) -> Any:
    """The entry of a tool in `results`; None: no label, so all is untrusted."""
    returned = _plain(tool.returns)
    if not tool.reads_only and (not _takes_id(tool) or _model_of(returned) is None):
        # It says what was done, and of what it made. A tool that takes an id may show what was there before.
        creates = _begins(tool, CREATES) and not _takes_id(tool)
        return {"label": "ack", "creates": True} if creates else "ack"
    if DIRECTORIES & {*tool.words}:
        return "trusted"
    model = _model_of(returned)
    if model is not None:
        return dict(_fields(model)) or None
    item = _item(returned)
    if item is not None and get_origin(item) is not dict:
        label = label_of(tool.words[1:], item)
        return None if label == "untrusted" else label
    return None


def label_of(words: Iterable[str], annotation: Any) -> str:
    """The label of a field, by the words of its name and by its type."""
    annotation, words = _plain(annotation), tuple(words)
    if isinstance(annotation, type) and issubclass(annotation, _NOT_TEXT):
        return "trusted"
    if get_origin(annotation) is Literal:
        return "trusted"
    if words and words[-1] in IDS:
        return "trusted"
    if annotation is EmailStr or PEOPLE.intersection(words):
        return "identity"
    return "trusted" if TIMES.intersection(words) else "untrusted"


def words_of(name: str) -> tuple[str, ...]:
    """The words of an identifier, in lower case: `senderEmail` and `sender_email` have the same."""
    return tuple(word.lower() for word in _WORD.findall(name))


def _begins(tool: Signature, verbs: frozenset[str]) -> bool:
    return tool.words[:1] != () and tool.words[0] in verbs


def _takes_id(tool: Signature) -> bool:
    return any(words and words[-1] in IDS for words in map(words_of, tool.parameters))


def _fields(model: type[BaseModel], before: str = "") -> Iterable[tuple[str, str]]:
    for name, field in model.model_fields.items():
        held = _item(_plain(field.annotation))
        if isinstance(held, type) and issubclass(held, BaseModel):
            if held is not model:
                yield from _fields(held, f"{before}{name}/")
        elif dict in (held, get_origin(held)):
            # By their types alone: nothing says whether the name of the field is about its keys or about its values.
            of_keys, of_values = (label_of((), one) for one in get_args(held) or (Any, Any))
            if {of_keys, of_values} != {"untrusted"}:
                yield f"{before}{name}", of_values
                yield f"{before}{name}/#keys", of_keys
        elif held is not None:
            label = label_of(words_of(name), held)
            if label != "untrusted":
                yield f"{before}{name}", label


def _model_of(annotation: Any) -> type[BaseModel] | None:
    held = _item(_plain(annotation))
    return held if isinstance(held, type) and issubclass(held, BaseModel) else None


def _item(annotation: Any) -> Any:
    """The type of an element of a list, or the type itself; None for a union, which has no one type."""
    annotation = _plain(annotation)
    if get_origin(annotation) in (list, tuple, set, frozenset):
        inner = [one for one in get_args(annotation) if one is not ...]
        return _item(inner[0]) if len(inner) == 1 else None
    return None if get_origin(annotation) in (Union, types.UnionType) else annotation


def _plain(annotation: Any) -> Any:
    """A type without `Annotated` and without `None`."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        held = [one for one in get_args(annotation) if one is not type(None)]
        return _plain(held[0]) if len(held) == 1 else annotation
    return annotation


def _holds_text(annotation: Any) -> bool:
    """Whether values of a type may have free text in them; a type that is not known may."""
    held = _item(annotation)
    if held is None:
        return any(map(_holds_text, get_args(_plain(annotation))))
    if get_origin(held) is Literal:
        return False
    return not (isinstance(held, type) and issubclass(held, (*_NOT_TEXT, type(None))))
