"""Guesses the declarations of functions that are not tools yet, from their source. Nothing is imported or run.

A guess is made from calls of the standard library and of a few HTTP clients, with literal hosts, paths, programs and
variables. Functions of the same file that a function calls are included. Values that are computed, and the inside of
other libraries, are not seen, so a person must review each guess.
"""

import ast
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from licet.core.policy.effects import CLASSES, EffectClass, Level
from licet.policy_files.source.names import Function
from licet.policy_files.source.scopes import ANY, host_scope, is_secret, path_scope, program_scope, variable_scope
from licet.policy_files.source.text import SourceText
from licet.policy_files.source.values import FunctionValues, SourceNames, TextPrefix

MOST_FUNCTIONS = 100  # per file; more guesses could not be reviewed at once

Category = Literal["network", "secrets", "fs_reach.read", "fs_reach.write", "process", "env"]
_METHODS: dict[str, EffectClass] = {
    **dict.fromkeys(("get", "head", "options", "stream"), "read_only"),
    **dict.fromkeys(("post", "put", "patch"), "write_limited"),
    "delete": "full",
}
_CLIENTS = ("requests", "httpx", "aiohttp", "urllib3")
_SESSIONS = ("Client", "AsyncClient", "Session", "ClientSession", "PoolManager")
_PROGRAMS = {
    *(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")),
    "asyncio.create_subprocess_exec",
    *(f"os.{name}" for name in ("execv", "execve", "execvp", "execvpe", "spawnv", "spawnvp", "posix_spawn")),
}
_SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"} | {
    "asyncio.create_subprocess_shell"
}
# For each function: what it does to the paths in its first arguments.
_FILES: dict[str, tuple[str, ...]] = {
    **{f"os.{name}": ("read",) for name in ("listdir", "scandir", "stat", "walk", "readlink")},
    **{f"os.path.{name}": ("read",) for name in ("exists", "isfile", "isdir", "getsize", "getmtime")},
    **{f"os.{name}": ("write",) for name in ("mkdir", "makedirs", "truncate", "chmod", "utime")},
    **{f"os.{name}": ("delete",) for name in ("remove", "unlink", "rmdir", "removedirs")},
    **{f"os.{name}": ("delete", "write") for name in ("rename", "replace")},
    **{f"shutil.{name}": ("read", "write") for name in ("copy", "copy2", "copyfile", "copytree")},
    "shutil.move": ("delete", "write"),
    "shutil.rmtree": ("delete",),
    "glob.glob": ("read",),
    "glob.iglob": ("read",),
    "sqlite3.connect": ("write",),
}
_PATH_METHODS: dict[str, str] = {
    **dict.fromkeys(("read_text", "read_bytes", "iterdir", "glob", "rglob", "exists", "is_file", "is_dir"), "read"),
    **dict.fromkeys(("write_text", "write_bytes", "mkdir", "touch"), "write"),
    **dict.fromkeys(("unlink", "rmdir"), "delete"),
    **dict.fromkeys(("rename", "replace"), "delete"),
}
_ONLY_OF_PATHS = {"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rglob"}


class Touch(Struct, frozen=True):
    """One outside thing that a function uses: the category and scope to declare, and the call it was found in."""

    category: Category
    scope: str
    effect: EffectClass
    what: str
    line: int


class Guess(Struct, frozen=True):
    """A function that could be a tool, and the declaration that its source suggests."""

    function: str
    line: int  # where a decorator would be inserted
    touches: tuple[Touch, ...]

    @property
    def effect(self) -> EffectClass:
        """The weakest class that permits everything that was found."""
        return max((touch.effect for touch in self.touches), key=CLASSES.index, default="read_only")

    @property
    def sandbox(self) -> Level:
        """The level: `isolated` for code with its own input and output, `restricted` for the rest."""
        return "isolated" if self.touches else "restricted"

    def scopes(self, category: Category) -> list[str]:
        """The scopes under a key of the declaration; only `*` if the source does not show them."""
        found = sorted({touch.scope for touch in self.touches if touch.category == category})
        return [ANY] if ANY in found else found

    def seen(self, category: Category) -> str:
        """The calls that a key was guessed from."""
        return ", ".join(dict.fromkeys(touch.what for touch in self.touches if touch.category == category))


