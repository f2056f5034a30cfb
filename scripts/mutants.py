"""Mutation testing of the core: changes one thing at a time, and at least one test must fail.

Each mutant is one edit of one module. The tests are collected once, and each mutant runs in a fork that replaces the
changed function: first the tests nearest to its module, then all that concern it. A mutant that survives both, or that
changes more than functions, is imported in a fresh process and runs with more and more examples. Survivors are printed
as hunks. A hunk that changes nothing observable is listed, with the reason, in tests/core/equivalent_mutants.txt. Exits
with 1 for an unlisted survivor and for a listed hunk that no longer exists.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib.abc
import importlib.util
import inspect
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "src" / "licet" / "core"
PATHS = {path.stem: path for path in sorted(CORE.rglob("*.py")) if path.stem != "__init__"}  # file names are unique
LISTED = ROOT / "tests" / "core" / "equivalent_mutants.txt"
MEMORY = 2 << 30  # because a mutant may fill a list in an endless loop

# The tests most likely to fail for a change in a module. A mutant that survives them runs all others too.
NEAREST = {
    "scope": ["core/algebra/test_hosts.py", "core/algebra/test_paths.py", "core/algebra/test_grammar.py"],
    "domains": ["core/algebra/test_grammar.py", "core/algebra/test_network_grammar.py", "core/algebra/test_uses.py"],
    "rules": [
        *("core/algebra/test_uses.py", "core/algebra/test_paths.py", "core/algebra/test_values.py"),
        *("core/algebra/test_network_grammar.py", "core/algebra/test_hosts.py"),
    ],
    "set": [
        "core/algebra/test_sets.py",
        "core/algebra/test_unexpanded_denies.py",
        "core/algebra/test_values.py",
        "core/algebra/test_paths.py",
        "core/algebra/test_network_grammar.py",
    ],
    "decide": ["core/decision/test_decide.py", "core/decision/test_tied.py"],
    "argument_rules": ["core/decision/test_arguments.py"],
    "decision": ["core/decision/test_decide.py", "core/decision/test_happened.py"],
    "request": ["core/decision/test_decide.py", "core/decision/test_happened.py", "core/decision/test_budget.py"],
    "layer": ["core/policy/test_effects.py"],
    "validate": ["core/decision/test_validate.py"],
    "manifest_fields": ["core/policy/test_organisation.py"],
    "diff": ["core/review/test_diff.py"],
    "examples": ["core/review/test_examples.py"],
    "values": ["core/test_canonical.py"],
    "merkle": ["core/ledger/test_merkle.py"],
    "entry": ["core/ledger/test_receipt.py"],
    "verify": ["core/ledger/test_receipt.py", "core/ledger/test_verify.py"],
}
ALGEBRA = ("scope", "domains", "rules", "set")
ALGEBRA_TESTS = [
    *(
        f"core/algebra/test_{name}.py"
        for name in ("sets", "uses", "paths", "hosts", "grammar", "network_grammar", "values")
    ),
    *("spec/test_algebra_spec.py", "core/algebra/test_properties.py"),
]
LEDGER = ("entry", "verify")
LEDGER_TESTS = [f"core/ledger/test_{name}.py" for name in ("receipt", "verify")]
# Modules for which the concerned tests are known. Other modules run all tests but those of the algebra and of ledgers.
CONCERNED = {
    **dict.fromkeys(ALGEBRA, ALGEBRA_TESTS),
    **dict.fromkeys(LEDGER, LEDGER_TESTS),
    "values": ["core/test_canonical.py", "core/decision/test_budget.py"],
    "manifest_fields": ["core/policy/test_organisation.py"],
    "diff": ["core/review/test_diff.py"],
    "argument_rules": ["core/decision/test_arguments.py", "core/decision/test_tied.py"],
    "examples": ["core/review/test_examples.py", "core/decision/test_tied.py"],
    "merkle": ["core/ledger/test_merkle.py"],
}
# The definitions that are changed, of modules whose other parts no test pins down operator by operator.
WITHIN = {
    "decide": {
        "_Asking",
        "decide",
        "_failed",
        "_overspent",
        "_bundle_overspent",
        "_asked",
        "_call_asks",
        "_write_ground",
        "_deletes_ask",
    },
    "decision": {
        "_NO_TRUTH",
        "Allow",
        "Deny",
        "Ask",
        "Decision",
        "CallEvent",
        "CapabilityGranted",
        "CapabilityDenied",
        "events",
        "_rules_text",
        "Happened",
        "ApprovalAsked",
        "ApprovalAnswered",
        "ApprovalRemembered",
        "BudgetReserved",
        "BudgetSettled",
        "BudgetRefunded",
        "BudgetUnsettled",
        "SandboxEntered",
        "SandboxStopped",
        "ToolPrinted",
        "ResultNoted",
        "ServerAsked",
        "ServerAnswered",
        "ServerAskRefused",
        "RequestMade",
        "KeyPlaced",
        "KeyKept",
        "SessionOpened",
        "SessionEnded",
        "PolicyLoaded",
        "PolicyWithdrawn",
        "Event",
        "all_events",
    },
    "diff": {
        "_NOTHING",
        "_FREE",
        "_APPROVAL_TEXT",
        "_DELETE_TEXT",
        "_WRITE",
        "_DELETE",
        "_PERSONAL",
        "_Version",
        "_ExtraReach",
        "diff",
        "_tool_changes",
        "_withheld_changes",
        "_can",
        "_reach_changes",
        "_callable_tool_changes",
        "_definition_changes",
        "_stated",
        "_write_approval_changes",
        "_delete_changes",
        "_delete_approval_changes",
        "_ceiling_changes",
        "_name_changes",
        "_ordered_changes",
        "_list_changes",
        "_signing_changes",
        "_deny_changes",
        "_may_overlap",
        "_places_of",
        "_both_ways",
        "_keyed",
        "_versions",
    },
    "layer": {
        "EffectClass",
        "Level",
        "CLASSES",
        "LEVELS",
        "ELEVATED",
        "_READS",
        "_WRITES",
        "_BEYOND_WRITES",
        "FILE_DELETES",
        "WRITES",
        "_EVERY_TCP",
        "_READ_ONLY",
        "_WRITE_LIMITED",
        "_EVERYTHING",
        "permits",
        "class_fits",
        "level_fits",
        "weakest_class",
        "delete_asks",
        "deletes_ask",
    },
    "manifest_fields": {"TITLE", "DECIDED_BY_CALL", "Organisation"},
    "values": {
        "_ENCODER",
        "_SAFE",
        "_WITH_EXPONENT",
        "canonical_json",
        "digest",
        "data_json",
        "data_digest",
        "_is_simple",
        "_has_large_number",
        "plain",
        "money_text",
        "milliseconds",
        "nearest",
        "near_hint",
        "KEY",
        "_PRIME",
        "_EIGHTH",
        "_SMALL",
        "key_text",
        "key_bytes",
        "checked_key",
        "_of_small_order",
        "_decoded",
    },
    "verify": {
        "FindingKind",
        "Finding",
        "Outcome",
        "verify",
        "_in_order",
        "_size",
        "_Ledger",
        "_wrong_column",
        "narrowed",
        "_late",
        "_Checkpoints",
    },
}
# Seconds of CPU time for each round, which end an endless loop. A mutant that waits for ever is ended later, by the
# wall clock, which must allow for a busy machine.
LIMITS = (60, 120, 240)
PATIENCE = 10
EXAMPLES = (20, 25, 60)

# Mutation -------------------------------------------------------------------------------------------------------------

OPERATORS: dict[type[ast.AST], tuple[str, tuple[str, ...]]] = {
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("+",)),
    ast.Div: ("/", ("*",)),
    ast.FloorDiv: ("//", ("*",)),
    ast.Mod: ("%", ("*",)),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
    ast.BitXor: ("^", ("&",)),
}
NAMES = {
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "sorted": "list",
    "find": "rfind",
    "rfind": "find",
    "partition": "rpartition",
    "rpartition": "partition",
    "lower": "upper",
    "upper": "lower",
    "fullmatch": "match",
    "startswith": "endswith",
    "endswith": "startswith",
    "removeprefix": "removesuffix",
    "removesuffix": "removeprefix",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit: the bytes from `start` to `end` of a module's source become `text`."""

    module: str
    original: bytes
    start: int
    end: int
    text: str

    @property
    def source(self) -> bytes:
        return self.original[: self.start] + self.text.encode() + self.original[self.end :]

    @property
    def parses(self) -> bool:
        try:
            ast.parse(self.source)
        except SyntaxError:
            return False
        return True

    @property
    def line(self) -> int:
        return self.original.count(b"\n", 0, self.start) + 1

    @property
    def hunk(self) -> str:
        """The changed lines before and after, without indentation, as in the list of equivalents."""
        first = self.original.rfind(b"\n", 0, self.start) + 1
        last = self.original.find(b"\n", self.end)
        before = self.original[first:last].decode()
        after = (self.original[first : self.start] + self.text.encode() + self.original[self.end : last]).decode()
        sides = (("-", before), ("+", after))
        return "\n".join(f"{sign} {line.strip()}" for sign, side in sides for line in side.splitlines())


