"""What the code of one function or module touches by itself: uses, calls, imports, and what is not known.

Follows a tool from its function into the helpers that it calls and the modules that it imports.

Calls and other mentions of project functions are followed. The methods of a class count if the class is used and
something names them. Code at module level counts for every tool of the modules that import it.
"""

import ast
import sys
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from licet.core.values import Origin
from licet.source import raw_io
from licet.source.limits import MOST_REACHED_FUNCTIONS
from licet.source.names import (
    LOOKUPS,
    NAMESPACES,
    REFLECTING,
    held_by,
    meaning,
    type_of,
    values_in,
)
from licet.source.raw_io import Use, argument_of, rules_of, shown_name
from licet.source.scopes import VALUE, Function, Scope, absolute, with_parents
from licet.source.source_files import Class, Code, Held, Instance, Meaning, Named, Package, SourceFile, Value

_WHOLE = frozenset({"os.environ", "os.environb", "ctypes.cdll", "ctypes.windll", "ctypes.pythonapi"})
_ASKS_FOR_TYPES = {"builtins.isinstance": 1, "builtins.issubclass": 1, "typing.cast": 0, "builtins.hasattr": 0}


class Step(Struct, frozen=True, eq=False):
    """A call, or another mention, of code of the project."""

    to: Code | Class | SourceFile
    line: int


class Touched(Struct, frozen=True):
    """What the code of one function or module does by itself."""

    uses: tuple[Use, ...]
    modules: tuple[Use, ...]  # imports of modules that do nothing but input and output
    steps: tuple[Step, ...]
    packages: frozenset[str]  # that are imported, and neither of the project nor of the standard library
    attributes: frozenset[str]  # all attributes that are named, which may be methods of classes
    escaped: frozenset[str]  # handles that are passed to code that was not read: `fs`, `fetch` …, or `Context`


def touched_by(scope: Scope, file: SourceFile) -> Touched:
    """What the code of a scope, and of the functions inside it, touches."""
    reader = _Reader(file)
    waiting = [scope]
    while waiting:
        one = waiting.pop()
        reader.read(one)
        waiting += one.inner
        waiting += one.classes.values()
    uses = sorted(reader.uses, key=lambda use: (use.line, use.offset, use.kind))
    return Touched(
        tuple(dict.fromkeys(uses)),
        tuple(reader.modules),
        tuple(reader.steps),
        frozenset(reader.packages),
        frozenset(reader.attributes),
        frozenset(reader.escaped),
    )


