"""What the code of one function or module touches by itself: uses, calls, imports, and what is not known."""

import ast
import sys
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from licet.policy_files.source.values import ExpressionValues
from licet.surfaces.lint import table
from licet.surfaces.lint.meaning import (
    Class,
    Code,
    Instance,
    Meaning,
    Named,
    Package,
    SourceFile,
    Value,
    meaning,
    type_of,
)
from licet.surfaces.lint.scopes import VALUE, Scope
from licet.surfaces.lint.use import Use, argument_of, rules_of, shown_name

_WHOLE = frozenset({"os.environ", "os.environb", "ctypes.cdll", "ctypes.windll", "ctypes.pythonapi"})


class Step(Struct, frozen=True, eq=False):
    """A call, or another mention, of code of the project."""

    to: Code | Class | SourceFile
    line: int
    is_call: bool


class Imported(Struct, frozen=True):
    """An import of a package that is neither of the project nor of the standard library."""

    package: str  # the top-level name
    line: int
    offset: int


class Touched(Struct, frozen=True):
    """What the code of one function or module does by itself."""

    uses: tuple[Use, ...]
    steps: tuple[Step, ...]
    imports: tuple[Imported, ...]
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
        tuple(reader.steps),
        tuple(reader.imports),
        frozenset(reader.attributes),
        frozenset(reader.escaped),
    )