class Mutator(ast.NodeVisitor):
    """Walks a module and collects every edit; annotations, docstrings, messages and asserts are left alone."""

    def __init__(self, module: str, original: bytes) -> None:
        self.module, self.original = module, original
        self.starts = [0]
        for line in original.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: dict[tuple[int, int, str], Mutant] = {}

    def edit(self, span: tuple[int, int], *texts: str) -> None:
        for text in texts:
            if text.encode() != self.original[slice(*span)]:
                self.found[*span, text] = Mutant(self.module, self.original, *span, text)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.original[start:end].decode()

    def between(self, left: ast.expr, right: ast.expr, operator: ast.AST) -> None:
        span = self.span(left)[1], self.span(right)[0]
        old, news = OPERATORS.get(type(operator), ("", ()))
        gap = self.original[slice(*span)].decode()
        self.edit(span, *(gap.replace(old, new, 1) for new in news))

    def condition(self, test: ast.expr, *, loop: bool = False) -> None:
        self.edit(self.span(test), "False", *(() if loop else ("True",)))

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right, operator in zip(operands, operands[1:], node.ops, strict=False):
            self.between(left, right, operator)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.between(node.left, node.right, node.op)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            span = self.span(left)[1], self.span(right)[0]
            self.edit(span, self.original[slice(*span)].decode().replace(old, new, 1))
        for dropped in node.values:
            kept = f" {old} ".join(f"({self.text(value)})" for value in node.values if value is not dropped)
            self.edit(self.span(node), f"({kept})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.edit(self.span(node), f"({self.text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.edit(self.span(node), str(not value))
        elif isinstance(value, int):
            self.edit(self.span(node), str(value + 1), str(value - 1) if value else "(-1)")
        elif isinstance(value, str) and " " not in value:
            self.edit(self.span(node), repr(f"XX{value}XX"))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        # Before Python 3.12 the parts of an f-string have no positions of their own.
        prose = any(isinstance(part, ast.Constant) and " " in str(part.value) for part in node.values)
        if not prose:
            self.edit(self.span(node), '""')

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in NAMES:
            end = self.span(function)[1]
            self.edit((end - len(name), end), NAMES[name])
        owner = function.value if isinstance(function, ast.Attribute) else None
        if name == "late_pattern" or (isinstance(owner, ast.Name) and owner.id == "re"):
            self.pattern(node.args[0])
            return
        self.generic_visit(node)

    def pattern(self, node: ast.expr) -> None:
        """Change each count, quantifier and range of a regular expression by one step."""
        start, end = self.span(node)
        text = self.original[start:end].decode()

        def put(match: re.Match[str], group: int, new: str) -> None:
            where = [len(text[:place].encode()) for place in match.span(group)]
            self.edit((start + where[0], start + where[1]), new)

        for match in re.finditer(r"[{,](\d+)(?=[},])", text):
            put(match, 1, str(int(match[1]) + 1))
            put(match, 1, str(int(match[1]) - 1))
        for match in re.finditer(r"[)\]]([?*+])", text):
            put(match, 1, "")
        for match in re.finditer(r"(?<!\\)([!-Z^-~])-([!-Z^-~])", text):
            put(match, 1, chr(ord(match[1]) + 1))
            put(match, 2, chr(ord(match[2]) - 1))

    def visit_If(self, node: ast.If) -> None:
        self.condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.condition(node.test, loop=True)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.condition(test)
        self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.edit(self.span(node.body), "None")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.edit(self.span(node), "return None")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.edit(self.span(node), "pass")
        if node.cause is not None:
            self.visit(node.exc or node.cause)
        else:
            self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self.edit(self.span(node), "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        self.edit(self.span(node), "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if "__all__" in names or self.only_a_type(names, node.value):
            return
        if not isinstance(node.targets[0], ast.Name):
            self.edit(self.span(node), "pass")
        self.generic_visit(node)

    def only_a_type(self, names: list[str], value: ast.expr) -> bool:
        """Whether only the type checker reads a value: a `Literal` whose texts the module never compares."""
        literal = isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id == "Literal"
        return literal and not any(f"get_args({name})".encode() in self.original for name in names)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.edit(self.span(node), "pass")
        old, news = OPERATORS.get(type(node.op), ("", ()))
        span = self.span(node.target)[1], self.span(node.value)[0]
        gap = self.original[slice(*span)].decode()
        self.edit(span, gap.replace(f"{old}=", "=", 1), *(gap.replace(f"{old}=", f"{new}=", 1) for new in news))
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.edit(self.span(node), "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.edit(self.span(node), "break", "pass")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Leave annotations alone."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (*node.decorator_list, node.args, *node.body):
            self.visit(part)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave asserts alone: they are for the type checker."""


def dotted(module: str) -> str:
    """The import name of a module of the core: `licet.core.algebra.scope` of `scope`."""
    return ".".join(("licet", "core", *PATHS[module].relative_to(CORE).with_suffix("").parts))


def names_of(node: ast.stmt) -> set[str]:
    """The names that a statement of a module binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    original = PATHS[module].read_bytes()
    mutator = Mutator(module, original)
    for node in ast.parse(original).body:
        if module not in WITHIN or WITHIN[module] & names_of(node):
            mutator.visit(node)
    return sorted(mutator.found.values(), key=lambda mutant: (mutant.start, mutant.end, mutant.text))


# Trial ----------------------------------------------------------------------------------------------------------------


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook that loads the mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != dotted(self.mutant.module):
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(PATHS[self.mutant.module]))

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.mutant.source, PATHS[self.mutant.module], "exec"), module.__dict__)


class Child:
    """A process that tries one mutant; exit code 0 if no test failed."""

    def __init__(self, mutant: Mutant | None, limit: int) -> None:
        self.mutant, self.limit, self.started = mutant, limit, 0.0

    def start(self) -> int:
        self.started = time.monotonic()
        if pid := os.fork():
            return pid
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (self.limit, self.limit))
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            os.dup2(0, 2)
            os._exit(self.attempt())
        finally:
            os._exit(99)

    def attempt(self) -> int:
        raise NotImplementedError

    @property
    def late(self) -> bool:
        return time.monotonic() - self.started > self.limit * PATIENCE


Trial = TypeVar("Trial", bound=Child)


class Fresh(Child):
    """A mutant that is imported in place of its module."""

    def __init__(self, mutant: Mutant, tests: Sequence[str], number: int) -> None:
        super().__init__(mutant, LIMITS[number])
        self.tests, self.number = tests, number

    def attempt(self) -> int:
        assert self.mutant is not None
        sys.meta_path.insert(0, Changed(self.mutant))
        return _pytest(self.tests, self.number)


class Swapped(Child):
    """A mutant whose function replaces the original after the tests were collected; None checks the tests."""

    def __init__(self, mutant: Mutant | None, tests: Sequence[str], session: Any) -> None:
        super().__init__(mutant, LIMITS[0])
        self.tests, self.session = tests, session

    def attempt(self) -> int:
        from _pytest.main import pytest_runtestloop

        if self.mutant is not None and not put_in_place(self.mutant):
            return 0
        order = {(Path("tests") / test).resolve(): number for number, test in enumerate(self.tests)}
        self.session.items = [item for item in self.session.items if item.path in order]
        pytest_runtestloop(self.session)  # raises at the first failure, which exits with 99
        return 0


class Collected:
    """A pytest plugin that runs the collected tests once for each mutant, and once without any.

    Tests without examples come first, and one case of each test before a second case of any.
    """

    def __init__(
        self, mutants: Sequence[Mutant], tests: Mapping[str, Sequence[str]], jobs: int, results: int,
        baseline: Sequence[str],
    ) -> None:  # fmt: skip
        self.mutants, self.tests, self.jobs, self.results, self.baseline = mutants, tests, jobs, results, baseline

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        cases, turns = Counter[Any](), {}
        for item in items:
            turns[item] = cases[item.function]
            cases[item.function] += 1
        items.sort(key=lambda item: (item.get_closest_marker("hypothesis") is not None, turns[item]))

    def pytest_runtestloop(self, session: Any) -> bool:
        children = [
            *(Swapped(None, [file], session) for file in self.baseline),
            *(Swapped(mutant, self.tests[mutant.module], session) for mutant in self.mutants),
        ]
        numbers = {id(child): number - len(self.baseline) for number, child in enumerate(children)}
        for child, code in run(children, self.jobs, lambda done, total: None):
            failed = child.tests[0] if child.mutant is None and code != 0 else ""
            os.write(self.results, json.dumps([numbers[id(child)], code, failed]).encode() + b"\n")
        return True


def _pytest(tests: Sequence[str], number: int, *plugins: object) -> int:
    import pytest

    paths = [f"tests/{test}" for test in tests]
    plain = ("-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:logging", "-p", "no:warnings")
    return int(pytest.main([*plain, f"--hypothesis-profile=round-{number}", *paths], plugins=list(plugins)))


def put_in_place(mutant: Mutant) -> bool:
    """Replace the code of the functions that a mutant changes; False if it changes more than functions."""
    file = f"{mutant.module}.py"
    pairs = list(_changed(compile(mutant.original, file, "exec"), compile(mutant.source, file, "exec")))
    places = {(old.co_qualname, old.co_firstlineno): new for old, new in pairs if old is not None}
    found = set()
    gc.unfreeze()  # what the tests' conftest has frozen would not be listed
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__module__ == dotted(mutant.module):
            place = (thing.__code__.co_qualname, thing.__code__.co_firstlineno)
            if place in places:
                try:
                    thing.__code__ = places[place]
                except ValueError:  # it closes over other names
                    return False
                found.add(place)
        elif hasattr(type(thing), "cache_clear"):
            thing.cache_clear()
    return len(found) == len(pairs)


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType | None, CodeType]]:
    """The functions that differ, each as its old and new code; a pair with None for anything else that differs."""
    mine, theirs = ([const for const in code.co_consts if inspect.iscode(const)] for code in (old, new))
    plain = [[const for const in code.co_consts if not inspect.iscode(const)] for code in (old, new)]
    if old.co_code != new.co_code or repr(plain[0]) != repr(plain[1]) or len(mine) != len(theirs):
        yield None, new
    for one, other in zip(mine, theirs, strict=False):
        if one.co_flags & inspect.CO_OPTIMIZED:
            if one != other:
                yield one, other
        else:
            yield from _changed(one, other)