class _Reader:
    """Collects what scopes of one file do."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self.uses: list[Use] = []
        self.modules: list[Use] = []
        self.steps: list[Step] = []
        self.packages: set[str] = set()
        self.attributes: set[str] = set()
        self.escaped: set[str] = set()

    def read(self, scope: Scope) -> None:
        file = self._file
        self.attributes |= scope.attributes
        accounted: set[ast.AST] = set(scope.bases)  # expressions that stand for nothing by themselves
        at_module = isinstance(scope.node, ast.Module)
        for node in scope.imports:
            self._import(node)
        for mark in scope.decorators:
            self._decorator(mark, meaning(mark, scope, file))
        for made in scope.classes:
            self._metaclass(made, scope)
        for subscript in scope.subscripts:
            self._subscript(subscript, scope, at_module, accounted)
        for call in scope.calls:
            self._call(call, meaning(call.func, scope, file), scope, at_module, accounted)
        aliased = _aliased(scope)
        meaningless: set[str] = set()  # most names are of local values; each is looked up once
        for load in scope.loads:
            if isinstance(load, ast.Name) and load.id in meaningless:
                continue
            found = meaning(load, scope, file)
            if found is None and isinstance(load, ast.Name):
                meaningless.add(load.id)
            elif found is not None and load not in accounted and not (load in aliased and _is_followed(found)):
                self._mention(load, found, scope, at_module)

    def _metaclass(self, node: ast.ClassDef, scope: Scope) -> None:
        """The methods of a metaclass run when the class is made."""
        for keyword in node.keywords:
            found = meaning(keyword.value, scope, self._file) if keyword.arg == "metaclass" else None
            if isinstance(found, Class | Code):
                self.steps.append(Step(found, node.lineno))

    def _decorator(self, mark: ast.expr, found: Meaning) -> None:
        if isinstance(found, Code | Class):
            self.steps.append(Step(found, mark.lineno))

    def _subscript(self, node: ast.Subscript, scope: Scope, at_module: bool, accounted: set[ast.AST]) -> None:
        file = self._file
        found = meaning(node.value, scope, file)
        match found:
            case Named(name) if name in _WHOLE:
                effects = tuple(replace(effect, argument=0) for effect in raw_io.uses()[name])
                return self._use(name, effects, node, scope, [node.slice])
            case Value(kind) if kind.startswith("licet."):
                self.escaped.add(kind.removeprefix("licet."))
                return None
            case Held() if not at_module:
                return self._held(found, node.lineno)
            case Named(name):
                if not (name == "builtins" or raw_io.hides(name)):
                    return None
            case _:
                called = node.value.func if isinstance(node.value, ast.Call) else None
                space = meaning(called, scope, file) if called is not None else None
                if not (isinstance(space, Named) and space.name in NAMESPACES):
                    return None
        if not isinstance(node.ctx, ast.Load):
            accounted.update((node.value, *getattr(node.value, "args", ())))
            return None
        result = meaning(node, scope, file)
        if result is not None:
            accounted.update((node.value, *getattr(node.value, "args", ())))
            if node not in accounted:
                self._mention(node, result, scope, at_module)
        elif isinstance(found, Named):
            self._hidden(found.name, node)
        return None

    def _mention(self, node: ast.expr, found: Meaning, scope: Scope, at_module: bool) -> None:
        match found:
            case Named(name):
                self._named_value(name, node, scope)
            case Value(kind) if kind.startswith("licet."):
                self.escaped.add(kind.removeprefix("licet."))
            case Code() | Class() if not at_module:  # a list of functions at module level calls none of them
                self.steps.append(Step(found, node.lineno))
            case Held() if not at_module:
                self._held(found, node.lineno)
            case Package(file):
                self.steps.append(Step(file, node.lineno))

    def _named_value(self, name: str, node: ast.expr, scope: Scope) -> None:
        """A full name that stands as a value: whoever gets it may call it with anything."""
        whole = name if name in _WHOLE else name.rpartition(".")[0]
        if whole in _WHOLE:
            self._use(whole, raw_io.uses()[whole], node, scope, [])
        elif name in raw_io.handles():
            self._use(name, raw_io.handles()[name], node, scope, [])
        elif function := raw_io.function_in(name):
            self._use(function, raw_io.uses()[function], node, scope, [], called=False)
        elif raw_io.hides(name):
            self._hidden(name, node)

    def _hidden(self, name: str, node: ast.expr) -> None:
        end = node.end_lineno or node.lineno
        self.uses.append(Use("hidden", "", False, shown_name(name), node.lineno, node.col_offset, end, True, False))

    def _held(self, held: Held, line: int) -> None:
        """A table of functions is used: any of them may be called."""
        self.steps += (Step(one, line) for one in held_by(held))

    def _call(self, call: ast.Call, found: Meaning, scope: Scope, at_module: bool, accounted: set[ast.AST]) -> None:
        match found:
            case Named(name):
                self._named_call(name, call, scope, accounted)
                if name in REFLECTING or name.rpartition(".")[2] in LOOKUPS:
                    self._looks_up(call, scope, at_module, accounted)
            case Held() if not at_module:
                self._held(found, call.lineno)
            case None if isinstance(call.func, ast.Attribute) and call.func.attr in LOOKUPS:
                self._looks_up(call, scope, at_module, accounted)
            case Value(kind) if kind in raw_io.handles():
                self._use(kind, raw_io.handles()[kind], call, scope, call.args)
            case Code() | Class():
                self.steps.append(Step(found, call.lineno))
                if isinstance(found, Code):
                    self._arguments(call.args, call.keywords, found, scope, accounted)
            case Instance(of):
                self.steps.append(Step(of, call.lineno))

    def _looks_up(self, call: ast.Call, scope: Scope, at_module: bool, accounted: set[ast.AST]) -> None:
        """A call such as `getattr(os, "remove")`, whose result is something that a text names."""
        result = meaning(call, scope, self._file)
        if result is None:
            return
        accounted.update(call.args[:1])
        if isinstance(call.func, ast.Attribute):
            accounted.update((call.func, call.func.value, *getattr(call.func.value, "args", ())))
        if call not in accounted and not (call in _aliased(scope) and _is_followed(result)):
            self._mention(call, result, scope, at_module)

    def _named_call(self, name: str, call: ast.Call, scope: Scope, accounted: set[ast.AST]) -> None:
        effects = raw_io.uses().get(name) or raw_io.handles().get(name)
        if effects:
            if name.startswith("pathlib.Path.") and _is_bare_class(call, scope, self._file):
                return self._use(name, effects, call, scope, call.args[1:], call.args[:1])
            return self._use(name, effects, call, scope, call.args)
        if name in NAMESPACES and not call.args and call not in accounted:
            if name == "builtins.globals" or isinstance(scope.node, ast.Module):
                self._hidden(name, call)
            return None
        if name in _ASKS_FOR_TYPES:
            accounted.update(part for one in call.args[_ASKS_FOR_TYPES[name] :][:1] for part in _types_in(one))
            return None
        parent, _, last = name.rpartition(".")
        if raw_io.hides(name):
            accounted.add(call.func)
            if not (last in LOOKUPS and meaning(call, scope, self._file) is not None):
                self._hidden(name, call)
            return None
        if parent in _WHOLE and not (parent.startswith("os.") and last.startswith("__")):
            return self._use(name, raw_io.uses()[parent], call, scope, [])
        given = call.args[1:] if last == "run_in_executor" else call.args
        if given and (name in raw_io.FORWARDING or last in ("run_in_executor", "submit")):
            self._forwarded(given[0], call, given[1:], scope, accounted)
        elif name in ("threading.Thread", "threading.Timer", "multiprocessing.Process"):
            target = next((one.value for one in call.keywords if one.arg == "target"), None)
            if target is not None:
                self._forwarded(target, call, [], scope, accounted)
        return None

    def _forwarded(
        self, func: ast.expr, call: ast.Call, given: list[ast.expr], scope: Scope, accounted: set[ast.AST]
    ) -> None:
        """A function that is passed to another, which calls it."""
        match meaning(func, scope, self._file):
            case Named(name) if effects := raw_io.uses().get(name) or raw_io.handles().get(name):
                accounted.add(func)
                self._use(name, effects, call, scope, given)
            case Value(kind) if kind in raw_io.handles():
                accounted.add(func)
                self._use(kind, raw_io.handles()[kind], call, scope, given)
            case Code() as code:
                self.steps.append(Step(code, call.lineno))
                self._arguments(given, [], code, scope, accounted)

    def _arguments(
        self, given: list[ast.expr], named: list[ast.keyword], code: Code, scope: Scope, accounted: set[ast.AST]
    ) -> None:
        """Note the handles that go to a parameter that is annotated as one: their use is found there."""
        taken = [*code.node.args.posonlyargs, *code.node.args.args]
        if code.owner is not None and taken:
            taken = taken[1:]
        pairs = list(zip(given, taken, strict=False))
        by_name = {one.arg: one for one in (*taken, *code.node.args.kwonlyargs)}
        pairs += [(one.value, by_name[one.arg]) for one in named if one.arg in by_name]
        for value, parameter in pairs:
            if isinstance(value, ast.Name | ast.Attribute) and parameter.annotation is not None:
                promised = type_of(parameter.annotation, code.file.scope, code.file)
                if isinstance(promised, Value) and promised == meaning(value, scope, self._file):
                    accounted.add(value)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            base = absolute(node.module or "", node.level, self._file.package)
            modules = [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")] if base else []
        for number, module in enumerate(modules):
            top = module.partition(".")[0]
            self._module(module, node)
            if top in sys.stdlib_module_names:
                continue
            is_first = number == 0 or isinstance(node, ast.Import)
            is_ours = self.enter(module, node.lineno) or top in ("licet", self._file.module.partition(".")[0])
            if is_first and not is_ours and not self._file.project.has(top):
                self.packages.add(top)

    def _module(self, module: str, node: ast.stmt | ast.expr) -> None:
        """Note the import of a module that does nothing but input and output."""
        kind = raw_io.only_touches(module)
        if kind and not self._file.project.has(module.partition(".")[0]):
            end = node.end_lineno or node.lineno
            rule = raw_io.EVERYTHING[kind]
            self.modules.append(Use(kind, rule, False, module, node.lineno, node.col_offset, end, True, False))

    def enter(self, module: str, line: int) -> bool:
        """Add the steps into a module of the project, and the packages around it; False if it is none."""
        found = False
        for name in with_parents(module):
            if (inner := self._file.project.find(name)) is not None:
                found = True
                if inner is not self._file:
                    self.steps.append(Step(inner, line))
        return found

    def _use(
        self,
        what: str,
        effects: tuple[raw_io.Effect, ...],
        node: ast.expr,
        scope: Scope,
        given: list[ast.expr],
        of: list[ast.expr] | None = None,
        called: bool = True,
    ) -> None:
        call = node if called and isinstance(node, ast.Call) else None
        values = values_in(scope, self._file)
        is_raw = not what.startswith("licet.")
        for effect in effects:
            argument = argument_of(effect, call, given, of)
            for kind, rule, exact in rules_of(effect, what, argument, call, given, values):
                shown = shown_name(what)
                end = node.end_lineno or node.lineno
                self.uses.append(Use(kind, rule, exact, shown, node.lineno, node.col_offset, end, is_raw, called))
                if kind == "import" and exact:  # the module is known, so it is an import like any other
                    self.uses.pop()
                    if (prefix := values.prefix_of(argument)) is not None:
                        self._module(prefix.text, node)
                        top = prefix.text.partition(".")[0]
                        if not self.enter(prefix.text, node.lineno) and top not in sys.stdlib_module_names:
                            self.packages.add(top)


def _is_bare_class(call: ast.Call, scope: Scope, file: SourceFile) -> bool:
    """Whether a method is called on the class, as in `Path.read_text(path)`."""
    return isinstance(call.func, ast.Attribute) and isinstance(meaning(call.func.value, scope, file), Named)


def _aliased(scope: Scope) -> set[ast.AST]:
    """The expressions that are bound to a name, and found again where the name is used."""
    bound = (binding for bindings in scope.bindings.values() for binding in bindings)
    return {one.what for one in bound if one.how == VALUE and isinstance(one.what, ast.expr)}


def _is_followed(found: Meaning) -> bool:
    """Whether another name for something is enough to find its uses: it is a module or a table, and not a function."""
    if isinstance(found, Named):
        return found.name in _WHOLE or not raw_io.function_in(found.name)
    return isinstance(found, Package | Class | Code)


def _types_in(node: ast.expr) -> Iterator[ast.expr]:
    """The types in the argument of `isinstance`."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, ast.Tuple):
            waiting += one.elts
        elif isinstance(one, ast.BinOp):
            waiting += (one.left, one.right)


