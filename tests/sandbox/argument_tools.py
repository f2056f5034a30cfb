"""Tools whose arguments are more than JSON says: each tells what it was given."""

import dataclasses
import datetime
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    SecretBytes,
    SecretStr,
    StringConstraints,
)

from licet import tool


class Color(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str = Field(alias="Name")
    amount: Decimal = Decimal("1.50")
    password: SecretStr = SecretStr("none")


class Choice(BaseModel):
    value: int = Field(validation_alias=AliasChoices("v", "val"))


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: set[str] = {"sit"}


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


def told(value: Any) -> Any:
    """A value with everything that JSON would lose of it."""
    if isinstance(value, SecretStr | SecretBytes):
        return [type(value).__name__, str(value.get_secret_value())]
    if isinstance(value, BaseModel):
        return [type(value).__name__, [[name, told(held)] for name, held in value]]
    if isinstance(value, set | frozenset):
        return [type(value).__name__, sorted(map(repr, value))]
    if isinstance(value, list | tuple):
        return [type(value).__name__, [told(held) for held in value]]
    if isinstance(value, dict):
        return [type(value).__name__, [[repr(key), told(held)] for key, held in value.items()]]
    return [type(value).__name__, repr(value)]


NOTHING = object()
ORDER = Order(Name="default")


@tool(needs=[], effect="read_only")
def aliased(order: Order, source: Annotated[str, Field(alias="from")]) -> Any:
    """An argument under another name than its parameter's, beside a model."""
    return [told(order), told(source)]


@tool(needs=[], effect="read_only")
def several_names(choice: Choice, to: Annotated[Decimal, Field(validation_alias=AliasChoices("a", "b"))]) -> Any:
    """Arguments that have several names."""
    return [told(choice), told(to)]


@tool(needs=[], effect="read_only")
def secrets(password: SecretStr, key: SecretBytes) -> Any:
    """What shows itself as stars."""
    return [told(password), told(key)]


@tool(needs=[], effect="read_only")
def moments(day: datetime.date, at: datetime.datetime, span: datetime.timedelta, zone: datetime.time) -> Any:
    """Dates and times."""
    return [told(day), told(at), told(span), told(zone)]


@tool(needs=[], effect="read_only")
def numbers(amount: Decimal, many: list[Decimal], either: Decimal | float | int | str, whole: int, half: float) -> Any:
    """Numbers of all kinds."""
    return [told(amount), told(many), told(either), told(whole), told(half)]


@tool(needs=[], effect="read_only")
def words(color: Color, size: Size, letter: Literal["a", 1, True], either: Color | str) -> Any:
    """Words of a list."""
    return [told(color), told(size), told(letter), told(either)]


@tool(needs=[], effect="read_only")
def many(sizes: set[int], fixed: frozenset[Decimal], pair: tuple[int, str], named: dict[int, Color]) -> Any:
    """More than lists."""
    return [told(sizes), told(fixed), told(pair), told(named)]


@tool(needs=[], effect="read_only")
def octets(raw: bytes, encoded: Base64Bytes, inner: Json[list[int]], it: uuid.UUID) -> Any:
    """What JSON writes as text."""
    return [told(raw), told(encoded), told(inner), told(it)]


@tool(needs=[], effect="read_only")
def turned(
    once: Annotated[int, AfterValidator(lambda number: number + 1)],
    before: Annotated[str, BeforeValidator(lambda text: f"<{text}>")],
    trimmed: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)],
    made: Annotated[int, AfterValidator(complex)],
) -> Any:
    """Arguments of which hints make something else; twice would be once too often."""
    return [told(once), told(before), told(trimmed), told(made)]


@tool(needs=[], effect="read_only")
def shapes(animal: Annotated[Cat | Dog, Field(discriminator="kind")], point: Point, orders: list[Order]) -> Any:
    """Models of several shapes."""
    return [told(animal), told(point), told(orders)]


@tool(needs=[], effect="read_only")
def left_out(day: datetime.date, nothing: Any = NOTHING, color: Color = Color.RED, order: Order = ORDER) -> Any:
    """Defaults that no JSON carries, beside something that was given."""
    return [told(day), nothing is NOTHING, color is Color.RED, told(order)]