def guess_tools(text: SourceText) -> tuple[Guess, ...]:
    """Guess declarations for the public functions of a module without decorators, at most a hundred of them.

    Functions that `@tool` would refuse are left out, since the module could not be imported with such a declaration.
    """
    functions = {node.name: node for node in text.tree.body if isinstance(node, Function)}
    module = SourceNames(text)
    own = {name: (*_touches(node, module),) for name, node in functions.items()}
    called = {
        name: {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & functions.keys()
        for name, node in functions.items()
    }
    plain = (node for name, node in functions.items() if not name.startswith("_") and not node.decorator_list)
    public = [node for node in plain if _can_be_tool(node)]
    guesses = []
    for node in public[:MOST_FUNCTIONS]:
        reached, waiting = {node.name}, [node.name]
        while waiting:
            further = called[waiting.pop()] - reached
            reached |= further
            waiting += further
        touched = dict.fromkeys(touch for name in sorted(reached) for touch in own[name])
        guesses.append(Guess(node.name, node.lineno, tuple(touched)))
    return tuple(guesses)


def _can_be_tool(function: Function) -> bool:
    """Whether `@tool` accepts a function: only named arguments, no untyped context, and not a generator."""
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


def _touches(function: Function, module: SourceNames) -> Iterator[Touch]:
    scope = FunctionValues(function, module)
    environ = 0
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            yield from _called(node, scope)
        if isinstance(node, ast.Subscript) and module.dotted(node.value) == "os.environ":
            yield _variable(scope.prefix_of(node.slice), node)
            environ -= 1
        elif isinstance(node, ast.Attribute | ast.Name) and module.dotted(node) == "os.environ":
            environ += 1
        elif isinstance(node, ast.Call) and module.dotted(node.func).startswith("os.environ."):
            environ -= 1
    if environ > 0:  # it is used other than by a single name
        yield Touch("env", ANY, "read_only", "os.environ", function.lineno)


def _called(node: ast.Call, scope: FunctionValues) -> Iterator[Touch]:
    name = scope.module.dotted(node.func)
    first = node.args[0] if node.args else None
    named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    if name in ("os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault"):
        yield _variable(scope.prefix_of(first), node)
    elif name in ("open", "io.open", "codecs.open"):
        yield from _opened(first or named.get("file"), _argument(node, 1, "mode"), name, node, scope)
    elif name in _FILES:
        for argument, act in zip(node.args, _FILES[name], strict=False):
            yield _file(act, scope.prefix_of(argument), name, node)
    elif name in _PROGRAMS or name in _SHELLS:
        yield _program(name, first or named.get("args"), named.get("shell"), node, scope)
    elif name.partition(".")[0] in _CLIENTS or name.startswith("urllib.request."):
        yield from _request(name, node, scope)
    elif isinstance(node.func, ast.Attribute):
        yield from _method(node.func, node, scope)


def _argument(node: ast.Call, place: int, name: str) -> ast.expr | None:
    if len(node.args) > place:
        return node.args[place]
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def _method(func: ast.Attribute, node: ast.Call, scope: FunctionValues) -> Iterator[Touch]:
    """What a method call touches, if the object looks like a path, or the argument is a URL."""
    if func.attr in _METHODS or func.attr == "request":
        place = 1 if func.attr in ("request", "stream") and len(node.args) > 1 else 0
        url = scope.prefix_of(_argument(node, place, "url"))
        if url and url.is_url:
            yield _network(url, _effect(func.attr, node, scope), f".{func.attr}", node)
            return
    if func.attr == "open":
        path = scope.prefix_of(func.value)
        if path is not None:
            yield from _opened(func.value, _argument(node, 0, "mode"), "Path.open", node, scope)
    elif func.attr in _PATH_METHODS:
        path = scope.prefix_of(func.value)
        # `str` has methods of the same names, so the object must look like a path.
        if (path is not None and not scope.is_text(func.value)) or func.attr in _ONLY_OF_PATHS:
            yield _file(_PATH_METHODS[func.attr], path, f"Path.{func.attr}", node)
            if func.attr in ("rename", "replace"):
                yield _file("write", scope.prefix_of(node.args[0] if node.args else None), f"Path.{func.attr}", node)


def _request(name: str, node: ast.Call, scope: FunctionValues) -> Iterator[Touch]:
    """What a function of an HTTP client touches, or the creation of a session."""
    last = name.rpartition(".")[2]
    if last in _SESSIONS:
        base = scope.prefix_of(_argument(node, 1_000, "base_url"))
        if base is not None:
            yield _network(base, "read_only", name, node)
        elif not scope.has_urls:  # otherwise the calls of the session show the hosts
            yield _network(None, "read_only", name, node)
    elif last in _METHODS or last in ("request", "urlopen", "urlretrieve", "Request"):
        place = 1 if last in ("request", "stream") and len(node.args) > 1 else 0
        url = _argument(node, place, "url")
        followed = scope.followed(url)
        if not (isinstance(followed, ast.Call) and scope.module.dotted(followed.func) == "urllib.request.Request"):
            yield _network(scope.prefix_of(url), _effect(last, node, scope), name, node)


def _effect(method: str, node: ast.Call, scope: FunctionValues) -> EffectClass:
    if method == "request":
        stated = scope.prefix_of(node.args[0] if node.args else None)
        return _METHODS.get(stated.text.lower(), "write_limited") if stated else "write_limited"
    if method in ("urlopen", "Request"):
        return "write_limited" if _argument(node, 1, "data") is not None else "read_only"
    return _METHODS.get(method, "read_only")


def _network(url: TextPrefix | None, effect: EffectClass, what: str, node: ast.AST) -> Touch:
    return Touch("network", host_scope(url), effect, what, getattr(node, "lineno", 1))


def _opened(
    path: ast.expr | None, mode: ast.expr | None, what: str, node: ast.AST, scope: FunctionValues
) -> Iterator[Touch]:
    stated = scope.prefix_of(mode)
    letters = stated.text if stated else "r" if mode is None else "r+"
    found = scope.prefix_of(path)
    if set(letters) & set("wax+"):
        yield _file("write", found, what, node)
    if "r" in letters or "+" in letters or not set(letters) & set("wax"):
        yield _file("read", found, what, node)


def _file(act: str, path: TextPrefix | None, what: str, node: ast.AST) -> Touch:
    category: Category = "fs_reach.read" if act == "read" else "fs_reach.write"
    effects: dict[str, EffectClass] = {"read": "read_only", "write": "write_limited", "delete": "full"}
    return Touch(category, path_scope(path), effects[act], what, getattr(node, "lineno", 1))


def _program(
    name: str, program: ast.expr | None, shell: ast.expr | None, node: ast.AST, scope: FunctionValues
) -> Touch:
    through_shell = name in _SHELLS or (isinstance(shell, ast.Constant) and shell.value is True)
    word = "/bin/sh" if through_shell else program_scope(program, scope)
    return Touch("process", word, "read_only", name, getattr(node, "lineno", 1))


def _variable(name: TextPrefix | None, node: ast.AST) -> Touch:
    scope = variable_scope(name)
    category: Category = "secrets" if scope != ANY and is_secret(scope) else "env"
    return Touch(category, scope, "read_only", "os.environ", getattr(node, "lineno", 1))
