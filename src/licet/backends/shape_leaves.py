"""The shapes that hold no other shapes: text, words, numbers, flags, and free JSON."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from licet.backends.shape_parts import (
    Located,
    Problems,
    Value,
    alternatives,
    described,
    misfit,
    nearest,
    number_of,
    text_of,
)
from licet.backends.yaml_nodes import Mapping, Node, Scalar, Sequence
from licet.backends.yaml_scalars import LARGEST_INT
from licet.backends.yaml_text import shown
from licet.core.needs import LARGEST_AMOUNT, amount
from licet.core.origin import Origin, Problem
from licet.core.scope import Malformed, visible
from licet.values import dataclass, field

__all__ = ["Flag", "Free", "Money", "OneOf", "Text", "Whole"]

_new = tuple.__new__  # half the cost of calling the class, and large files are mostly texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text that matches `pattern` whole and that `parse` accepts; never empty. Its value is what `parse` returns.

    `parse` refuses with a `ValueError`: `found …, expected …`, or with attributes `expected`, `found` and `hint`.
    """

    expected: str
    pattern: str = ""
    parse: Callable[[str], Any] | None = None
    examples: tuple[str, ...] = ()
    description: str = ""
    _regex: re.Pattern[str] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if self.pattern:
            # ASCII, because that is what `\d` and `\w` mean in the dialect of JSON Schema.
            object.__setattr__(self, "_regex", re.compile(self.pattern, re.ASCII))

    def fits(self, node: Node) -> bool:
        return text_of(node) is not None

    def read(self, node: Node, problems: Problems) -> Value | None:
        # The test of `text_of`, without its call: large files are mostly texts.
        text = node.text if type(node) is Scalar and type(node.value) is str else None
        if text is None:
            return misfit(self, node, problems)
        if not text or (self._regex is not None and self._regex.fullmatch(text) is None):
            problems.append(Problem(node.origin, shown(text) if text else "an empty text", self.expected))
            return None
        if self.parse is None:
            return Located(text, node.origin)
        try:
            return _new(Located, (self.parse(text), node.origin, None))
        except ValueError as error:
            problems.append(self._refusal(text, node.origin, error))
            return None

    def _refusal(self, text: str, origin: Origin, error: ValueError) -> Problem:
        if isinstance(expected := getattr(error, "expected", None), str):
            found, hint = getattr(error, "found", text), getattr(error, "hint", "")
            return Problem(origin, shown(str(found)), visible(expected), visible(str(hint)))
        said = visible(str(error))
        if parts := re.fullmatch(r"found (.+?), expected (.+?)(?:; (.+))?", said):
            return Problem(origin, parts[1], parts[2], parts[3] or "")
        return Problem(origin, shown(text), self.expected, said)

    def schema(self) -> dict[str, Any]:
        demands: dict[str, Any] = {"type": "string", "minLength": 1}
        if self.pattern:
            demands["pattern"] = f"^(?:{self.pattern})$"
        if self.examples:
            demands["examples"] = list(self.examples)
        return described(demands, self.description or self.expected)


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]
    description: str

    def __init__(self, *words: str, description: str = "") -> None:
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "description", description)

    @property
    def expected(self) -> str:
        return alternatives(map(shown, self.words))

    def fits(self, node: Node) -> bool:
        return text_of(node) is not None

    def read(self, node: Node, problems: Problems) -> Value | None:
        word = text_of(node)
        if word is None:
            return misfit(self, node, problems)
        if word in self.words:
            return Located(word, node.origin)
        problems.append(Problem(node.origin, shown(word), self.expected, nearest(word, self.words, problems)))
        return None

    def schema(self) -> dict[str, Any]:
        return described({"type": "string", "enum": list(self.words)}, self.description)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds, both included; `3.0` is whole, as it is in JSON Schema."""

    minimum: int = 0
    maximum: int = LARGEST_INT
    description: str = ""

    @property
    def expected(self) -> str:
        if self.minimum == self.maximum:
            return f"the number {self.minimum}"
        bounds = (
            f"of at least {self.minimum}" if self.maximum == LARGEST_INT else f"from {self.minimum} to {self.maximum}"
        )
        return f"a whole number {bounds}"

    def fits(self, node: Node) -> bool:
        return number_of(node) is not None

    def read(self, node: Node, problems: Problems) -> Value | None:
        number = number_of(node)
        if number is not None and self.minimum <= number <= self.maximum and number == int(number):
            return Located(int(number), node.origin)
        return misfit(self, node, problems)

    def schema(self) -> dict[str, Any]:
        return described({"type": "integer", "minimum": self.minimum, "maximum": self.maximum}, self.description)


@dataclass(frozen=True, slots=True)
class Money:
    """An amount from zero to a billion, without trailing zeros; small and coarse enough that sums stay exact."""

    description: str = ""

    expected = f"an amount from 0 to {LARGEST_AMOUNT} with at most 15 decimals"

    def fits(self, node: Node) -> bool:
        return number_of(node) is not None

    def read(self, node: Node, problems: Problems) -> Value | None:
        number = number_of(node)
        try:
            return misfit(self, node, problems) if number is None else Located(amount(number), node.origin)
        except Malformed:
            return misfit(self, node, problems)

    def schema(self) -> dict[str, Any]:
        return described({"type": "number", "minimum": 0, "maximum": LARGEST_AMOUNT}, self.description)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    description: str = ""

    expected = "`true` or `false`"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, bool)

    def read(self, node: Node, problems: Problems) -> Value | None:
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return Located(node.value, node.origin)
        return misfit(self, node, problems)

    def schema(self) -> dict[str, Any]:
        return described({"type": "boolean"}, self.description)


@dataclass(frozen=True, slots=True)
class Free:
    """Any JSON, as plain data (dict, list, str, int, float, bool, None), of at most `most` values."""

    most: int = 1000
    description: str = ""

    @property
    def expected(self) -> str:
        return f"at most {self.most} values"

    def fits(self, node: Node) -> bool:
        return True

    def read(self, node: Node, problems: Problems) -> Value | None:
        left = [self.most]
        data = _plain(node, left)
        if left[0] < 0:
            problems.append(Problem(node.origin, f"more than {self.most} values", self.expected))
            return None
        return Located(data, node.origin)

    def schema(self) -> dict[str, Any]:
        return described({}, self.description)


def _plain(node: Node, left: list[int]) -> Any:
    # The depth is bounded by whoever read the file; the number of values is bounded here.
    left[0] -= 1
    if left[0] < 0:
        return None
    if isinstance(node, Sequence):
        return [_plain(item, left) for item in node.items]
    if isinstance(node, Mapping):
        return {key: _plain(entry.node, left) for key, entry in node.entries.items()}
    return float(node.value) if isinstance(node.value, Decimal) else node.value
