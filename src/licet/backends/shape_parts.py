"""What all shapes share: located values, phrases for what was found instead, near spellings."""

from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from licet.backends.yaml_nodes import REFUSED, Mapping, Node, Scalar, Sequence
from licet.backends.yaml_scalars import UnsafeNumber, plain_value
from licet.backends.yaml_text import shown
from licet.core.origin import Origin, Problem

__all__ = ["Located", "Problems", "Shape", "Value"]

T = TypeVar("T")


class Located(NamedTuple, Generic[T]):
    """A checked value and where it stands; inside a mapping also where its key stands."""

    value: T
    origin: Origin
    key_origin: Origin | None = None


Value: TypeAlias = Located[Any]
Problems: TypeAlias = list[Problem]


class Shape(Protocol):
    """What a node must look like, said once for checking and for JSON Schema."""

    @property
    def expected(self) -> str:
        """The phrase that follows "expected"."""

    def fits(self, node: Node) -> bool:
        """Whether the node is of the right kind (text, number, list …), whatever it holds."""

    def read(self, node: Node, problems: Problems) -> Value | None:
        """The value of the node, or `None` and at least one problem more."""

    def schema(self) -> dict[str, Any]:
        """The same demands in JSON Schema."""


# A hostile file must not buy time in difflib: after so many problems nobody needs a near spelling, and where there are
# many words to compare with, the first few problems get one.
_ENOUGH = 100
_MOST_COMPARED = 20_000


def text_of(node: Node) -> str | None:
    """The text of a node that is text."""
    return node.text if isinstance(node, Scalar) and isinstance(node.value, str) else None


def number_of(node: Node) -> int | Decimal | None:
    """The number of a node that is one; booleans are none."""
    value = node.value if isinstance(node, Scalar) else None
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def misfit(shape: Shape, node: Node, problems: Problems) -> Value | None:
    """Report a node that cannot have this shape, with the smallest change that would give it; the value is none."""
    if not (isinstance(node, Scalar) and node.value is REFUSED):
        problems.append(Problem(node.origin, _found(node), shape.expected, _way_out(shape, node)))
    return None


def _found(node: Node) -> str:
    match node:
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"
        case Scalar(text="", quoted=False):
            return "nothing"
        case Scalar(value=None):
            return f"a null {shown(node.text)}"
        case Scalar(value=bool()):
            return f"a boolean {shown(node.text)}"
        case Scalar(value=str()):
            return f"the text {shown(node.text)}"
        case _:
            return f"a number {shown(node.text)}"


def _way_out(shape: Shape, node: Node) -> str:
    if not isinstance(node, Scalar) or shape.fits(node):
        return ""
    if not node.text:
        return "write `{}` if that is meant" if shape.fits(Mapping({}, node.origin)) else ""
    if shape.fits(Scalar(node.text, node.text, True, node.origin)):
        return "quote it if you mean the text"
    if node.value is not None and shape.fits(Sequence((node,), node.origin)):
        return "a list of one is written in `[` and `]`"
    try:
        bare = plain_value(node.text)
    except UnsafeNumber:
        return ""
    return "remove the quotes" if shape.fits(Scalar(node.text, bare, False, node.origin)) else ""


def nearest(word: str, words: Collection[str], problems: Problems) -> str:
    """The hint that names the word that was probably meant, if one is close."""
    meant = meant_by(word, words, problems)
    return f"did you mean {shown(meant)}?" if meant else ""


def meant_by(word: str, words: Collection[str], problems: Problems) -> str:
    """The word that was probably meant, if one is close."""
    if len(problems) > _ENOUGH or (len(problems) + 1) * len(words) > _MOST_COMPARED:
        return ""
    import difflib

    plain = {_folded(known): known for known in words}
    close = difflib.get_close_matches(_folded(word[:64]), plain, n=1)
    return plain[close[0]] if close else ""


def _folded(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "").replace(" ", "")


def alternatives(phrases: Iterable[str]) -> str:
    """`a`, `b` or `c`."""
    *most, last = (*phrases,) or ("nothing",)
    return f"{', '.join(most)} or {last}" if most else last


def described(demands: dict[str, Any], description: str) -> dict[str, Any]:
    """A schema with its description, if there is one."""
    return {"description": description, **demands} if description else demands
