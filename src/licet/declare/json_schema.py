"""Checks data against a JSON Schema that was written as data: of a WASM tool, or of the tools of an MCP server.

Both the schema and the data may be made to take forever. A check that is short, whatever the data is, runs in place and
says yes or no. All else runs in a process with limits of time and memory (`schema_process`): long checks, and the list
of errors after a no.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from licet.declare.arguments import InvalidArguments, checked_json
from licet.declare.patience import may_wait
from licet.declare.plain_json import PLAIN, data_again, plain_json
from licet.declare.schema_cost import LARGEST_PATTERN, SMALL_PATTERN, has_long_integer, values_in, weight_of
from licet.declare.schema_program import compile_schema, first_line

if TYPE_CHECKING:
    from licet.declare.schema_process import Answer

NO_FIT = "does not fit its schema"  # if no more is known
TOO_LONG = "cannot be checked against its schema: that takes too much time or memory"


class UnusableSchema(ValueError):
    """A JSON Schema that cannot be used: it is wrong, or it refers to another document."""


class SchemaCheck:
    """A JSON Schema, ready to check data. No other document is fetched for it.

    With `rules` it is a rule of a manifest, in which each format is enforced.
    """

    __slots__ = ("_largest_pattern", "_rules", "_schema", "_text", "_validator", "_weight", "unusable")

    def __init__(self, schema: Any, *, rules: bool = False) -> None:
        self._schema, self._rules = schema, rules
        self._text = b""
        self._weight = weight_of(schema, of_any_size=rules)  # of the operator's own: it was compiled when it was read
        self.unusable: ValueError | None = None  # why a rule cannot be used; of other schemas the process tells
        for self._largest_pattern in (SMALL_PATTERN, LARGEST_PATTERN) if rules else (SMALL_PATTERN,):
            try:
                self._validator, self.unusable = self._compiled() if self._weight else None, None
            except Exception as wrong:  # it cannot be used, or has a large pattern
                self._validator, self.unusable = None, ValueError(str(wrong))
            else:
                break

    def _compiled(self) -> Any:
        return compile_schema(self._schema, largest_pattern=self._largest_pattern, rules=self._rules)

    def fits(self, data: Any, text: bytes | None = None) -> bool | None:
        """Whether data fits, whose JSON may be known; None if that is not known here."""
        if self._validator is None or self._weight is None:
            return None
        if text is None and type(data) in PLAIN:
            size, values = 4 * len(data) if type(data) is str else 20, 1
        else:
            text = plain_json(data) if text is None else text
            size, values = len(text), values_in(text)
        if not self._weight.is_short(size, values, self._largest_pattern) or has_long_integer(data, text):
            return None
        try:
            fits: bool = self._validator.is_valid(data)
        except ValueError:  # data that the library does not take, such as very deep nesting
            return None
        return fits

    def answer(self, text: bytes) -> "Answer":
        """What a process says about the data with this JSON. Raises `Unfinished` in an event loop."""
        may_wait()
        from licet.declare.schema_process import Answer, ask

        try:
            self._text = self._text or msgspec.json.encode(self._schema)
        except (ValueError, RecursionError) as wrong:
            return Answer(False, unusable=str(wrong)[:200])
        return ask({"largest_pattern": LARGEST_PATTERN, "rules": self._rules}, self._text, text)

    def wrong_with(self, data: Any, text: bytes | None = None) -> str:
        """What is wrong with data; empty if nothing is. Raises `Unfinished` in an event loop if that takes longer."""
        try:
            text = plain_json(data) if text is None else text
        except ValueError:  # nested too deep
            return TOO_LONG
        if fits := self.fits(data, text):
            return ""
        answer = self.answer(text)
        if answer.unusable:
            return f"the JSON Schema cannot be used: {answer.unusable}"
        if answer.fits:
            return ""
        if answer.fits is None and fits is None:
            return TOO_LONG
        return "; ".join(f"{place}: {said}"[:300] if place else said for place, said, _ in answer.errors) or NO_FIT


def check_usable(schema: Mapping[str, Any]) -> None:
    """Raise `UnusableSchema` if a schema of the operator's own cannot be used."""
    try:
        compile_schema(dict(schema), largest_pattern=LARGEST_PATTERN, rules=False)
    except Exception as wrong:
        raise UnusableSchema(first_line(wrong)) from None


def schema_validator(schema: Mapping[str, Any]) -> Callable[[object], dict[str, Any]]:
    """A function that checks arguments against a JSON Schema; a schema that cannot be used refuses every call.

    It raises `Unfinished` in an event loop if that takes longer.
    """
    check = cache(lambda: SchemaCheck(dict(schema)))  # when it is first called: a server may have hundreds of tools

    def validate(given: object) -> dict[str, Any]:
        text = checked_json(given)
        arguments: dict[str, Any] = data_again(text)
        if wrong := check().wrong_with(arguments, text):
            raise InvalidArguments(f"what was sent {wrong}" if wrong in (NO_FIT, TOO_LONG) else wrong)
        return arguments

    return validate