class _Names(Mapping[str, ast.expr]):
    """The expressions of names that are bound once, in a scope and those around it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __getitem__(self, name: str) -> ast.expr:
        at: Scope | None = self._scope
        while at is not None:
            if name in at.bindings:
                (how, what, _), *more = at.bindings[name]
                if how != VALUE or more or not isinstance(what, ast.expr):
                    break
                return what
            at = at.parent
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._scope.bindings)

    def __len__(self) -> int:
        return len(self._scope.bindings)


class _Reader:
    """Collects what scopes of one file do."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self.uses: list[Use] = []
        self.steps: list[Step] = []
        self.imports: list[Imported] = []
        self.attributes: set[str] = set()
        self.escaped: set[str] = set()

    def read(self, scope: Scope) -> None:
        file = self._file
        self.attributes |= scope.attributes
        accounted: set[ast.AST] = set()
        for node in scope.imports:
            self._import(node)
        for call in scope.calls:
            self._call(call, meaning(call.func, scope, file), scope, accounted)
        for subscript in scope.subscripts:
            found = meaning(subscript.value, scope, file)
            if isinstance(found, Named) and found.name in _WHOLE:
                effects = tuple(replace(effect, argument=0) for effect in table.uses()[found.name])
                self._use(found.name, effects, subscript, scope, [subscript.slice])
            elif isinstance(found, Value) and found.kind.startswith("licet."):
                self.escaped.add(found.kind.removeprefix("licet."))
        at_module = isinstance(scope.node, ast.Module)
        meaningless: set[str] = set()  # most names are of local values; each is looked up once
        for load in scope.loads:
            if isinstance(load, ast.Name) and load.id in meaningless:
                continue
            found = meaning(load, scope, file)
            if found is None and isinstance(load, ast.Name):
                meaningless.add(load.id)
            elif found is not None and load not in accounted:
                self._mention(load, found, scope, at_module)

    def _mention(self, node: ast.expr, found: Meaning, scope: Scope, at_module: bool) -> None:
        match found:
            case Named(name) if name in _WHOLE or name.rpartition(".")[0] in _WHOLE:
                whole = name if name in _WHOLE else name.rpartition(".")[0]
                self._use(whole, table.uses()[whole], node, scope, [])
            case Named(name) if name in table.handles():  # a method that is passed on: it may be called with anything
                self._use(name, table.handles()[name], node, scope, [])
            case Value(kind) if kind.startswith("licet."):
                self.escaped.add(kind.removeprefix("licet."))
            case Code() | Class() if not at_module:  # a list of functions at module level calls none of them
                self.steps.append(Step(found, node.lineno, False))
            case Package(file):
                self.steps.append(Step(file, node.lineno, False))

    def _call(self, call: ast.Call, found: Meaning, scope: Scope, accounted: set[ast.AST]) -> None:
        match found:
            case Named(name):
                self._named_call(name, call, scope, accounted)
            case Value(kind) if kind in table.handles():
                self._use(kind, table.handles()[kind], call, scope, call.args)
            case Code() | Class():
                self.steps.append(Step(found, call.lineno, True))
                if isinstance(found, Code):
                    self._pass_handles(call, found, scope, accounted)
            case Instance(of):
                self.steps.append(Step(of, call.lineno, True))

    def _named_call(self, name: str, call: ast.Call, scope: Scope, accounted: set[ast.AST]) -> None:
        effects = table.uses().get(name) or table.handles().get(name)
        if effects:
            if name.startswith("pathlib.Path.") and _is_bare_class(call, scope, self._file):
                return self._use(name, effects, call, scope, call.args[1:], call.args[:1])
            return self._use(name, effects, call, scope, call.args)
        parent, _, last = name.rpartition(".")
        if parent in _WHOLE and not (parent.startswith("os.") and last.startswith("__")):
            return self._use(name, table.uses()[parent], call, scope, [])
        place = table.FORWARDING.get(name, 1 if last == "run_in_executor" else 0 if last == "submit" else None)
        if place is not None and len(call.args) > place:
            self._forwarded(call.args[place], call, call.args[place + 1 :], scope, accounted)
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
            case Named(name) if effects := table.uses().get(name) or table.handles().get(name):
                accounted.add(func)
                self._use(name, effects, call, scope, given)
            case Value(kind) if kind in table.handles():
                accounted.add(func)
                self._use(kind, table.handles()[kind], call, scope, given)
            case Code() as code:
                self._arguments(given, [], code, scope, accounted)

    def _pass_handles(self, call: ast.Call, code: Code, scope: Scope, accounted: set[ast.AST]) -> None:
        self._arguments(call.args, call.keywords, code, scope, accounted)

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
            base = self._file.absolute(node)
            modules = [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")] if base else []
        for number, module in enumerate(modules):
            top = module.partition(".")[0]
            if top in sys.stdlib_module_names:
                continue
            is_first = number == 0 or isinstance(node, ast.Import)
            is_ours = self.enter(module, node.lineno) or top in ("licet", self._file.module.partition(".")[0])
            if is_first and not is_ours and not self._file.project.has(top):
                self.imports.append(Imported(top, node.lineno, node.col_offset))

    def enter(self, module: str, line: int) -> bool:
        """Add the steps into a module of the project, and the packages around it; False if it is none."""
        parts = module.split(".")
        found = False
        for end in range(1, len(parts) + 1):
            if (inner := self._file.project.find(".".join(parts[:end]))) is not None:
                found = True
                if inner is not self._file:
                    self.steps.append(Step(inner, line, True))
        return found

    def _use(
        self,
        what: str,
        effects: tuple[table.Effect, ...],
        node: ast.expr,
        scope: Scope,
        given: list[ast.expr],
        of: list[ast.expr] | None = None,
    ) -> None:
        call = node if isinstance(node, ast.Call) else None
        values = ExpressionValues(_Names(scope), lambda part: _dotted(meaning(part, scope, self._file)))
        is_raw = not what.startswith("licet.")
        for effect in effects:
            argument = argument_of(effect, call, given, of)
            for kind, rule, exact in rules_of(effect, what, argument, call, given, values):
                shown = shown_name(what)
                end = node.end_lineno or node.lineno
                self.uses.append(Use(kind, rule, exact, shown, node.lineno, node.col_offset, end, is_raw))
                if kind == "import" and exact:  # the module is known, so it is an import like any other
                    self.uses.pop()
                    prefix = values.prefix_of(argument)
                    top = prefix.text.partition(".")[0] if prefix else ""
                    if prefix and not self.enter(prefix.text, node.lineno) and top not in sys.stdlib_module_names:
                        self.imports.append(Imported(top, node.lineno, node.col_offset))


def _is_bare_class(call: ast.Call, scope: Scope, file: SourceFile) -> bool:
    """Whether a method is called on the class, as in `Path.read_text(path)`."""
    return isinstance(call.func, ast.Attribute) and isinstance(meaning(call.func.value, scope, file), Named)


def _dotted(found: Meaning) -> str:
    return found.name.removeprefix("builtins.") if isinstance(found, Named) else ""