def prepare(copy: Path) -> None:
    """Copy the sources, so that later edits do not count, and import what every child needs except licet."""
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    os.chdir(copy)
    sys.path.insert(0, str(copy / "src"))
    os.environ.pop("LICET_LONG", None)
    import can_ada  # noqa: F401
    import pytest  # noqa: F401
    import rfc8785  # noqa: F401
    import yaml  # noqa: F401
    from hypothesis import HealthCheck, Phase, settings

    for number, examples in enumerate(EXAMPLES):
        settings.register_profile(
            f"round-{number}",
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),  # a failure is enough, its report is not needed
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
        )


def concerned(module: str) -> list[str]:
    """The tests that concern a module, the nearest first."""
    tests = CONCERNED.get(module)
    if tests is None:
        # From the copy in which this runs, which does not have tests that were written since.
        found = (path for folder in ("core", "spec") for path in Path("tests", folder).rglob("test_*.py"))
        names = (str(path.relative_to("tests")) for path in found)
        tests = sorted(name for name in names if name not in (*ALGEBRA_TESTS, *LEDGER_TESTS))
    return sorted(tests, key=lambda test: test not in NEAREST[module])


def run(trials: Sequence[Trial], jobs: int, show: Callable[[int, int], None]) -> Iterator[tuple[Trial, int | None]]:
    """Run trials in parallel; yields each with its exit code, or None if it took too long."""
    waiting, running, done = deque(trials), dict[int, Trial](), 0
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                trial = waiting.popleft()
                running[trial.start()] = trial
            time.sleep(0.01)
            for pid, trial in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended and not trial.late:
                    continue
                if not ended:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                del running[pid]
                done += 1
                show(done, len(trials))
                code = os.waitstatus_to_exitcode(status) if ended else None
                yield trial, None if code in (-signal.SIGKILL, -signal.SIGXCPU) else code
    finally:
        for pid in running:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# Report ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A listed hunk: a mutant of a module that behaves as the original does, and why."""

    module: str
    hunk: str
    line: int


