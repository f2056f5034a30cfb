"""Guesses the declarations of functions that are not tools yet, by what `licet lint` finds in them.

Each guess is one that `lint` accepts: the weakest class, and a level at which what was found works. Nothing is imported
or run. What `lint` does not see is not guessed either, so a person must review each guess.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import split_text
from licet.core.algebra.scope import Malformed
from licet.core.algebra.scope import name as checked_name
from licet.core.policy.effects import CLASSES, EffectClass, Level
from licet.core.policy.tool import FROM_PERSONALITY, spec_of
from licet.policy_files.source.scopes import ANY, is_secret
from licet.surfaces.lint.follow import Follower, Reached
from licet.surfaces.lint.judge import judge
from licet.surfaces.lint.scopes import Function
from licet.surfaces.lint.source_file import SourceFile
from licet.surfaces.lint.use import Use

MOST_FUNCTIONS = 100  # per file; more guesses could not be reviewed at once

Category = Literal["network", "secrets", "fs_reach.read", "fs_reach.write", "process", "env", "storage"]
_CATEGORIES: Mapping[str, Category] = {
    "fs:read": "fs_reach.read",
    "fs:write": "fs_reach.write",
    "fs:delete": "fs_reach.write",
    "network": "network",
    "process": "process",
    "env": "env",
    "secret": "secrets",
    "storage": "storage",
}
# Behind walls the method of a request is not seen; the class says it anyway.
_METHOD_NEEDS: Mapping[str, EffectClass] = {
    **dict.fromkeys(("post", "put", "patch"), "write_limited"),
    "delete": "full",
}
_FAILS_BEHIND_WALLS = frozenset({"LIC201", "LIC202", "LIC203", "LIC204"})  # declared, and without a handle


class Touch(Struct, frozen=True):
    """One outside thing that a function uses: the category and scope to declare, and the call it was found in."""

    category: Category
    scope: str
    what: str
    line: int


class Guess(Struct, frozen=True):
    """A function that could be a tool, and the declaration that its source suggests."""

    function: str
    line: int  # where a decorator would be inserted
    touches: tuple[Touch, ...]
    effect: EffectClass
    sandbox: Level | None  # None if what was found works at no level with walls

    def scopes(self, category: Category) -> list[str]:
        """The scopes under a key of the declaration; only `*` if the source does not show them."""
        found = sorted({touch.scope for touch in self.touches if touch.category == category})
        return [ANY] if ANY in found else found

    def seen(self, *categories: str) -> str:
        """The calls that a key was guessed from."""
        return ", ".join(dict.fromkeys(touch.what for touch in self.touches if touch.category in categories))

    @property
    def capabilities(self) -> dict[str, Any]:
        """The keys to declare, with their values."""
        found: dict[str, Any] = {}
        if hosts := self.scopes("network"):
            found["network"] = {"allowed_hosts": hosts}
        if secrets := self.scopes("secrets"):
            found["secrets"] = secrets
        for name in ("read", "write"):
            if paths := self.scopes("fs_reach.read" if name == "read" else "fs_reach.write"):
                found.setdefault("fs_reach", {})[name] = FROM_PERSONALITY if paths == [ANY] else paths
        if programs := self.scopes("process"):
            found["process"] = {"allowed_binaries": programs}
        if variables := self.scopes("env"):
            found["env"] = variables
        if kinds := self.scopes("storage"):
            found["storage"] = {"scope": kinds[0] if kinds != [ANY] else "session"}
        return found


def guess_tools(file: SourceFile) -> tuple[Guess, ...]:
    """Guess declarations for the public functions of a module without decorators, at most a hundred of them.

    Functions that `@tool` would refuse are left out, since the module could not be imported with such a declaration.
    """
    functions = [node for node in file.text.tree.body if isinstance(node, Function)]
    plain = (node for node in functions if not node.name.startswith("_") and not node.decorator_list)
    public = [node for node in plain if _can_be_tool(node)]
    follower = Follower()
    return tuple(_accepted(node, follower.of_tool(file, node)) for node in public[:MOST_FUNCTIONS])


def _accepted(function: Function, reached: Reached) -> Guess:
    """The guess with the weakest class that `lint` accepts, and with a level if everything works behind walls."""
    uses = list(reached.uses())
    touches = tuple(dict.fromkeys(touch for use in uses if (touch := _touch(use)) is not None))
    walled: Level = "isolated" if uses else "restricted"
    guess = Guess(function.name, function.lineno, touches, "full", None)
    weakest = max((CLASSES.index(_METHOD_NEEDS.get(_method(use), CLASSES[0])) for use in uses), default=0)
    for effect in CLASSES[weakest:]:
        spec = spec_of(name=function.name, capabilities=guess.capabilities, effect=effect, sandbox=walled)
        errors = {finding.code for finding in judge(spec, walled, reached) if finding.severity == "error"}
        if errors <= _FAILS_BEHIND_WALLS:
            return replace(guess, effect=effect, sandbox=None if errors else walled)
    return guess


def _method(use: Use) -> str:
    return split_text(use.rule)[2].partition("@")[0] if use.kind == "network" and "@" in use.rule else ""


def _touch(use: Use) -> Touch | None:
    category = _CATEGORIES.get(use.kind)
    if category is None or not use.rule:
        return None
    scope = split_text(use.rule)[2]
    if category == "network":
        scope = scope.rpartition("@")[2]
    # In a secret reference a `/` has a meaning of its own.
    if category == "env" and scope != ANY and is_secret(scope) and "/" not in scope:
        category = "secrets"
    return Touch(category, scope, use.what, use.line)


def _can_be_tool(function: Function) -> bool:
    """Whether `@tool` accepts a function: its name, only named arguments, no untyped context, and not a generator."""
    try:
        checked_name(function.name)
    except Malformed:
        return False
    given = function.args
    if given.posonlyargs or given.vararg or given.kwarg:
        return False
    if any(one.arg in ("ctx", "context") and one.annotation is None for one in (*given.args, *given.kwonlyargs)):
        return False
    return not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(function))


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
