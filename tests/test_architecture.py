"""Holds the sources to the layout: a pure core, small modules that say what they are, a light and exact front door.

Which layer may import which is import-linter's part (pyproject.toml). Every check here is also run on a sample that
breaks it, so that a check that stopped seeing anything fails.
"""

import ast
import functools
import gc
import importlib.metadata
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import licet
import licet.events
import licet.handles
import licet.ports
import licet.testing
import licet.tools

SOURCE = Path(__file__).resolve().parent.parent / "src" / "licet"
MODULES = sorted(SOURCE.rglob("*.py"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in MODULES}

# An allow list, because the standard library has more doors than anyone remembers.
PURE_MODULES = {
    "__future__", "abc", "base64", "bisect", "collections", "collections.abc", "datetime", "decimal",
    "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "ipaddress", "itertools", "json", "keyword",
    "math", "operator", "re", "string", "types", "typing", "unicodedata",
    "can_ada", "msgspec", "msgspec.structs", "packaging.specifiers", "packaging.version", "rfc8785",
}  # fmt: skip
IMPURE_BUILTINS = {
    "__builtins__", "__import__", "__loader__", "__spec__", "breakpoint", "compile", "eval", "exec", "exit", "globals",
    "help", "input", "open", "print", "quit",
}  # fmt: skip
# Doors inside the modules above: clocks, the local time zone, files, and ways around the import list.
IMPURE_ATTRIBUTES = {
    "__builtins__", "__globals__", "__import__", "__loader__", "__subclasses__", "astimezone", "file_digest",
    "fromtimestamp", "today", "utcnow",
}  # fmt: skip

# What may come along with the standard library when a program says `import licet`: none of these.
HEAVY = (
    "aiohttp", "click", "cryptography", "http.server", "httpcore2", "httpx2", "jsonschema_rs", "mcp",
    "publicsuffixlist", "pydantic", "requests", "rich", "ruamel", "sqlite3", "starlette", "tomlkit", "yaml",
)  # fmt: skip

GENERATED = {"componentize_py_types", "wit_world"}  # made by componentize-py when the guest is built

BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)  # what holds statements
EMPTY_WORDS = {"helper", "helpers", "impl", "manager", "managers", "util", "utils"}


@functools.cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def statements(source: str) -> list[ast.AST]:
    """All statements of a module, also those inside others: imports and definitions are never inside an expression."""
    found: list[ast.AST] = [parsed(source)]
    for node in found:  # which grows meanwhile
        found += [child for child in ast.iter_child_nodes(node) if isinstance(child, BLOCKS)]
    return found


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """Parse each source once for all checks, with no search for garbage in the trees, and forget them at the end."""
    gc.disable()
    yield
    gc.enable()
    parsed.cache_clear()
    statements.cache_clear()


def impurities(source: str) -> Iterator[str]:
    """Say what of a module could reach a file, a clock, the environment, randomness, or code that could."""
    for node in ast.walk(parsed(source)):
        match node:
            case ast.Import(names=names):
                yield from (f"{node.lineno}: imports {alias.name}" for alias in names if not is_pure(alias.name))
            case ast.ImportFrom(module=module, names=names, level=level):
                if level:
                    yield f"{node.lineno}: imports relatively, which hides where from"
                elif not is_pure(module or ""):
                    # `from packaging import version` and `from packaging.version import Version` are the same door.
                    whole = [f"{module}.{alias.name}" for alias in names]
                    yield from (f"{node.lineno}: imports {name}" for name in whole if not is_pure(name))
            case ast.Name(id=name) if name in IMPURE_BUILTINS:
                yield f"{node.lineno}: uses {name}"
            case ast.Attribute(attr=name) if name in IMPURE_ATTRIBUTES:
                yield f"{node.lineno}: uses .{name}"
            # A value may carry the time it was given as `.now`; asking for one is a call, or goes through datetime.
            case ast.Call(func=ast.Attribute(attr="now")) | ast.Attribute(attr="now", value=ast.Name(id="datetime")):
                yield f"{node.lineno}: uses .now"


