"""One use in the source, and the rule that would declare it, as far as the arguments of the call show it."""

import ast
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from licet.core.algebra.capability import Capability
from licet.core.algebra.domains import STORAGE_KINDS, method_word
from licet.core.algebra.scope import Malformed
from licet.policy_files.source.scopes import ANY, host_scope, path_scope, program_scope, variable_scope
from licet.policy_files.source.values import ExpressionValues, TextPrefix
from licet.surfaces.lint import table

_NAMED_ARGUMENTS = {
    "fs": ("path", "file", "filename", "name", "src", "source", "top", "pathname", "database", "dirname"),
    "fs1": ("dst", "dest", "target"),
    "network": ("url", "host", "address"),
    "process": ("args", "program", "cmd", "path", "file", "name"),
    "env": ("key", "name"),
    "secret": ("reference",),
    "import": ("name", "mod_name"),
}
_READING = frozenset(
    f"O_{name}" for name in ("RDONLY", "CLOEXEC", "DIRECTORY", "NOFOLLOW", "NONBLOCK", "NOATIME", "NOCTTY", "BINARY")
)
_METHODS = ("get", "head", "options", "post", "put", "patch", "delete")


class Use(Struct, frozen=True):
    """One thing that a line of source uses."""

    kind: str  # as in `table.Effect`, and `secret` and `storage` of handles
    rule: str  # the rule that would declare it; empty for what no rule can declare
    exact: bool  # the source shows the complete path, host, program or variable
    what: str  # the call, such as `os.remove`
    line: int
    offset: int
    end_line: int
    is_raw: bool  # not through a handle
    called: bool = True  # False if it only stands as a value, which somebody else may call


def shown_name(what: str) -> str:
    """A full name as a reader of the source would write it."""
    for prefix, word in (("builtins.", ""), ("licet.Context.", "ctx."), ("licet.", "ctx.")):
        if what.startswith(prefix):
            return word + what.removeprefix(prefix)
    return what.removeprefix("pathlib.") if what.startswith("pathlib.Path.") else what


def argument_of(
    effect: table.Effect, call: ast.Call | None, given: list[ast.expr], of: list[ast.expr] | None
) -> ast.expr | None:
    """The argument that says which path, host, program or variable it is."""
    if effect.of_object:
        if of is not None:
            return of[0] if of else None
        return call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if effect.argument is None:
        return None
    before = given[: effect.argument + 1]
    if len(before) > effect.argument and not any(isinstance(one, ast.Starred) for one in before):
        return before[-1]
    domain = effect.kind.partition(":")[0]
    names = _NAMED_ARGUMENTS.get(f"{domain}{effect.argument or ''}") or _NAMED_ARGUMENTS.get(
        "fs" if domain == table.OPEN else domain, ()
    )
    return next((one.value for one in call.keywords if one.arg in names), None) if call is not None else None


def _keyword(call: ast.Call | None, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None) if call is not None else None


Rule = tuple[str, str, bool]  # the kind of use, the rule that declares it, and whether it is exact


def rules_of(
    effect: table.Effect,
    what: str,
    argument: ast.expr | None,
    call: ast.Call | None,
    given: list[ast.expr],
    values: ExpressionValues,
) -> Iterator[Rule]:
    """The rules that would declare what a call does; more than one if it does several things."""
    domain = effect.kind.partition(":")[0]
    prefix = values.prefix_of(argument) if argument is not None else None
    if domain == table.OPEN:
        yield from _opened(effect, what, call, given, prefix, argument, values)
    elif domain == "fs":
        if not (_in_memory(what, prefix) or _is_descriptor(argument)):
            yield _file_rule(effect.kind, prefix)
    elif domain == "network":
        yield _network_rule(effect, what, prefix, call, given, values)
    elif domain == "process":
        shell = _keyword(call, "shell")
        through_shell = isinstance(shell, ast.Constant) and bool(shell.value)
        program = effect.fixed or ("/bin/sh" if through_shell else "")
        scope = program or (program_scope(argument, values) if argument is not None else ANY)
        yield "process", f"process:exec:{scope}", scope != ANY
    elif domain == "env":
        scope = variable_scope(prefix)
        yield "env", f"env:read:{scope}", scope != ANY
    elif domain == "secret":
        yield _checked("secret", "secret:read", prefix.text if prefix and prefix.complete else ANY)
    elif domain == "storage":
        yield _storage_rule(what, call, values)
    elif domain == "import":
        yield "import", "", prefix is not None and prefix.complete and not prefix.text.startswith(".")
    elif domain == "scratch":
        folder = _keyword(call, "dir")
        yield ("scratch", "fs:write:*", False) if folder is None else ("fs:write", "fs:write:*", False)
    else:
        yield effect.kind, "", False


