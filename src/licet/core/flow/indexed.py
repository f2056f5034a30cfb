"""Where in one result does a value stand? The text of a result, made ready to be searched by label.

Whole leaves and parts of leaves are found by `str.find` in one joined text for each label: automata and tables would
cost more to build than all the questions that a session asks.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from unicodedata import is_normalized

from msgspec import Struct

from licet.core.flow.labels import Leaf, below, is_untrusted, leaves, scalars, text_of
from licet.core.flow.text import folded, in_word, is_plain, lowered, normal, stands_in, words
from licet.core.flow.written_values import (
    date_of,
    dates_in,
    digits_of,
    number_of,
    numbers_in,
    path_parts,
    url_key,
    url_keys_in,
)
from licet.core.late_pattern import late_pattern
from licet.core.limits import (
    LONGEST_JUDGED,
    LONGEST_NAME_IN_A_RESULT,
    MOST_COMPARED,
    MOST_WORDS_OF_A_NAME,
    MOST_WORDS_PARSED,
    SHORT_VALUE,
)
from licet.core.policy.flow import ResultLabels, Role, SecretSource

_SEPARATOR = "\n"  # no text in normal form has one
_NEXT_SENTENCE = late_pattern(r"\.(?=[A-Z])")  # in the words of a task, which often have no space there
_WORD_ENDS = late_pattern(r"[ \n]")
_DIGIT = late_pattern("[0-9]")


class Reading(Struct, frozen=True):
    """One result that was handed over. Its value must not change afterwards: it is read when a question comes."""

    receipt: str
    tool: str  # empty for what reached the model without a call
    value: object  # plain data
    arguments: Mapping[str, object] = {}  # those of the call that returned it
    labels: ResultLabels = ResultLabels()
    secret: tuple[SecretSource, ...] = ()  # the secret sources that its call met
    from_task: bool = False  # whether its call took all its arguments from the task
    about: str = ""
    size: int = 0  # bytes of it as JSON, about
    is_untrusted: bool | None = None  # whether it has an untrusted leaf; None if nobody has looked yet
    private: bool = False  # whether it is private although no label says so, for `trifecta`
    is_cut: bool = False  # whether the caller got the beginning of something longer, of which nothing is kept here


class Sought(Struct, frozen=True):
    """A value that is looked for, in each form in which it is compared."""

    text: str  # in normal form
    folds: bool  # whether upper case makes no difference
    number: Decimal | None = None
    date: tuple[int, int] | None = None
    url: str | None = None  # one key for all spellings of a URL
    host: str = ""

    @property
    def compared(self) -> str:
        """The text in the form of the text that it is looked for in."""
        return folded(self.text) if self.folds else self.text

    @property
    def is_number(self) -> bool:
        """Whether it is a number rather than a name."""
        return self.number is not None


def sought(value: object, role: Role | None = None) -> Sought | None:
    """How a value of an argument is compared; None if nothing can be found that is the same: its origin is unknown.

    What is compared is what is sent, so text with other signs than its normal form has is never found.
    """
    if isinstance(value, bool) or value is None:
        return None
    if not isinstance(value, str):
        return Sought(text_of(value), False, number_of(value))
    raw = str.__str__(value)
    if not is_plain(raw) or not (text := normal(raw)):
        return None
    if (role == "link" and ("." in text or ":" in text)) or "://" in text or text[:4].casefold() == "www.":
        key = url_key(text)
        if key is not None:
            return Sought(text, False, url=key, host=key[2:].partition("/")[0].partition(":")[0])
    date = date_of(text) if role == "when" else None
    return Sought(text, role == "to" or "@" in text, _canonical_number(text), date)


def _canonical_number(text: str) -> Decimal | None:
    """The number of a text that is spelled as numbers are: `0013` is another account than `13`, `1e3` may be a name."""
    whole, dot, rest = text.removeprefix("-").partition(".")
    plain = whole.isascii() and whole.isdecimal() and (whole == "0" or whole[0] != "0")
    if not plain or (dot and not (rest.isascii() and rest.isdecimal())):
        return None
    return number_of(text)


class Searched:
    """Some leaves with one label, as one text."""

    __slots__ = ("_above", "_dates", "_leaves", "_segments", "_text", "fields", "records")

    def __init__(self, found: list[Leaf]) -> None:
        texts = [leaf.text for leaf in found]
        plain = _SEPARATOR.join(["", *texts, ""])
        low = plain.lower()
        if not plain.isascii() and (len(low) != len(plain) or not is_normalized("NFKC", low)):
            low = _SEPARATOR.join(["", *map(lowered, texts), ""])
        self._text = (plain, plain if low == plain else low)
        self._leaves: list[str] | None = None
        self._dates: dict[tuple[int, int], list[int]] | None = None
        self._above = [leaf.above for leaf in found]
        self._segments = [leaf.segment for leaf in found]
        self.fields = [leaf.field for leaf in found]
        self.records = [leaf.record for leaf in found]

    @property
    def size(self) -> int:
        return len(self._text[0])

    def pointer(self, number: int) -> str:
        """The pointer of a leaf."""
        return below(self._above[number], self._segments[number])

    @property
    def texts(self) -> list[str]:
        """Its leaves in normal form."""
        if self._leaves is None:
            self._leaves = self._text[0].split(_SEPARATOR)[1:-1]
        return self._leaves

    def find(self, one: Sought, *, task: bool = False) -> Iterator[int]:
        """The numbers of the leaves that a value stands in, each once or more; in the words of a `task` if so said."""
        if one.url is not None:
            yield from self._with_url(one, task=task)
            return
        yield from self._with_text(one, task=task)
        if one.number is not None:
            yield from self._with_number(one.number, inside=task or len(one.text) >= SHORT_VALUE)
        if one.date is not None:
            yield from self._all_dates().get(one.date, ())

    def _with_text(self, one: Sought, *, task: bool) -> Iterator[int]:
        text, value = self._text[one.folds], one.compared
        if not value:
            return
        is_short = len(value) < SHORT_VALUE and not task
        needle = f"{_SEPARATOR}{value}{_SEPARATOR}" if is_short else value
        number, counted = -1, 0
        place = text.find(needle)
        while place >= 0:
            inside = place + 1 if is_short else place
            number += text.count(_SEPARATOR, counted, inside)
            counted = inside
            end = text.find(_SEPARATOR, inside)
            leaf = text[text.rfind(_SEPARATOR, 0, inside) + 1 : end]
            if is_short or stands_in(value, leaf, task=task, cased=self.texts[number] if task else None):
                yield number
            place = text.find(needle, end)

    def _with_url(self, one: Sought, *, task: bool) -> Iterator[int]:
        """The leaves with a URL. Only the words with its host are parsed, and of a flood of these the first ones."""
        plain, text = self._text
        if not one.host or len(plain) != len(text):  # then a place in the one is not the same place in the other
            plain = text
        number, counted, done, tried = -1, 0, 0, set[tuple[int, str]]()
        place = text.find(one.host) if one.host else -1
        while place >= 0 and len(tried) < MOST_WORDS_PARSED:
            number += text.count(_SEPARATOR, counted, place)
            counted = place
            begin = max(text.rfind(" ", done, place), text.rfind(_SEPARATOR, done, place), done - 1) + 1
            ends = _WORD_ENDS.search(text, place)
            done = ends.start() if ends else len(text)
            word = plain[begin:done]
            if (number, word) not in tried:
                tried.add((number, word))
                if one.url in url_keys_in(word) or (task and one.url in url_keys_in(_NEXT_SENTENCE.sub(" ", word))):
                    yield number
            place = text.find(one.host, done)

    def _with_number(self, wanted: Decimal, *, inside: bool) -> Iterator[int]:
        """The leaves that are a number, or have it `inside`. Only words with its digits are parsed."""
        digits = digits_of(wanted)
        text, number, counted, done = self._text[0], -1, 0, 0
        pattern = re.compile(digits) if digits else None
        match = pattern.search(text) if pattern else None
        while pattern and match:
            place = match.start()
            number += text.count(_SEPARATOR, counted, place)
            counted = place
            begin = max(text.rfind(" ", done, place), text.rfind(_SEPARATOR, done, place), done - 1) + 1
            ends = _WORD_ENDS.search(text, place)
            done = ends.start() if ends else len(text)
            word = text[begin:done]
            is_whole = text[begin - 1] == text[done : done + 1] == _SEPARATOR
            if (is_whole and number_of(word) == wanted) or (inside and wanted in numbers_in(word)):
                yield number
            match = pattern.search(text, done)

    def _all_dates(self) -> dict[tuple[int, int], list[int]]:
        if self._dates is None:
            self._dates = {}
            for place, text in enumerate(self.texts):
                for date in dates_in(text) if _DIGIT.search(text) else ():
                    self._dates.setdefault(date, []).append(place)
        return self._dates


class Task:
    """What the user said, turn by turn."""

    __slots__ = ("_said", "_words", "text")

    def __init__(self, text: str = "", turns: tuple[str, ...] = ()) -> None:
        self.text = text
        self._words: frozenset[str] | None = None
        said = [text for turn in turns if (text := normal(turn))]
        self._said = Searched([Leaf("", "", "", text, text, "trusted", 0, False) for text in said])

    @property
    def words(self) -> frozenset[str]:
        """Its words in lower case. They are taken out of it once."""
        if self._words is None:
            self._words = words(self.text)
        return self._words

    def has(self, one: Sought | None) -> bool:
        """Whether a value stands in the task."""
        return one is not None and next(self._said.find(one, task=True), None) is not None

    def has_all_of(self, value: object) -> bool:
        """Whether a value stands in the task: whole, or if it is a path, its folder and its name."""
        one = sought(value)
        if self.has(one):
            return True
        parts = path_parts(one.text) if one is not None and one.url is None else None
        return parts is not None and all(part != "" and self.has(sought(part)) for part in parts)


class Place(Struct, frozen=True):
    """A leaf in which a value was found."""

    leaves: Searched
    group: str  # `trusted`, `identity`, `made` or `untrusted`
    number: int

    @property
    def field(self) -> str:
        """The field that it is, without indices."""
        return self.leaves.fields[self.number]

    @property
    def record(self) -> int:
        """The record that it is in."""
        return self.leaves.records[self.number]

    @property
    def pointer(self) -> str:
        """Its pointer, for people."""
        return self.leaves.pointer(self.number)


_GROUPS = ("trusted", "identity", "made", "untrusted")


class Indexed:
    """One result as it is searched. Its text is taken out of it when that is first asked for."""

    __slots__ = (
        "_arguments",
        "_asked",
        "_index",
        "_is_untrusted",
        "_named",
        "_of_task",
        "_pieces",
        "_records",
        "_secrets",
        "_size",
        "reading",
    )

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._index: tuple[Mapping[str, Searched], Mapping[str, str]] | None = None
        self._size: int | None = None
        self._secrets: tuple[SecretSource, ...] | None = None
        self._is_untrusted = reading.is_untrusted
        self._arguments: Searched | None = None
        self._pieces: tuple[str, ...] = ()  # the texts of the arguments, case folded
        self._of_task: Task | None = None
        self._named: frozenset[int] = frozenset()
        self._asked: frozenset[int] = frozenset()
        self._records: tuple[Mapping[str, int], Mapping[int, str]] | None = None

    @property
    def is_untrusted(self) -> bool:
        """Whether it has an untrusted leaf."""
        if self._is_untrusted is None:
            reading = self.reading
            self._is_untrusted = is_untrusted(reading.value, reading.labels, reading.arguments)
        return self._is_untrusted

    @property
    def secrets_read(self) -> tuple[SecretSource, ...]:
        """The secret sources of which it has something."""
        if self._secrets is None:
            self._secrets = tuple(one for one in self.reading.secret if was_read(one, self.reading))
        return self._secrets

    @property
    def is_looked_at(self) -> bool:
        """Whether it is known what it taints, and which secret sources it has something of."""
        return self._is_untrusted is not None and self._secrets is not None

    def look(self) -> None:
        """Look for what a session has to know of it although its text is not remembered."""
        _ = self.is_untrusted, self.secrets_read

    @property
    def is_indexed(self) -> bool:
        """Whether its text was taken out."""
        return self._index is not None

    def prepare(self) -> None:
        """Look for all that a question may ask first."""
        _ = self.size
        self.look()

    @property
    def groups(self) -> Mapping[str, Searched]:
        """Its leaves by what they give to a value that stands in them."""
        return self._indexed()[0]

    @property
    def size(self) -> int:
        """How many characters of text it has."""
        if self._size is None:
            self._size = sum(group.size for group in self.groups.values())
        return self._size

    @property
    def secret_values(self) -> Mapping[str, str]:
        """Each secret value in it, case folded, and its pointer."""
        return self._indexed()[1]

    def _indexed(self) -> tuple[Mapping[str, Searched], Mapping[str, str]]:
        if self._index is None:
            reading, secret, is_untrusted = self.reading, dict[str, str](), False
            found: dict[str, list[Leaf]] = {name: [] for name in _GROUPS}
            for leaf in leaves(reading.value, reading.labels, reading.arguments):
                is_untrusted = is_untrusted or leaf.label == "untrusted"
                if reading.secret and is_secret(leaf, reading):
                    secret.setdefault(folded(leaf.text), leaf.pointer)
                if leaf.is_echo or not leaf.text or isinstance(leaf.value, bool):
                    continue  # an echo has the origins of the argument, which is found wherever that came from
                label = "trusted" if leaf.label == "authored" else leaf.label
                if label != "ack":
                    found[label].append(leaf)
                if reading.labels.creates and label in ("ack", "trusted"):
                    found["made"].append(leaf)
            self._index = {name: Searched(several) for name, several in found.items() if several}, secret
            self._is_untrusted = is_untrusted
        return self._index

    def find_in(self, name: str, one: Sought) -> Iterator[Place]:
        """Where a value stands in one group; nowhere if the arguments of its call have it: that says nothing.

        They have it if it stands in one of them, or if nothing but separators is left of it without their texts: so
        says the model, not the tool, that `first` and `last` make an address. What the tool adds is its own word, and
        a short number is no part of another number, or page 1 would hide mail 11.
        """
        group = self.groups[name]
        is_first = True
        for number in group.find(one):
            if is_first and self._in_arguments(one):
                return
            is_first = False
            yield Place(group, name, number)

    def has(self, one: Sought) -> bool:
        """Whether a value stands in it."""
        return any(next(self.find_in(name, one), None) is not None for name in self.groups)

    def _in_arguments(self, one: Sought) -> bool:
        if self._arguments is None:
            texts = [normal(text_of(value)) for name in self.reading.arguments for value in self._scalars(name)]
            self._arguments = Searched([Leaf("", "", "", text, text, "trusted", 0, False) for text in texts if text])
            self._pieces = tuple(dict.fromkeys(filter(None, map(folded, texts))))
        loose = Sought(one.text, True, one.number, one.date, one.url, one.host)
        if next(self._arguments.find(loose), None) is not None:
            return True
        spellings = (one.text,) if one.url is None else (one.text.partition("://")[2] or one.text, one.url)
        return any(_is_made_of(folded(text), self._pieces, is_number=one.is_number) for text in spellings)

    def _scalars(self, name: str) -> list[object]:
        return [value for _, value in scalars(self.reading.arguments[name]) if not isinstance(value, bool)]

    def records_of_task(self, task: Task) -> tuple[frozenset[int], frozenset[int]]:
        """The records that a task names by a trusted or identity leaf, and those by a short untrusted one."""
        if self._of_task is not task:
            self._named = self._records_in(task, "trusted") | self._records_in(task, "identity")
            self._asked = self._records_in(task, "untrusted")
            self._of_task = task
        return self._named, self._asked

    def _records_in(self, task: Task, name: str) -> frozenset[int]:
        group = self.groups.get(name)
        if group is None or not task.text:
            return frozenset()
        found: set[int] = set()
        stand: dict[str, bool] = {}
        for text, record, field in zip(group.texts, group.records, group.fields, strict=True):
            if record not in found and not field.endswith("#keys"):
                if text not in stand:
                    stand[text] = _is_name(text) and task.has(Sought(text, "@" in text))
                if stand[text]:
                    found.add(record)
        return frozenset(found)

    def record_at(self, pointer: str) -> str:
        """The record of a leaf for a person to read, each part with its field; cut where it is long.

        All records are made at the first question: a call may have thousands of values that are asked about.
        """
        if self._records is None:
            numbers: dict[str, int] = {}
            parts: dict[int, list[str]] = {}
            lengths: dict[int, int] = {}
            for leaf in leaves(self.reading.value, self.reading.labels, self.reading.arguments):
                numbers.setdefault(leaf.pointer, leaf.record)
                if lengths.get(leaf.record, 0) <= LONGEST_JUDGED and not leaf.field.endswith("#keys"):
                    text = leaf.text[: LONGEST_JUDGED + 1]
                    parts.setdefault(leaf.record, []).append(f"{leaf.field}: {text}" if leaf.field else text)
                    lengths[leaf.record] = lengths.get(leaf.record, 0) + len(parts[leaf.record][-1])
            self._records = numbers, {record: "; ".join(one)[:LONGEST_JUDGED] for record, one in parts.items()}
        numbers_of, texts = self._records
        return texts.get(numbers_of[pointer], "") if pointer in numbers_of else ""


def is_secret(leaf: Leaf, reading: Reading) -> bool:
    """Whether a leaf is one that a policy calls secret. Text in place of a record may be any of its fields."""
    return any(
        not one.tool
        or not one.fields
        or not leaf.field
        or any(leaf.field == field or leaf.field.startswith(f"{field}/") for field in one.fields)
        for one in reading.secret
    )


def _is_made_of(text: str, pieces: tuple[str, ...], *, is_number: bool) -> bool:
    """Whether pieces stand in a text, and no letter and no digit of it is outside of all of them.

    The work is bounded: a text in which they stand too often counts as made of them, so it has no origin.
    """
    covered, work, stands = bytearray(not in_word(char) for char in text), 0, False
    for piece in pieces:
        if is_number and len(piece) < SHORT_VALUE:
            continue
        work += len(text)
        at, done = text.find(piece), 0
        while at != -1:
            begin, end = max(at, done), at + len(piece)
            covered[begin:end] = b"\x01" * (end - begin)
            done, stands = end, True
            work += len(piece)
            if work > MOST_COMPARED:
                return True
            at = text.find(piece, at + 1)
    return stands and all(covered)


def _is_name(text: str) -> bool:
    """Whether a leaf may name its record: a number or a very short text stands in a task by chance."""
    if not SHORT_VALUE <= len(text) <= LONGEST_NAME_IN_A_RESULT or number_of(text) is not None:
        return False
    return text.count(" ") < MOST_WORDS_OF_A_NAME


def was_read(source: SecretSource, reading: Reading) -> bool:
    """Whether a result has what a source calls secret. A source without fields is secret as a whole."""
    if reading.is_cut or not source.tool or not source.fields:
        return True
    return any(
        not leaf.field or any(leaf.field == field or leaf.field.startswith(f"{field}/") for field in source.fields)
        for leaf in leaves(reading.value, reading.labels, reading.arguments)
    )