def is_pure(module: str) -> bool:
    return module in PURE_MODULES or module == "licet.core" or module.startswith("licet.core.")


def front_door_imports(source: str) -> Iterator[str]:
    """Say where a module takes its parts from `licet` itself, which would tie every layer to every other."""
    for node in statements(source):
        match node:
            case ast.ImportFrom(module="licet", names=names):
                wanted = [alias.name for alias in names if alias.name not in LAYERS]
                yield from (f"{node.lineno}: takes {name} from licet" for name in wanted)
            case ast.Import(names=names):
                yield from (f"{node.lineno}: imports licet" for alias in names if alias.name == "licet")


LAYERS = {
    "cli", "gateway", "lock", "learn", "lint", "adapters", "clients", "map", "hooks", "mcp", "assemble", "wasm",
    "sandbox", "backends", "packages", "guard", "policy_files", "source", "declare", "errors", "own_files", "core",
}  # fmt: skip

PRODUCTS = (
    "cli",
    "gateway",
    "lock",
    "learn",
    "lint",
    "adapters",
    "clients",
    "map",
    "hooks",
    "pytest_plugin",
    "testing",
)


def back_door_imports(source: str) -> Iterator[str]:
    """Say where a ready-made tool uses more of licet than a user's tool could."""
    for node in statements(source):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "licet":
                inside = module != "licet" or any(alias.name in LAYERS for alias in names)
                if inside and not module.startswith("licet.tools"):
                    yield f"{node.lineno}: imports from {module}"
            case ast.Import(names=names):
                inner = [alias.name for alias in names if alias.name.startswith("licet.")]
                yield from (f"{node.lineno}: imports {name}" for name in inner if not name.startswith("licet.tools"))


def third_parties(source: str) -> Iterator[str]:
    """Name the packages that a module imports and that are neither licet's nor the standard library's."""
    for node in statements(source):
        match node:
            case ast.Import(names=names):
                imported = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                imported = [module]
            case _:
                continue
        tops = [name.partition(".")[0] for name in imported]
        yield from (f"{node.lineno}: imports {top}" for top in tops if top not in {"licet", *sys.stdlib_module_names})


def missing_opening(source: str) -> Iterator[str]:
    """Say when a module does not open with what it is responsible for, in at most five lines."""
    opening = ast.get_docstring(parsed(source))
    if not opening:
        yield "no opening docstring"
    elif len(opening.split("\n\n")[0].splitlines()) > 5:
        yield "the opening docstring's first paragraph is over five lines"


def half_sentences(source: str) -> Iterator[str]:
    """Say which docstrings of functions and classes do not start with a whole sentence."""
    for node in statements(source):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        first = (ast.get_docstring(node) or "").partition("\n")[0]
        if first and (first[0].islower() or first[-1] not in ".?!:)"):
            yield f"{node.lineno}: {node.name} starts with `{first}`, not a whole sentence"


def undescribed(modules: Iterable[ModuleType]) -> Iterator[str]:
    """Say which public classes and functions, and public methods of those classes, have no docstring."""
    for module in modules:
        for name in module.__all__:
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)) or not thing.__module__.startswith("licet"):
                continue
            members = vars(thing) if inspect.isclass(thing) else {}
            own = {f"{name}.{key}": value for key, value in members.items() if key[0] != "_"}
            described = {name: thing, **{key: value for key, value in own.items() if inspect.isfunction(value)}}
            yield from (
                f"{module.__name__}.{key} has no docstring" for key, value in described.items() if not value.__doc__
            )