def listed() -> list[Entry]:
    """Parse the list of equivalents: blocks of a module's name, a hunk, and `because: …`, separated by blank lines."""
    entries = []
    text = LISTED.read_text() if LISTED.exists() else ""
    for block in re.finditer(r"(?:^[^#\n].*\n)+", text, re.MULTILINE):
        lines = block[0].splitlines()
        number = text.count("\n", 0, block.start()) + 1
        if len(lines) < 4 or not re.fullmatch(r"because: \S.*", lines[-1]):
            raise SystemExit(f"{LISTED}:{number}: expected a module, a hunk, and a last line `because: …`")
        entries.append(Entry(lines[0].strip(), "\n".join(lines[1:-1]), number))
    return entries


def progress(label: str) -> Callable[[int, int], None]:
    """Report the progress of a round: on one line of a terminal, or from time to time in a log."""
    terminal, said = sys.stderr.isatty(), [time.monotonic()]

    def show(done: int, total: int) -> None:
        if terminal:
            print(f"\r· {label}: {done}/{total} ", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif time.monotonic() - said[0] > 30:
            said[0] = time.monotonic()
            print(f"· {label}: {done}/{total}", file=sys.stderr, flush=True)

    return show


def survivors(
    mutants: Sequence[Mutant], jobs: int, rounds: int, counts: Counter[str], *, baseline: bool = True
) -> list[Mutant]:
    """The mutants that survive every round. With `baseline`, all tests must first pass without a mutant."""
    left = unnoticed("nearest tests", mutants, NEAREST, jobs, counts)
    others = {module: [test for test in concerned(module) if test not in NEAREST[module]] for module in NEAREST}
    left = unnoticed("other tests", left, others, jobs, counts, baseline=baseline)
    for number in range(1, rounds):
        trials = [Fresh(mutant, concerned(mutant.module), number) for mutant in left]
        left = []
        for trial, code in run(trials, jobs, progress(f"round {number + 1}")):
            if code == 0 and trial.mutant is not None:
                left.append(trial.mutant)
            counts["timed out" if code is None else "killed"] += code != 0
    return left


def unnoticed(
    label: str, mutants: Sequence[Mutant], tests: Mapping[str, Sequence[str]], jobs: int, counts: Counter[str],
    *, baseline: bool = True,
) -> list[Mutant]:  # fmt: skip
    """The mutants that survive while they replace the original; refuses tests that fail without a mutant."""
    if not mutants:
        return []
    tests = {mutant.module: tests[mutant.module] for mutant in mutants}
    incoming, outgoing = os.pipe()
    host = os.fork()
    if not host:
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            files = list(dict.fromkeys(test for of_module in tests.values() for test in of_module))
            _pytest(files, 0, Collected(mutants, tests, jobs, outgoing, files if baseline else []))
        finally:
            os._exit(0)
    os.close(outgoing)
    show, codes = progress(label), dict[int, int | None]()
    with os.fdopen(incoming) as lines:
        for line in lines:
            number, code, failed = json.loads(line)
            if failed:
                os.kill(host, signal.SIGKILL)
                raise SystemExit(f"the tests fail without a mutant (exit {code}): tests/{failed}")
            if number >= 0:
                codes[number] = code
                show(len(codes), len(mutants))
    os.waitpid(host, 0)
    if len(codes) != len(mutants):
        raise SystemExit("the tests could not be collected: run `pytest tests/core tests/spec`")
    counts["timed out"] += sum(code is None for code in codes.values())
    counts["killed"] += sum(code not in (0, None) for code in codes.values())
    return [mutant for number, mutant in enumerate(mutants) if codes[number] == 0]


def main() -> int:
    """Try the mutants of the named modules, or of all; returns 1 for an unlisted survivor or a stale entry."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(NEAREST)}; all by default")
    options.add_argument("--module", action="append", default=[], help="one more module")
    options.add_argument("--sample", nargs="?", type=int, const=40, metavar="N", help="only N of them (40)")
    options.add_argument("--seed", type=int, default=0, help="which sample")
    options.add_argument(
        "--rounds",
        type=int,
        default=len(LIMITS),
        help="stop before mutants are imported afresh (1) or fewer examples (2)",
    )
    options.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time; one per processor")
    options.add_argument("--list", action="store_true", help="print every mutant and try none")
    given = options.parse_args()
    modules = [*given.modules, *given.module] or list(NEAREST)
    if unknown := [name for name in modules if name not in NEAREST]:
        options.error(f"no such module: {', '.join(unknown)}")

    known = [mutant for module in modules for mutant in mutants_of(module)]
    if given.sample is None:
        known = [mutant for mutant in known if mutant.parses]
    entries = [entry for entry in listed() if entry.module in modules]
    hunks = {(mutant.module, mutant.hunk) for mutant in known}
    stale = [
        f"{LISTED.name}:{entry.line}: no such mutant" for entry in entries if (entry.module, entry.hunk) not in hunks
    ]
    excused = {(entry.module, entry.hunk) for entry in entries}
    tried = [mutant for mutant in known if (mutant.module, mutant.hunk) not in excused]
    equivalent = [mutant for mutant in known if (mutant.module, mutant.hunk) in excused]
    known_unlisted = len(tried)
    if given.sample is not None:
        drawn = (mutant for mutant in random.Random(given.seed).sample(tried, len(tried)) if mutant.parses)
        tried = list(itertools.islice(drawn, given.sample))
        equivalent = []
    if given.list:
        for mutant in tried:
            print(f"{mutant.module}:{mutant.line}\n{mutant.hunk}\n")
        return 0

    started = time.monotonic()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as copy:
        prepare(Path(copy))
        # A sample runs after the tests in `make test`, so all tests are known to pass.
        left = survivors(tried, given.jobs, given.rounds, counts, baseline=given.sample is None)
        for mutant in left:
            print(f"survived: {mutant.module}:{mutant.line}\n{mutant.hunk}\n", flush=True)
        # A mutant that is listed as equivalent but killed by a test is not equivalent.
        quiet = {id(mutant) for mutant in survivors(equivalent, given.jobs, 1, Counter())}
    stale += [
        f"{LISTED.name}: listed as equivalent, but a test notices it\n{mutant.module}\n{mutant.hunk}"
        for mutant in equivalent
        if id(mutant) not in quiet
    ]
    for problem in stale:
        print(f"stale: {problem}\n")
    print(
        f"· {len(tried)} of {known_unlisted} mutants of {', '.join(modules)}: {counts['killed']} killed,"
        f" {counts['timed out']} timed out,"
        f" {len(left)} survived; {len(equivalent)} equivalent; {time.monotonic() - started:.0f} s"
    )
    return 1 if left or stale else 0


if __name__ == "__main__":
    sys.exit(main())
