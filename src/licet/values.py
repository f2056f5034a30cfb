"""Classes of values that never change: `dataclass` as the standard library has it, for less time at the start.

That one writes and compiles half a dozen methods for each class when it is declared. A command that a person waits for
declares some seventy of them, of which it needs a part: a fifth of its start went there. Here each method is written
when it is first asked for. Whoever asks for what the standard library keeps about a class gets that, made by the
standard library itself.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import field
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass", "field", "fields", "replace"]

_PARTS = "__licet_parts__"
_set = object.__setattr__


def _dataclass(*, frozen: bool, slots: bool, **how: bool) -> Callable[[type], type]:
    if not (frozen and slots):
        raise TypeError("values are frozen and have slots: take `dataclasses.dataclass` for anything else")
    return lambda plain: _value_class(plain, **how)


def _value_class(plain: type, *, init: bool = True, kw_only: bool = False, **shown: bool) -> type:
    """The class again, with slots instead of attributes of its own: they cannot be added to one that is there."""
    inherited = {part.name: part for base in plain.__mro__[:0:-1] for part in vars(base).get(_PARTS, ())}
    own = {part.name: part for part in _own_parts(plain, kw_only)}
    parts = tuple((inherited | own).values())
    said = {name: value for name, value in vars(plain).items() if name not in ("__dict__", "__weakref__")}
    standard = dataclasses.dataclass(frozen=True, init=init, kw_only=kw_only)
    kept = _methods(parts, **shown) | ({"__init__": _Later("__init__", _init)} if init else {})
    kept |= {name: _Later(name, _asked(standard, plain, said)) for name in _OF_STANDARD_LIBRARY}
    kept |= {name: said[name] for name in said if name not in own}  # what the class itself says stays
    kept |= {"__setattr__": _refuse, "__delattr__": _refuse, "__qualname__": plain.__qualname__, _PARTS: parts}
    kept["__slots__"] = tuple(name for name in own if name not in inherited)
    made = type(plain)(plain.__name__, plain.__bases__, kept)
    for method in kept.values():
        if isinstance(method, _Later):
            method.home = made
    return made


def _own_parts(plain: type, kw_only: bool) -> "Iterator[dataclasses.Field[Any]]":
    for name, kind in plain.__annotations__.items():
        given = vars(plain).get(name, dataclasses.MISSING)
        part = given if isinstance(given, dataclasses.Field) else field(default=given)
        part.name, part.type = name, kind
        if part.kw_only is dataclasses.MISSING:
            part.kw_only = kw_only
        yield part


class _Later:
    """An attribute of a class that is made when it is first asked for."""

    home: type

    def __init__(self, name: str, make: Callable[[type, str], Any]) -> None:
        self._name, self._make = name, make

    def __get__(self, value: object, asked: type | None = None) -> Any:
        made = self._make(self.home, self._name)
        setattr(self.home, self._name, made)
        return made.__get__(value, asked) if isinstance(made, FunctionType) else made


def _init(home: type, name: str) -> Any:
    """Write `__init__` the way the standard library does: no other is as fast."""
    parts: tuple[dataclasses.Field[Any], ...] = vars(home)[_PARTS]
    known: dict[str, Any] = {"set_": _set, "absent": dataclasses.MISSING}
    words, body = [], []
    for number, part in enumerate(parts):
        value = part.name
        if part.default_factory is not dataclasses.MISSING:
            known[f"make{number}"], default = part.default_factory, "=absent"
            value = f"make{number}() if {part.name} is absent else {part.name}" if part.init else f"make{number}()"
        elif part.default is not dataclasses.MISSING:
            known[f"default{number}"], default = part.default, f"=default{number}"
            value = part.name if part.init else f"default{number}"
        elif part.init:
            default = ""
        else:  # `__post_init__` sets it
            continue
        if part.init:
            words.append((part.kw_only, f"{part.name}{default}"))
        body.append(f" set_(self, {part.name!r}, {value})")
    named = [word for by_name, word in words if by_name]
    signature = ", ".join(
        ["self", *(word for by_name, word in words if not by_name), *(["*", *named] if named else [])]
    )
    if hasattr(home, "__post_init__"):
        body.append(" self.__post_init__()")
    made = _written(home, name, signature, body or [" pass"], known)
    made.__annotations__ = {part.name: part.type for part in parts if part.init} | {"return": None}
    return made


def _eq(home: type, name: str) -> Any:
    mine, theirs = (_tuple(owner, [part.name for part in _fields(home) if part.compare]) for owner in ("self", "other"))
    return _written(
        home, name, "self, other",
        [" if other.__class__ is self.__class__:", f"  return {mine} == {theirs}", " return NotImplemented"],
    )  # fmt: skip


def _hash(home: type, name: str) -> Any:
    hashed = [part.name for part in _fields(home) if (part.compare if part.hash is None else part.hash)]
    return _written(home, name, "self", [f" return hash({_tuple('self', hashed)})"])


def _tuple(owner: str, names: list[str]) -> str:
    return f"({''.join(f'{owner}.{name}, ' for name in names)})"


def _written(home: type, name: str, signature: str, body: list[str], known: dict[str, Any] | None = None) -> Any:
    known = {} if known is None else known
    exec("\n".join((f"def {name}({signature}):", *body)), known)  # noqa: S102 - our own text
    made = known[name]
    made.__qualname__, made.__module__ = f"{home.__qualname__}.{name}", home.__module__
    return made


def _methods(parts: "tuple[dataclasses.Field[Any], ...]", *, repr: bool = True) -> dict[str, Any]:  # noqa: A002
    shown = [part.name for part in parts if part.repr]

    @recursive_repr()
    def text(self: object) -> str:
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({told})"

    positional = tuple(part.name for part in parts if part.init and not part.kw_only)
    methods = {"__eq__": _Later("__eq__", _eq), "__hash__": _Later("__hash__", _hash), "__match_args__": positional}
    return methods | _COPIED | ({"__repr__": text} if repr else {})


def _refuse(value: object, name: str, *_: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"{type(value).__name__} values cannot be changed: {name}")


def _state(value: object) -> list[object]:
    return [getattr(value, part.name) for part in _fields(value)]


def _restore(value: object, state: list[object]) -> None:
    for part, held in zip(_fields(value), state, strict=True):
        _set(value, part.name, held)


_OF_STANDARD_LIBRARY = ("__dataclass_fields__", "__dataclass_params__")


def _asked(standard: Callable[[type], type], plain: type, said: dict[str, Any]) -> Callable[[type, str], Any]:
    """What the standard library makes of a class, of which it gets one of its own: it changes what it is given."""
    return lambda _, name: getattr(standard(type(plain)(plain.__name__, plain.__bases__, dict(said))), name)


def _fields(value: object) -> "tuple[dataclasses.Field[Any], ...]":
    parts: tuple[dataclasses.Field[Any], ...] = getattr(value, _PARTS)
    return parts


def _replace(value: Any, /, **changes: Any) -> Any:
    for part in _fields(value):
        if not part.init:
            if part.name in changes:
                raise TypeError(f"`{part.name}` follows from the others and cannot be given")
        elif part.name not in changes:
            changes[part.name] = getattr(value, part.name)
    return value.__class__(**changes)


# How pickles and copies are made, the last with changes.
_COPIED = {"__getstate__": _state, "__setstate__": _restore, "__replace__": _replace}

# Whoever checks types knows these three from the standard library, and these do the same.
if TYPE_CHECKING:
    from dataclasses import dataclass, fields, replace
else:
    dataclass, fields, replace = _dataclass, _fields, _replace
