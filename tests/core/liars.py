"""Values for attacks by tools: text that pretends to be other text, and objects whose methods raise."""

from typing import Any

# Python itself needs these to make and tell apart the values.
_KEPT = {"__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__delattr__", "__dir__", "__doc__"}
_KEPT |= {"__init_subclass__", "__subclasshook__", "__reduce__", "__reduce_ex__", "__getstate__"}
_LIES = [name for name in dir(str) if callable(getattr(str, name)) and name not in _KEPT]


class Liar(str):
    """Text whose methods, even equality and hash, are those of another text."""

    claimed: str

    def __new__(cls, true: str, claimed: str) -> "Liar":
        self = super().__new__(cls, true)
        self.claimed = claimed
        return self


class BrokenText(str):
    """Text whose methods all raise."""


def _lie(name: str) -> Any:
    return lambda self, *parts, **named: getattr(self.claimed, name)(*parts, **named)


def _fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no")


for _name in _LIES:
    setattr(Liar, _name, _lie(_name))
    setattr(BrokenText, _name, _fail)


class LyingBytes(bytes):
    """Bytes that decode to something else."""

    def decode(self, *_: object) -> str:
        return "/srv/ok"


class Broken:
    """An object whose methods all raise."""

    __fspath__ = __repr__ = __str__ = __eq__ = __hash__ = _fail


class FalseText:
    """An object that is not text, although its `__class__` is `str`."""

    __class__ = str  # type: ignore[assignment]
    __repr__ = __str__ = _fail