def _opened(
    effect: table.Effect,
    what: str,
    call: ast.Call | None,
    given: list[ast.expr],
    prefix: TextPrefix | None,
    argument: ast.expr | None,
    values: ExpressionValues,
) -> Iterator[Rule]:
    if _is_descriptor(argument) or _keyword(call, "fileobj") is not None:
        return  # an open file: it was opened elsewhere
    place = 0 if effect.of_object else 1
    mode: Any = given[place] if len(given) > place else _keyword(call, "mode")
    stated = values.prefix_of(mode) if mode is not None else None
    letters = stated.text.partition(":")[0] if stated and stated.complete else "r" if mode is None else "r+"
    if call is None or what == "os.open":
        letters = "r" if call is not None and mode is not None and _only_reads(mode) else "r+"
    if set(letters) & set("wax+"):
        yield _file_rule("fs:write", prefix)
    if "r" in letters or not set(letters) & set("wax"):
        yield _file_rule("fs:read", prefix)


def _only_reads(flags: ast.expr) -> bool:
    """Whether the flags of `os.open` are names, and none of them lets it write."""
    names = [
        getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(flags) if not isinstance(part, ast.BinOp)
    ]
    return "O_RDONLY" in names and not any(name.startswith("O_") and name not in _READING for name in names)


def _is_descriptor(argument: ast.expr | None) -> bool:
    return isinstance(argument, ast.Constant) and isinstance(argument.value, int)


def _in_memory(what: str, prefix: TextPrefix | None) -> bool:
    return what in ("sqlite3.connect", "aiosqlite.connect") and prefix is not None and prefix.text == ":memory:"


def _file_rule(kind: str, prefix: TextPrefix | None) -> Rule:
    scope = path_scope(prefix)
    return kind, f"{kind}:{scope}", prefix is not None and prefix.complete and scope != ANY


def _network_rule(
    effect: table.Effect,
    what: str,
    prefix: TextPrefix | None,
    call: ast.Call | None,
    given: list[ast.expr],
    values: ExpressionValues,
) -> Rule:
    host = ANY
    if effect.is_host:
        host = prefix.text if prefix and prefix.complete and prefix.text else ANY
    elif prefix is not None:
        host = host_scope(prefix)
    last = what.rpartition(".")[2]
    method = last if last in _METHODS else ""
    if what.startswith("licet."):
        stated = given[1] if len(given) > 1 else _keyword(call, "method")
        text = values.prefix_of(stated) if stated is not None else None
        method = "get" if stated is None else text.text if text and text.complete else ""
        if stated is None and call is None:
            method = ""
    if method:
        try:
            return _checked("network", "network:*", f"{method_word(method)}@{host}", host != ANY)
        except Malformed:
            pass
    return _checked("network", "network:*", host, host != ANY)


def _storage_rule(what: str, call: ast.Call | None, values: ExpressionValues) -> Rule:
    of = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr == "of" and of.args:
        kind = values.prefix_of(of.args[0])
        if kind and kind.complete and kind.text in STORAGE_KINDS:
            return "storage", f"storage:*:{kind.text}", True
    return "storage", "storage:*:*", False


def _checked(kind: str, beginning: str, scope: str, exact: bool | None = None) -> Rule:
    try:
        Capability(f"{beginning}:{scope}")
    except Malformed:
        return kind, f"{beginning}:{ANY}", False
    return kind, f"{beginning}:{scope}", scope != ANY if exact is None else exact