def empty_names(source: str) -> Iterator[str]:
    """Say which classes and functions have a name that says nothing."""
    for node in statements(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and says_nothing(node.name):
            yield f"{node.lineno}: {node.name} says nothing about the thing"


def says_nothing(name: str) -> bool:
    """Tell whether a word of the name, in either case style, is one of those that fit anything."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}
    return bool(words & EMPTY_WORDS) or bool(re.search(r"(^|[a-z0-9])Base(?![a-z])", name))


def front_door_problems(module: ModuleType) -> Iterator[str]:
    """Say where `__all__` and what a user can reach on a package are not the same."""
    promised: list[str] = module.__all__
    yield from (f"`{name}` is listed twice" for name in {name for name in promised if promised.count(name) > 1})
    yield from (f"`{name}` is listed and absent" for name in promised if not hasattr(module, name))
    for name in dir(module):
        submodule = f"{module.__name__}.{name}" in sys.modules
        if not name.startswith("_") and name not in promised and not submodule:
            yield f"`{name}` is reachable and not listed"


@functools.cache
def loaded_modules(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after one statement."""
    program = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True)
    return set(loaded.stdout.split())


def heavy_modules(statement: str) -> list[str]:
    return sorted(set(HEAVY) & loaded_modules(statement))


def eager_patterns(source: str) -> Iterator[str]:
    """Patterns that importing a module compiles, in place of `late_pattern`."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile":
                    yield f"{node.lineno}: compiles a pattern when it is imported"


Check = Callable[[str], Iterator[str]]


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def problems(check: Check, paths: Iterable[Path]) -> list[str]:
    """Every complaint of one check about some modules, each with its file."""
    return [f"{name_of(path)}:{complaint}" for path in paths for complaint in check(TEXTS[path])]


def within(*layers: str) -> list[Path]:
    return [path for path in MODULES if path.relative_to(SOURCE).parts[0].removesuffix(".py") in layers]


def test_there_are_modules_to_check() -> None:
    assert SOURCE / "core" / "algebra" / "scope.py" in within("core")


def test_core_decides_with_values_alone() -> None:
    assert problems(impurities, within("core")) == []


@pytest.mark.parametrize("check", [missing_opening, half_sentences, empty_names])
def test_each_module_says_what_it_is(check: Check) -> None:
    assert problems(check, MODULES) == []


def test_each_path_completes_a_name() -> None:
    parts = [(path, part) for path in MODULES for part in path.relative_to(SOURCE).with_suffix("").parts]
    assert [name_of(path) for path, part in parts if says_nothing(part)] == []


def test_ready_made_tools_use_the_front_door_and_lower_layers_never_do() -> None:
    tools = within("tools")
    lower = sorted(set(MODULES) - {*tools, *within("__init__", "mcp", *PRODUCTS)})
    assert problems(back_door_imports, tools) + problems(front_door_imports, lower) == []


def test_third_parties_are_spoken_to_at_the_edges_alone() -> None:
    def found(*names: str) -> set[str]:
        return {line.rpartition(" imports ")[2] for line in problems(third_parties, within(*names))}

    # Values are Structs in every layer. Argument schemas come from type hints, which pydantic reads, or are data.
    assert found("__init__", "assemble", "guard", "errors", "tools") <= {"msgspec"}
    assert found("declare") <= {"jsonschema_rs", "msgspec", "pydantic", "pydantic_core"}


def test_every_imported_package_is_a_declared_dependency() -> None:
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [Requirement(line).name for line in project["dependencies"]]
    offered = {file.parts[0].partition(".")[0] for name in declared for file in importlib.metadata.files(name) or ()}
    # An adapter imports its framework, which its extra names: see test_packaging.py.
    modules = [path for path in MODULES if SOURCE / "adapters" not in path.parents]
    foreign = {line.rpartition(" imports ")[2] for line in problems(third_parties, modules)}
    assert "can_ada" in foreign
    # pytest loads the plugin that imports it, and nothing else does. What imports wasmtime runs in workers alone. The
    # guest of the Python runner is never imported. Only a state in PostgreSQL imports its driver.
    assert foreign - offered - GENERATED == {"asyncpg", "pytest", "wasmtime"}


def test_wasmtime_is_imported_only_by_what_runs_in_the_workers_of_wasm_tools() -> None:
    found = {path for path in MODULES if any(line.endswith(" wasmtime") for line in problems(third_parties, [path]))}
    assert {path.parent for path in found} == {SOURCE / "wasm"}
    imported = {f"licet.wasm.{path.stem}" for path in found}
    for path in set(MODULES) - found:
        assert not imported & set(own_imports(TEXTS[path])), path


def test_the_guest_of_the_python_runner_needs_its_own_package_and_the_standard_library_alone() -> None:
    guest = sorted((SOURCE / "wasm" / "python" / "guest").glob("*.py"))
    assert {line.rpartition(" imports ")[2] for line in problems(third_parties, guest)} == GENERATED
    assert [module for path in guest for module in own_imports(TEXTS[path])] == []


def test_what_runs_beside_and_inside_the_walls_of_a_program_needs_the_standard_library_alone() -> None:
    programs = ("programs/supervisor.py", "programs/launcher.py", "observe/guardian.py")
    names = ("attempts.py", "limits.py", "scratch.py", *programs)
    alone = [*(SOURCE / "sandbox" / "kernel").glob("*.py"), *(SOURCE / "sandbox" / name for name in names)]
    allowed = ("licet.sandbox.kernel", "licet.sandbox.limits", "licet.sandbox.scratch", "licet.sandbox")
    assert problems(third_parties, alone) == []
    kernel = {f"licet.sandbox.kernel.{path.stem}" for path in (SOURCE / "sandbox" / "kernel").glob("*.py")}
    assert {module for path in alone for module in own_imports(TEXTS[path])} <= kernel.union(allowed)


def own_imports(source: str) -> Iterator[str]:
    """The packages of licet that a module imports from."""
    for node in statements(source):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.partition(".")[0] == "licet")
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "licet":
                whole = (f"{module}.{alias.name}" for alias in node.names)
                yield from whole if module == "licet.sandbox" else (module,)


def every_import(source: str) -> Iterator[str]:
    """The dotted names that a module imports, also inside functions and for type checkers alone."""
    for node in statements(source):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (module, *(f"{module}.{alias.name}" for alias in names))


def import_circle(texts: Mapping[str, str]) -> list[str]:
    """Modules by name that import each other in a circle; empty if none do."""
    graph = {name: {found for found in every_import(text) if found in texts} - {name} for name, text in texts.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        return list(circle.args[1])
    return []


def test_modules_never_import_each_other_in_a_circle() -> None:
    named = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): text for path, text in TEXTS.items()}
    named = {name.removesuffix(".__init__"): text for name, text in named.items()}
    assert "licet.guard.call" in named
    assert import_circle(named) == []


def test_a_circle_through_a_function_or_through_types_is_noticed() -> None:
    assert import_circle({"p.a": "from p import b", "p.b": "def f():\n    import p.a"}) == ["p.a", "p.b", "p.a"]
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a"
    assert import_circle({"p.a": "from p import b", "p.b": types}) == ["p.a", "p.b", "p.a"]
    assert import_circle({"p.a": "from p import b", "p.b": "import p.c", "p.c": "import sys"}) == []


# Limits of each package; ports, and what users import of them; twins in memory; the gate, and the one with backends.
SHARED_NAMES = {"limits", "ports", "memory", "gate"}


def repeated_names(paths: Iterable[Path]) -> set[str]:
    """The file names that several modules have. A command may have the name of what it is about."""
    names = [path.stem for path in paths if path.parent.name != "cli" and path.stem != "__init__"]
    return {name for name in names if names.count(name) > 1}


def test_a_file_name_exists_once() -> None:
    assert repeated_names(MODULES) <= SHARED_NAMES
    assert repeated_names(within("core")) == set()


def test_a_file_name_that_exists_twice_is_noticed() -> None:
    assert repeated_names(map(Path, ("a/one.py", "b/one.py", "a/two.py", "cli/two.py"))) == {"one"}


def test_what_users_import_is_described() -> None:
    assert list(undescribed((licet, licet.events, licet.handles, licet.ports, licet.testing, licet.tools))) == []


def test_an_undescribed_public_method_is_noticed() -> None:
    sample = ModuleType("licet.sample")
    kind = type("Kind", (), {"__doc__": "A kind.", "__module__": "licet.sample", "method": lambda self: None})
    vars(sample).update(__all__=["Kind"], Kind=kind)
    assert list(undescribed([sample])) == ["licet.sample.Kind.method has no docstring"]


def test_the_public_names_are_exactly_those_listed() -> None:
    assert list(front_door_problems(licet)) == []


@pytest.mark.parametrize("statement", ["import licet", "import licet.tools", "import licet.clients.known"])
def test_importing_licet_loads_nothing_heavy(statement: str) -> None:
    assert heavy_modules(statement) == []


def test_importing_licet_does_not_load_the_ready_made_tools() -> None:
    assert "licet" in loaded_modules("import licet")
    assert not [name for name in loaded_modules("import licet") if name.startswith("licet.tools")]


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_command_that_installs_nothing_loads_nothing_that_unpacks_or_resolves_packages(command: str) -> None:
    loaded = loaded_modules(f"import licet.cli.{command}")
    assert "licet.packages.locked_tools" in loaded
    assert not loaded & {"bz2", "httpx2", "importlib.metadata", "resolvelib", "tarfile", "zipfile"}


def test_a_check_of_a_policy_loads_no_database_and_no_cryptography() -> None:
    assert not loaded_modules("import licet.cli.check") & {"cryptography", "sqlite3"}


# What a shell line, a hook or `licet run` of most programs never uses: it is imported where it is used.
NOT_AT_THE_START = {
    "cryptography", "difflib", "glob", "html", "jsonschema_rs", "publicsuffixlist", "quopri", "symtable", "yaml",
    "licet.assemble.importing", "licet.assemble.script_interpreter",
    "licet.packages.clients", "licet.packages.launchers", "licet.packages.package_store", "licet.packages.programs",
    "licet.sandbox.kernel.connections", "licet.sandbox.kernel.seccomp", "licet.sandbox.programs.launcher",
    "licet.sandbox.programs.proxy", "licet.sandbox.workers.pool", "licet.source.imports", "licet.source.source_files",
    "licet.wasm.cache",
}  # fmt: skip


@pytest.mark.parametrize("module", ["licet.cli.run", "licet.cli.hook", "licet.hooks.answering"])
def test_what_starts_programs_loads_no_more_than_that_takes(module: str) -> None:
    assert sorted(NOT_AT_THE_START & loaded_modules(f"import {module}")) == []


def test_what_starts_programs_compiles_no_patterns_ahead() -> None:
    loaded = loaded_modules("import licet.cli.run") | loaded_modules("import licet.hooks.answering")
    places = [path for path in MODULES if name_of(path).removesuffix(".py").replace("/", ".") in
              {name.removeprefix("licet.") for name in loaded}]  # fmt: skip
    # Decisions call these three bound methods for each host.
    assert {line.partition(":")[0] for line in problems(eager_patterns, places)} == {"core/algebra/scope.py"}


def test_there_are_ready_made_tools_to_check() -> None:
    assert {path.name for path in MODULES if path.is_relative_to(SOURCE / "tools")} >= {"basic.py", "file_search.py"}


@pytest.mark.parametrize(
    ("check", "sample", "complaint"),
    [
        (impurities, "import os", "1: imports os"),
        (impurities, "import os.path as p", "1: imports os.path"),
        (impurities, "def f():\n    import time", "2: imports time"),
        (impurities, "from pathlib import Path", "1: imports pathlib.Path"),
        (impurities, "from random import random", "1: imports random.random"),
        (impurities, "from packaging import tags", "1: imports packaging.tags"),
        (impurities, "import licet.backends.http", "1: imports licet.backends.http"),
        (impurities, "import licet.corelib", "1: imports licet.corelib"),
        (impurities, "from ..errors import Refused", "1: imports relatively, which hides where from"),
        *((impurities, f"import {module}", f"1: imports {module}") for module in (
            "asyncio", "importlib", "io", "locale", "logging", "multiprocessing", "secrets", "socket", "subprocess",
            "sys", "tempfile", "threading", "uuid", "urllib.parse", "pydantic", "yaml",
        )),
        *((impurities, f"x = {name}", f"1: uses {name}") for name in sorted(IMPURE_BUILTINS)),
        *((impurities, f"x = y.{name}", f"1: uses .{name}") for name in sorted(IMPURE_ATTRIBUTES)),
        (impurities, "from datetime import datetime\nx = datetime.now", "2: uses .now"),
        (impurities, "import datetime as d\nx = d.datetime.now(d.UTC)", "2: uses .now"),
        (front_door_imports, "from licet import Capability", "1: takes Capability from licet"),
        (front_door_imports, "import licet", "1: imports licet"),
        (back_door_imports, "from licet.core.algebra import set", "1: imports from licet.core.algebra"),
        (back_door_imports, "from licet import core", "1: imports from licet"),
        (back_door_imports, "import licet.guard", "1: imports licet.guard"),
        (third_parties, "import yaml.nodes", "1: imports yaml"),
        (third_parties, "def f():\n    from httpx2 import get", "2: imports httpx2"),
        (missing_opening, "x = 1", "no opening docstring"),
        (missing_opening, '"""' + "word\n" * 6 + '"""', "the opening docstring's first paragraph is over five lines"),
        (half_sentences, 'class C:\n """no capital."""', "1: C starts with `no capital.`, not a whole sentence"),
        (half_sentences, 'class C:\n """Cut in\n two."""', "1: C starts with `Cut in`, not a whole sentence"),
        *((empty_names, f"class {name}: ...", f"1: {name} says nothing about the thing") for name in (
            "PolicyManager", "HostHelper", "GateImpl", "BaseStore", "StoreBase",
        )),
        (eager_patterns, "import re\nX = re.compile('x')", "2: compiles a pattern when it is imported"),
        (eager_patterns, "import re\nX: Any = [re.compile('x').match]", "2: compiles a pattern when it is imported"),
        (empty_names, "def path_utils(): ...", "1: path_utils says nothing about the thing"),
    ],
)  # fmt: skip
def test_each_check_sees_what_it_is_for(check: Check, sample: str, complaint: str) -> None:
    assert complaint in list(check(sample))


@pytest.mark.parametrize(
    ("check", "sample"),
    [
        (impurities, "from collections.abc import Mapping\nfrom licet.core.algebra import scope\nimport licet.core"),
        (impurities, "from datetime import datetime\ndef late(now: datetime, use) -> bool: return use.now < now"),
        (impurities, "from packaging.version import Version\nfrom packaging import specifiers"),
        (front_door_imports, "from licet import core\nfrom licet.core.algebra.set import CapabilitySet"),
        (back_door_imports, "from licet import Context, tool\nimport licet\nfrom licet.tools import http"),
        (third_parties, "import json, licet.core\nfrom os import path\nimport licet.core.algebra\nfrom . import x"),
        (missing_opening, '"""What it is for."""'),
        (half_sentences, 'def f():\n    """May it?"""\ndef _g(): ...\nclass _C: ...'),
        (eager_patterns, "import re\nX = late_pattern('x')\ndef f(): return re.compile('x')"),
        (empty_names, "class Database: ...\ndef simple(): ...\nclass Implied: ...\ndef base_of(): ..."),
    ],
)  # fmt: skip
def test_each_check_accepts_what_is_fine(check: Check, sample: str) -> None:
    assert list(check(sample)) == []


def test_the_front_door_check_sees_missing_doubled_and_stray_names() -> None:
    door = ModuleType("door")
    door.__dict__.update(__all__=["kept", "kept", "gone"], kept=1, stray=2, _private=3)
    assert sorted(front_door_problems(door)) == [
        "`gone` is listed and absent",
        "`kept` is listed twice",
        "`stray` is reachable and not listed",
    ]


def test_the_weight_check_sees_a_heavy_package() -> None:
    assert "yaml" in heavy_modules("import yaml")
