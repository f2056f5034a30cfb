"""Frozen values that hold mappings which nobody can change: how they are pickled and copied.

Python carries no such mapping by itself. What is remembered along the way stays behind: a copy works it out again.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from licet.values import fields


class Carried:
    """Mixed into a frozen dataclass, it lets its values be pickled and copied."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[type, dict[str, Any]]]:
        given = (part.name for part in fields(self) if part.init)  # type: ignore[arg-type]
        return _made, (type(self), {name: _thawed(getattr(self, name)) for name in given})


class _Thawed(dict[Any, Any]):
    """A mapping that nobody can change, on its way."""


def _made(kind: type, parts: dict[str, Any]) -> Any:
    return kind(**{name: _frozen(part) for name, part in parts.items()})


def _thawed(value: Any) -> Any:
    if type(value) is MappingProxyType:
        return _Thawed({key: _thawed(part) for key, part in value.items()})
    return _each(value, _thawed)


def _frozen(value: Any) -> Any:
    if type(value) is _Thawed:
        return MappingProxyType({key: _frozen(part) for key, part in value.items()})
    return _each(value, _frozen)


def _each(value: Any, turned: Callable[[Any], Any]) -> Any:
    if type(value) in (tuple, list):
        return type(value)(turned(part) for part in value)
    return {key: turned(part) for key, part in value.items()} if type(value) is dict else value