class Hop(Struct, frozen=True):
    """One step on the way from a tool to a line: the code that is entered, and where it is called from."""

    name: str
    called: Origin | None  # None for the tool itself
    is_import: bool = False


class Piece(Struct, frozen=True, eq=False):
    """A function or a module that a tool reaches, and what it does by itself."""

    code: Code | SourceFile
    does: Touched

    @property
    def is_module(self) -> bool:
        return isinstance(self.code, SourceFile)

    @property
    def file(self) -> SourceFile:
        return self.code.file if isinstance(self.code, Code) else self.code


class Reached(Struct, frozen=True, eq=False):
    """All code behind a tool."""

    pieces: tuple[Piece, ...]
    walk: "_Walk"

    def way_to(self, piece: Piece) -> tuple[Hop, ...]:
        """The way from the tool to a piece of its code."""
        return self.walk.way_to(piece.code)

    def uses(self) -> Iterator[Use]:
        """Everything that the code uses."""
        return (use for piece in self.pieces for use in piece.does.uses)

    def packages(self) -> frozenset[str]:
        """The packages that the code imports."""
        return frozenset().union(*(piece.does.packages for piece in self.pieces))

    def escaped(self) -> frozenset[str]:
        """The handles that code which was not read may use."""
        return frozenset().union(*(piece.does.escaped for piece in self.pieces))

    def lines(self) -> Iterator[tuple[str, int, int]]:
        """The functions that were read: their file, first and last line."""
        for piece in self.pieces:
            if isinstance(piece.code, Code):
                node = piece.code.node
                yield piece.file.text.file, node.lineno, node.end_lineno or node.lineno


