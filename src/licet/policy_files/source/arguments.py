"""Reads the arguments of one declaration, such as `@tool(…)`, from its source: literals, each checked alone."""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from licet.core.algebra.domains import nearest
from licet.core.algebra.scope import Malformed, visible
from licet.core.origin import Origin, Problem
from licet.core.policy.tool import TOUCHES_NOTHING, ToolCapabilities
from licet.policy_files.source.names import Names, NotLiteral
from licet.policy_files.source.text import SourceText

MOST_ARGUMENTS = 50  # of one declaration
LONGEST_SHOWN = 300  # characters of a value in a message
LITERAL_HINT = "write it as a literal, or declare `needs:` in licet.yaml"
_NOT_EVALUATED = frozenset({"available"})  # a function, which is not part of what a tool touches


class DeclarationForm(Struct, frozen=True):
    """A way to declare a tool: how messages call it, its arguments with names, and a check of one of them.

    The check raises `Malformed`.
    """

    label: str
    arguments: tuple[str, ...]
    check: Callable[[str, Any], object]


class Given(Struct):
    """The arguments of a declaration: those that were read, those that were written, and the problems."""

    values: dict[str, Any]
    written: dict[str, ast.expr]
    problems: list[Problem]

    @property
    def sound(self) -> bool:
        """Whether no problem is an error."""
        return not any(problem.severity == "error" for problem in self.problems)


def read_arguments(
    text: SourceText,
    names: Names,
    call: ast.expr,
    function: str,
    form: DeclarationForm,
    origin: Origin,
    problems: Iterable[Problem],
    *,
    unnamed: int = 0,
) -> Given:
    """Read the arguments of a declaration that has some problems. The first `unnamed` ones are not read here."""
    given = Given({}, {}, list(problems))
    if isinstance(call, ast.Call):
        if len(call.args) + len(call.keywords) > MOST_ARGUMENTS:
            found = f"more than {MOST_ARGUMENTS} arguments in {form.label} of `{function}`"
            given.problems.append(Problem(origin, found, f"those that it has: {', '.join(form.arguments)}"))
        for item in call.args[unnamed:MOST_ARGUMENTS]:
            found = f"{names.excerpt(item)} without a name in {form.label} of `{function}`"
            given.problems.append(Problem(text.place(item), found, "arguments with names, such as `capabilities=`"))
        for keyword in call.keywords[:MOST_ARGUMENTS]:
            problem = _read_argument(text, names, function, keyword, form, given)
            given.problems += [problem] if problem else []
    given.problems += _touched_problems(text, function, given, origin)
    return given


def _touched_problems(text: SourceText, function: str, given: Given, origin: Origin) -> Iterator[Problem]:
    if given.sound and not given.values.keys() & {"capabilities", "needs"}:
        found = f"`{function}`, which does not say what it touches"
        yield Problem(origin, found, "`capabilities=` or `needs=`", TOUCHES_NOTHING)
    elif given.values.keys() >= {"capabilities", "needs"}:
        found = f"both `capabilities=` and `needs=` on `{function}`"
        yield Problem(text.place(given.written["needs"]), found, "one of the two")


def _read_argument(
    text: SourceText, names: Names, function: str, keyword: ast.keyword, form: DeclarationForm, given: Given
) -> Problem | None:
    """Read one argument, or return the problem."""
    key, origin = keyword.arg, text.place(keyword.value)
    if key is None:
        found = f"`**` of {names.excerpt(keyword.value)} in {form.label} of `{function}`"
        return Problem(origin, found, "arguments one by one", LITERAL_HINT)
    if key not in form.arguments:
        listed = ", ".join(f"`{name}`" for name in form.arguments)
        found = f"`{key}=` in {form.label} of `{function}`"
        return Problem(text.place(keyword), found, listed, nearest(key[:64], form.arguments))
    if key in given.written:
        return Problem(text.place(keyword), f"`{key}=` twice in {form.label} of `{function}`", "it once")
    given.written[key] = keyword.value
    if key in _NOT_EVALUATED:
        return None
    try:
        value = names.value(keyword.value)
        if key == "reuse" and not isinstance(value, bool):
            return Problem(origin, f"`reuse=` of `{function}`", "True or False")
        if isinstance(value, ToolCapabilities):
            value = value.as_mapping()
        if value is not None:
            # Check each argument alone, so that all problems of a declaration are reported at once.
            form.check(key, value)
            given.values[key] = value
    except NotLiteral as error:
        return not_literal(text, function, key, error)
    except Malformed as error:
        return malformed(origin, error)
    return None


def not_literal(text: SourceText, function: str, key: str, error: NotLiteral) -> Problem:
    """The problem of an argument whose value is not known without running the code."""
    return Problem(
        text.place(error.node), f"`{key}=` of `{function}` given by {error.found}", "a literal", LITERAL_HINT
    )


def malformed(origin: Origin, error: Malformed) -> Problem:
    """The problem of a wrong value."""
    return Problem(origin, f"`{_short(visible(error.found))}`", error.expected, _short(error.hint))


def _short(text: str) -> str:
    """Cut a text. A constant may be as long as the file, and thousands of tools may use it."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"
