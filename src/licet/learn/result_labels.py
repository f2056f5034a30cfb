"""Which fields of results could be labelled `trusted`, from what tools have returned? For `licet learn --ledger`.

A string that is not an id, a time or a number in every result stays untrusted, and nothing is ever proposed as
`authored` or `identity`: what is in a result does not show who vouches for it. Proposals are comments for a person to
review, since somebody who knows of them could have made a text look like an id.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from licet.assemble.recorded_calls import RecordedCall, remembered
from licet.core.flow.labels import KEYS, UNTRUSTED, leaves, reads_like_a_letter
from licet.core.flow.written_values import date_of, number_of
from licet.core.policy.keys import FLOW
from licet.core.policy.manifest import Manifest
from licet.learn.limits import LEAST_OF_FIELD, LONGEST_ID, MOST_FIELDS, MOST_FIELDS_NAMED
from licet.policy_files.additions import Entry
from licet.policy_files.draft import word

# An id has a digit, and no sign that text has; a short one also needs a name that says so.
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ID = re.compile(r"(?=[^0-9]{0,63}[0-9])[A-Za-z0-9]+(?:[-_:.#][A-Za-z0-9]+){0,7}")
_ID_NAME = re.compile(r"(?:.*(?:_|-|(?<=[a-z])(?=[IUGH])))?(?:ids?|uuid|guid|sha|hash|digest)", re.IGNORECASE)
_FIELD = re.compile(r"[A-Za-z0-9_.~-]{1,64}(?:/[A-Za-z0-9_.~-]{1,64}){0,7}")  # that a manifest can name on one line
_SEVERAL = {"id": "ids", "time": "times", "number": "numbers"}


class _Seen(Struct):
    """What was seen in one field."""

    kinds: dict[str, int] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)  # the first different ones
    is_text: bool = False  # whether one of them was something else

    @property
    def kind(self) -> str:
        """What all of its values are; empty if they are different, or too few."""
        total = sum(self.kinds.values())
        if self.is_text or len(self.kinds) != 1 or total < LEAST_OF_FIELD:
            return ""
        (kind,) = self.kinds
        return kind if kind == "number" or len(self.values) >= LEAST_OF_FIELD else ""


class Labelled(Struct, frozen=True):
    """What is proposed for the results of one tool."""

    tool: str
    results: int
    trusted: Mapping[str, str]  # by field: `id`, `time` or `number`
    untrusted: tuple[str, ...]  # the other fields
    why_not: str = ""  # nothing is proposed

    @property
    def entry(self) -> Entry:
        """The line of a policy, as a comment."""
        if "" in self.trusted:  # a result that is a value, or a list of values
            value = "trusted"
        else:
            value = f"{{{', '.join(f'{word(name)}: trusted' for name in self.trusted)}}}"
        return Entry(("flow", "results"), word(self.tool), self._comment, off=True, value=value)

    @property
    def _comment(self) -> str:
        *kinds, last = [several for kind, several in _SEVERAL.items() if kind in self.trusted.values()]
        found = f"{', '.join(kinds)} and {last}" if kinds else last
        seen = f"only {found} in {self.results} {'result' if self.results == 1 else 'results'}"
        named = [name for name in self.untrusted if _FIELD.fullmatch(name)][:MOST_FIELDS_NAMED]
        if not named:
            return seen
        more = f" and {len(self.untrusted) - len(named)} more" if len(self.untrusted) > len(named) else ""
        return f"{seen}; untrusted: {', '.join(named)}{more}"

    def document(self) -> dict[str, object]:
        """The same as plain data."""
        why = {"why_not": self.why_not} if self.why_not else {}
        stays = {"untrusted": self.untrusted, **why}
        return {"tool": self.tool, "results": self.results, "trusted": dict(self.trusted), **stays}


def proposed_labels(calls: Iterable[RecordedCall], manifest: Manifest) -> tuple[Labelled, ...]:
    """What the results in a ledger suggest for each tool of a manifest, by name."""
    seen: dict[str, dict[str, _Seen]] = {}
    results: dict[str, int] = {}
    for call in calls:
        tool = call.entry.tool
        if not (call.succeeded and call.is_kept) or tool not in manifest.admissions:
            continue
        results[tool] = results.get(tool, 0) + 1
        _look(remembered(call, manifest), call.arguments or {}, seen.setdefault(tool, {}))
    return tuple(_proposed(manifest, tool, number, seen[tool]) for tool, number in sorted(results.items()))


def _look(value: object, arguments: Mapping[str, object], seen: dict[str, _Seen]) -> None:
    for leaf in leaves(value, UNTRUSTED, arguments):
        if len(seen) > MOST_FIELDS or leaf.field == KEYS or leaf.field.endswith(f"/{KEYS}"):
            continue
        one = seen.setdefault(leaf.field, _Seen())
        if leaf.is_echo:  # it says what the caller said
            continue
        kind = _kind(leaf.field, leaf.value, leaf.text)
        if not kind:
            one.is_text = True
        one.kinds[kind] = one.kinds.get(kind, 0) + 1
        if len(one.values) < LEAST_OF_FIELD:
            one.values.add(leaf.text)


def _kind(name: str, value: object, text: str) -> str:
    """Whether a leaf is a number, a time or an id; empty for any other string."""
    if not isinstance(value, str):
        return "number"
    if len(value) > LONGEST_ID or reads_like_a_letter(value, text, "trusted") or value.strip() != text:
        return ""
    if number_of(text) is not None:
        return "number"
    if date_of(text) is not None:
        return "time"
    is_id = _UUID.fullmatch(text) or (_ID.fullmatch(text) and _ID_NAME.fullmatch(name.rpartition("/")[2]))
    return "id" if is_id else ""


def _proposed(manifest: Manifest, tool: str, results: int, seen: Mapping[str, _Seen]) -> Labelled:
    kinds = {name: one.kind for name, one in seen.items() if one.kind and (not name or _FIELD.fullmatch(name))}
    untrusted = tuple(name for name in seen if name not in kinds)
    why = ""
    if tool in FLOW.of(manifest).results:
        why = "the policy labels it already"
    elif len(seen) > MOST_FIELDS:
        why = f"it has more than {MOST_FIELDS} fields, so their names are data"
    elif not kinds or ("" in kinds and len(seen) > 1):
        why = f"no field has ids, times or numbers alone, in at least {LEAST_OF_FIELD} values"
    return Labelled(tool, results, {} if why else kinds, tuple(seen) if why else untrusted, why)


def entries_for(found: Iterable[Labelled]) -> Iterator[Entry]:
    """The lines that are proposed."""
    return (one.entry for one in found if one.trusted)