class Follower:
    """Follows several tools. What each function does by itself is read once."""

    def __init__(self) -> None:
        self._touched: dict[ast.AST, Touched] = {}

    def of_tool(self, file: SourceFile, function: Function) -> Reached:
        """What a tool does, with the import of its module."""
        return self._reached([file, Code(file, function)])

    def of_module(self, file: SourceFile) -> Reached:
        """What all code of a file does, also functions that no tool calls."""
        return self._reached([file, *_functions(file)])

    def _does(self, one: Code | SourceFile) -> Touched:
        node = one.node if isinstance(one, Code) else one.text.tree
        if node not in self._touched:
            file = one.file if isinstance(one, Code) else one
            self._touched[node] = touched_by(file.scope_of(one) if isinstance(one, Code) else file.scope, file)
        return self._touched[node]

    def _reached(self, start: list[Code | SourceFile]) -> Reached:
        walk = _Walk()
        for one in start:
            walk.enter(one, None, None)
        pieces: list[Piece] = []
        while walk.waiting and len(walk.came) < MOST_REACHED_FUNCTIONS:
            one = walk.waiting.pop()
            does = self._does(one)
            pieces.append(Piece(one, does))
            for step in does.steps:
                if isinstance(step.to, Class):
                    walk.use_class(step.to, one, step.line)
                else:
                    walk.enter(step.to, one, step.line)
            if isinstance(one, Code) and one.node.decorator_list:
                for mark in one.node.decorator_list:
                    found = meaning(mark.func if isinstance(mark, ast.Call) else mark, one.file.scope, one.file)
                    if isinstance(found, Code):
                        walk.enter(found, one, one.node.lineno)
            walk.name_attributes(does.attributes)
        return Reached(tuple(pieces), walk)


