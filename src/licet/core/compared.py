"""Values with fields that equality leaves out, such as the place in a file where a rule is written."""

from typing import ClassVar

from msgspec import Struct


class Compared(Struct, frozen=True, eq=False):
    """A frozen value that is compared, hashed and shown by all fields except those in `_not_compared`."""

    _not_compared: ClassVar[frozenset[str]] = frozenset()

    @property
    def _key(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self._compared())

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key == other._key

    def __ne__(self, other: object) -> bool:
        return not self == other  # Struct has a `!=` of its own, which compares identities here

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._compared())
        return f"{type(self).__name__}({shown})"

    def _compared(self) -> tuple[str, ...]:
        return tuple(name for name in self.__struct_fields__ if name not in self._not_compared)