class _Walk:
    """The code that is still to be read, and how each piece was reached."""

    def __init__(self) -> None:
        self.waiting: list[Code | SourceFile] = []
        self.came: dict[ast.AST, tuple[Code | SourceFile, Code | SourceFile | None, int | None]] = {}
        self._attributes: set[str] = set()
        self._methods: dict[str, list[tuple[Code, Code | SourceFile, int]]] = {}  # not named by anything so far
        self._classes: set[ast.ClassDef] = set()

    def enter(self, one: Code | SourceFile, by: Code | SourceFile | None, line: int | None) -> None:
        node = _node(one)
        if node not in self.came:
            self.came[node] = (one, by, line)
            self.waiting.append(one)

    def use_class(self, one: Class, by: Code | SourceFile, line: int) -> None:
        if one.node in self._classes:
            return
        self._classes.add(one.node)
        for name, bindings in one.body.bindings.items():
            for binding in bindings:
                if not isinstance(binding.what, Function):
                    continue
                method = Code(one.file, binding.what, one)
                if name.startswith("__") or name in self._attributes:
                    self.enter(method, by, line)
                else:
                    self._methods.setdefault(name, []).append((method, by, line))
        for base in one.node.bases[:8]:
            above = meaning(base, one.around, one.file)
            if isinstance(above, Class):
                self.use_class(above, by, line)

    def name_attributes(self, names: frozenset[str]) -> None:
        for name in sorted(names - self._attributes) if self._methods else ():
            for method, by, line in self._methods.pop(name, ()):
                self.enter(method, by, line)
        self._attributes |= names

    def way_to(self, one: Code | SourceFile) -> tuple[Hop, ...]:
        way: list[Hop] = []
        at: Code | SourceFile | None = one
        while at is not None and len(way) < 50:
            _, by, line = self.came[_node(at)]
            called = None
            if by is not None and line is not None:
                file = by.file if isinstance(by, Code) else by
                called = Origin(file.text.file, line, 1)
            if isinstance(at, Code):
                way.append(Hop(at.name, called))
            else:
                way.append(Hop(f"import {at.module}", called, is_import=True))
            at = by
        return tuple(reversed(way))


def _node(one: Code | SourceFile) -> ast.AST:
    return one.node if isinstance(one, Code) else one.text.tree


def _functions(file: SourceFile) -> Iterator[Code]:
    """All functions and methods of a file at module level and in its classes."""
    yield from (Code(file, function) for function in file.scope.functions)
    for node, body in file.scope.classes.items():
        owner = file.class_of(node, body, file.scope)
        yield from (Code(file, function, owner) for function in owner.body.functions)
