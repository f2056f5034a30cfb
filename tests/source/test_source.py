"""Declarations read from source: what is found, what is a problem, and that nothing of a file is ever run."""

import ast
import os
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.core.algebra.set import CapabilitySet
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem
from licet.source import literals
from licet.source.declarations import SourceTools, find_tool, read_tools
from licet.source.limits import LARGEST_SOURCE
from licet.source.source_files import parse
from policy_files.messages import message

HEAD = "from licet import tool, ToolCapabilities\n"
F = "\ndef f(): ...\n"


def read(tmp_path: Path, source: str | bytes) -> SourceTools:
    path = tmp_path / "file.py"
    path.write_bytes(source if isinstance(source, bytes) else textwrap.dedent(source).encode())
    return read_tools(path, "file.py")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def problems(source: SourceTools) -> list[str]:
    return [str(problem) for problem in source.problems]


# What is found --------------------------------------------------------------------------------------------------------

T = "@tool(needs=['env:read:A'])" + F
# The source, and the rules of its one tool.
DECLARES: dict[str, tuple[str, ...]] = {
    "nothing": ("def f(): ...\n",),
    "the front door": ("from licet import tool\n" + T, "env:read:A"),
    "another name": ("from licet import tool as t\n@t(needs=['env:read:A'])" + F, "env:read:A"),
    "the module": ("import licet\n@licet.tool(needs=['env:read:A'])" + F, "env:read:A"),
    "the module by another name": ("import licet as l\n@l.tool(needs=['env:read:A'])" + F, "env:read:A"),
    "the inner module": ("from licet.declare import tool\n" + T, "env:read:A"),
    "the inner module by path": ("import licet.declare\n@licet.declare.tool(needs=['env:read:A'])" + F, "env:read:A"),
    "a star": ("from licet import *\n" + T, "env:read:A"),
    "an availability check by name": (
        HEAD + "def here(seen): return 1 / 0\n@tool(needs=['env:read:A'], available=here)" + F,
        "env:read:A",
    ),
    "an availability check in place": (
        HEAD + "@tool(needs=['env:read:A'], available=lambda seen: seen.env('A') is not None)" + F,
        "env:read:A",
    ),
    "a blocking context": (
        "from licet import *\n@tool(needs=['env:read:A'])\ndef f(ctx: SyncContext): ...\n",
        "env:read:A",
    ),
    "an asynchronous function": (HEAD + "@tool(needs=['env:read:A'])\nasync def f(): ...\n", "env:read:A"),
    "an import that may fail": ("try:\n    from licet import tool\nexcept ImportError:\n    raise\n" + T, "env:read:A"),
    "a function under a condition": (
        HEAD + "if True:\n    @tool(needs=['env:read:A'])\n    def f(): ...\n",
        "env:read:A",
    ),
    "someone else's decorator": ("from langchain import tool\n" + T,),
    "a decorator from nowhere": (T,),
    "another decorator below": (HEAD + "@tool(needs=['env:read:A'])\n@cache" + F, "env:read:A"),
    "capabilities": (HEAD + "@tool(capabilities={'network': {'allowedHosts': ['a.test']}})" + F, "network:*:a.test"),
    "typed capabilities": (
        HEAD + "@tool(capabilities=ToolCapabilities(secrets=['A'], network={'allowed_hosts': ['a.test']}))" + F,
        "network:*:a.test",
        "secret:read:A",
    ),
    "typed parts": (
        "import licet as l\n@l.tool(capabilities=l.ToolCapabilities(storage=l.ToolCapabilities.Storage('session')))"
        + F,
        "storage:*:session",
    ),
    "rules as values": (
        "import licet\n@licet.tool(needs=licet.CapabilitySet([licet.Capability('env:read:A')]))" + F,
        "env:read:A",
    ),
    "a name for a literal": (HEAD + "A = ('env:read:A',)\n@tool(needs=A)" + F, "env:read:A"),
    "a name with a type": (HEAD + "A: Final = ('env:read:A',)\n@tool(needs=A)" + F, "env:read:A"),
    "names inside names": (
        HEAD + "H = 'a.test'\nL = [H, 'b.test']\nC = {'network': {'allowed_hosts': L}}\n@tool(capabilities=C)" + F,
        "network:*:a.test",
        "network:*:b.test",
    ),
    "a list that is only looked at": (
        HEAD + "A = ['env:read:A']\n@tool(needs=A)\ndef f(x):\n    return x in A and A[0]\n",
        "env:read:A",
    ),
    "a list deep in a declaration": (
        HEAD + "A = ['A']\n@tool(capabilities=ToolCapabilities(env=A, network={'allowed_hosts': A}))" + F,
        "env:read:A",
        "network:*:a",
    ),
    "a set": (HEAD + "@tool(needs={'env:read:A', 'env:read:B'})" + F, "env:read:A", "env:read:B"),
    "a connector": (HEAD + "@tool(needs=[], connector='github@2.1')" + F, "connector:use:github"),
    "text over two lines": (HEAD + "@tool(needs=['env:'\n  'read:A'])" + F, "env:read:A"),
    "a byte order mark": ("\ufefffrom licet import tool, ToolCapabilities\n" + T, "env:read:A"),
    "an honest encoding": ("# -*- coding: utf-8 -*-\nfrom licet import tool, ToolCapabilities\n" + T, "env:read:A"),
    "doubtful escapes": (HEAD + "@tool(needs=['env:read:A'])\ndef f():\n    '\\d'\n", "env:read:A"),
    "a none that says nothing": (HEAD + "@tool(needs=['env:read:A'], capabilities=None)" + F, "env:read:A"),
}


@pytest.mark.parametrize("case", DECLARES.values(), ids=DECLARES)
def test_the_rules_of_a_declaration_are_read(tmp_path: Path, case: tuple[str, ...]) -> None:
    source, *rules = case
    found = read(tmp_path, source)
    assert problems(found) == []
    assert [spec.needs for spec in found.specs] == ([CapabilitySet(rules)] if rules else [])


def test_all_arguments_of_a_declaration_are_read(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '''
        from decimal import Decimal
        import licet

        # é: columns count characters
        if True:
            é = 1; \\
            print(é)

        @licet.tool(
            name="fetch",
            capabilities={"storage": {"scope": "session", "ttl_seconds_default": 60}},
            effect="read_only", sandbox="restricted", connector="github@2.1", cost_usd=Decimal("0.10"),
        )
        async def fetch_weather(ctx: licet.Context, city: str) -> dict:
            """Today's
            forecast.

            More."""

        @licet.tool(needs=[], cost_usd=-0, description="Other words.")
        def second(): "Not these."
        ''',
    )
    assert problems(found) == []
    first, second = found.specs
    assert (first.name, first.effect, first.sandbox) == ("fetch", "read_only", "restricted")
    assert (str(first.connector), str(first.cost_usd)) == ("github@2.1", "0.1")
    assert (first.storage_ttl_seconds, first.description, first.schema) == (60, "Today's forecast.", None)
    assert first.origin == Origin("file.py", 10, 1)
    assert (second.description, second.origin) == ("Other words.", Origin("file.py", 21, 1))
    assert dict(found.functions) == {"fetch": "fetch_weather", "second": "second"}


FIELDS = ("name", "needs", "effect", "sandbox", "connector", "cost_usd", "description", "storage_ttl_seconds")


def test_the_source_gives_the_same_tools_as_the_running_program(tmp_path: Path) -> None:
    source = HEAD + textwrap.dedent(
        '''
        from decimal import Decimal
        HOSTS = ("a.test", "b.test:8443")

        @tool(capabilities={"network": {"allowedHosts": HOSTS}, "fs_reach": {"write": "from-personality"}},
              cost_usd=0.1)
        def one():
            """First
            line.

            Rest."""

        @tool(capabilities=ToolCapabilities(storage={"scope": "session"}), effect="full",
              connector="x", cost_usd=Decimal(1))
        def two(): ...

        @tool(name="drei", needs={"env:read:A"}, sandbox="native", description="d")
        async def three(): ...
        '''
    )
    running: dict[str, Any] = {}
    exec(compile(source, "file.py", "exec"), running)
    specs = read(tmp_path, source).specs
    assert [spec.name for spec in specs] == ["one", "two", "drei"]
    for spec, function in zip(specs, ("one", "two", "three"), strict=True):
        live = running[function].spec
        for field in FIELDS:
            assert getattr(spec, field) == getattr(live, field), (function, field)
        assert spec.origin is not None
        assert spec.origin.line == live.origin.line


# What is a problem ----------------------------------------------------------------------------------------------------

LITERAL = "expected a literal; write it as a literal, or declare `needs:` in licet.yaml"
GIVEN = "error: found `needs=` of `f` given by"
UNSAID = (
    "error: found `f`, which does not say what it touches, expected `capabilities=` or `needs=`; "
    "`capabilities={}` is a tool that touches nothing"
)
CHANGED = f"which other code in this file may change, {LITERAL}"
BY_HAND = (
    "warning: found `tool` used by hand, expected `@tool(…)` above a function; what it declares is not read; "
    "declare `needs:` in licet.yaml"
)
REBOUND = (
    "error: found `tool` on `f`, a name that this file binds more than once, expected a name bound once, by "
    "its import from licet"
)
TWO_FUNCTIONS = (
    "error: found `f` bound 2 times in this file, expected one function of that name; rename one, or declare "
    "`needs:` in licet.yaml"
)
# The source, without the import of `tool`, and its problems.
PROBLEMS: dict[str, tuple[str, ...]] = {
    "a bare decorator": ("@tool" + F, f"2:1: {UNSAID}"),
    "a call that says nothing": ("@tool()" + F, f"2:1: {UNSAID}"),
    "a none that says nothing": ("@tool(needs=None)" + F, f"2:1: {UNSAID}"),
    "both ways": (
        "@tool(capabilities={}, needs=[])" + F,
        "2:30: error: found both `capabilities=` and `needs=` on `f`, expected one of the two",
    ),
    "everything that is wrong, at once": (
        "@tool(needs=['fs:read:a'], effect='readonly', sandbox='x', cost_usd=-1, conector='a', name='a b')" + F,
        (
            "2:13: error: found `a`, expected an absolute path, or one that starts with `~` or "
            "`${workdir}`; did you mean `${workdir}/a`?"
        ),
        (
            "2:35: error: found `readonly`, expected one of `read_only`, `write_limited`, `full`, "
            "`destructive` as `effect`; did you mean `read_only`?"
        ),
        "2:55: error: found `x`, expected one of `restricted`, `isolated`, `native` as `sandbox`",
        "2:69: error: found `-1`, expected an amount from 0 to 1000000000, to 15 decimals, as `cost_usd`",
        (
            "2:73: error: found `conector=` in `@tool` of `f`, expected `name`, `description`, "
            "`capabilities`, `needs`, `optional`, `effect`, `sandbox`, `connector`, `cost_usd`, "
            "`available`, `reuse`; did you mean `connector`?"
        ),
        "2:92: error: found `a b`, expected a name of 1 to 128 letters, digits, `_`, `.`, `/` or `-`",
    ),
    "a function whose name no tool can have": (
        "@tool(needs=[])\ndef größe(): ...\n",
        "2:1: error: found `größe`, expected a name of 1 to 128 letters, digits, `_`, `.`, `/` or `-`",
    ),
    "an argument without a name": (
        "@tool('f', needs=[])" + F,
        (
            "2:7: error: found `'f'` without a name in `@tool` of `f`, expected arguments with names, "
            "such as `capabilities=`"
        ),
    ),
    "arguments from elsewhere": (
        "@tool(**given)" + F,
        (
            "2:9: error: found `**` of `given` in `@tool` of `f`, expected arguments one by one; write "
            "it as a literal, or declare `needs:` in licet.yaml"
        ),
    ),
    "an argument twice": (
        "@tool(needs=[], needs=['env:read:A'])" + F,
        "2:17: error: found `needs=` twice in `@tool` of `f`, expected it once",
    ),
    "an unknown name": ("@tool(needs=NEEDS)" + F, f"2:13: {GIVEN} the name `NEEDS`, {LITERAL}"),
    "an imported name": (
        "from .config import NEEDS\n@tool(needs=NEEDS)" + F,
        f"3:13: {GIVEN} the name `NEEDS`, {LITERAL}",
    ),
    "a name bound twice": (
        "A = 'x'\nA = 'y'\n@tool(needs=[A])" + F,
        f"4:14: {GIVEN} the name `A` (bound 2 times in this file), {LITERAL}",
    ),
    "a name that grows": (
        "A = ()\nA += ('env:read:A',)\n@tool(needs=A)" + F,
        f"4:13: {GIVEN} the name `A` (bound 2 times in this file), {LITERAL}",
    ),
    "a name that a loop binds": (
        "A = ()\nfor A in [1]: pass\n@tool(needs=A)" + F,
        f"4:13: {GIVEN} the name `A` (bound 2 times in this file), {LITERAL}",
    ),
    "a name that a function binds": (
        "A = ()\ndef g():\n    global A\n    A = ('env:read:A',)\n@tool(needs=A)" + F,
        f"6:13: {GIVEN} the name `A`, {CHANGED}",
    ),
    "a list that is added to": (
        "A = []\nA.append('env:read:A')\n@tool(needs=A)" + F,
        f"4:13: {GIVEN} the name `A`, {CHANGED}",
    ),
    "a mapping that is added to": (
        "A = {}\nA['env'] = ['A']\n@tool(capabilities=A)" + F,
        f"4:20: error: found `capabilities=` of `f` given by the name `A`, {CHANGED}",
    ),
    "a list in another decorator": (
        (
            "A = ['env:read:A']\ndef own(*given): return lambda fn: fn\n"
            "@own(A.append('env:read:B'))\ndef g(): ...\n@tool(needs=A)" + F
        ),
        f"6:13: {GIVEN} the name `A`, {CHANGED}",
    ),
    "a list in another decorator, by name": (
        "A = ['env:read:A']\ndef own(given): return given.clear\n@own(A)\ndef g(): ...\n@tool(needs=A)" + F,
        f"6:13: {GIVEN} the name `A`, {CHANGED}",
    ),
    "a list in a call below `@tool`": (
        "A = ['env:read:A']\n@tool(needs=[], available=A.append('env:read:B'))\ndef g(): ...\n@tool(needs=A)" + F,
        f"5:13: {GIVEN} the name `A`, {CHANGED}",
    ),
    "a list in a function below `@tool`": (
        "A = ['env:read:A']\n@tool(needs=[], available=lambda seen: A.append('x'))\ndef g(): ...\n@tool(needs=A)" + F,
        f"5:13: {GIVEN} the name `A`, {CHANGED}",
    ),
    "a list in a `tool` of a function": (
        "A = ['env:read:A']\ndef g(tool):\n    @tool(needs=A)\n    def h(): ...\n@tool(needs=A)" + F,
        (
            "4:5: warning: found the tool `h` inside a function, expected a function of the module; it "
            "is not read; declare it in licet.yaml"
        ),
        f"6:13: {GIVEN} the name `A`, {CHANGED}",
    ),
    "names in a circle": (
        "A = B\nB = A\n@tool(needs=A)" + F,
        f"4:13: {GIVEN} names or values nested too deeply, {LITERAL}",
    ),
    "names that grow without bound": (
        "A0 = []\n" + "".join(f"A{n} = [A{n - 1}, A{n - 1}]\n" for n in range(1, 40)) + "@tool(needs=A39)" + F,
        f"42:13: {GIVEN} more than 10000 values, {LITERAL}",
    ),
    "a call": ("@tool(needs=list_needs())" + F, f"2:13: {GIVEN} a call, `list_needs()`, {LITERAL}"),
    "a call that fails": (
        "@tool(capabilities=ToolCapabilities(hosts=[]))" + F,
        (
            "2:20: error: found `capabilities=` of `f` given by a call that fails, "
            f"`ToolCapabilities(hosts=[])` (Unexpected keyword argument 'hosts'), {LITERAL}"
        ),
    ),
    "capabilities that are malformed": (
        "@tool(capabilities=ToolCapabilities(secrets='A'))" + F,
        "2:20: error: found `A`, expected a list as `secrets`; write `['A']`",
    ),
    "text that is put together": (
        "H = 'a.test'\n@tool(needs=[f'network:*:{H}'])" + F,
        f"3:14: {GIVEN} `f'network:*:{{H}}'`, {LITERAL}",
    ),
    "a list that is put together": (
        "@tool(needs=['env:read:A'] + ['env:read:B'])" + F,
        f"2:13: {GIVEN} `['env:read:A'] + ['env:read:B']`, {LITERAL}",
    ),
    "a mapping from elsewhere": (
        "@tool(capabilities={**more})" + F,
        f"2:23: error: found `capabilities=` of `f` given by `**` of `more`, {LITERAL}",
    ),
    "a key twice": (
        "@tool(capabilities={'env': [], 'env': ['A']})" + F,
        f"2:32: error: found `capabilities=` of `f` given by the key `'env'` a second time, {LITERAL}",
    ),
    "a key that is no text": (
        "@tool(capabilities={1: []})" + F,
        f"2:21: error: found `capabilities=` of `f` given by the key `1` that is not text, {LITERAL}",
    ),
    "a set of lists": ("@tool(needs={[]})" + F, f"2:13: {GIVEN} `{{[]}}`, a set of what cannot be in one, {LITERAL}"),
    "a decorator twice": (
        "@tool(needs=[])\n@tool(needs=[])" + F,
        "3:1: error: found `@tool` twice on `f`, expected one `@tool`",
    ),
    "a name twice": (
        "@tool(needs=[])\ndef f(): ...\n@tool(needs=[], name='f')\ndef g(): ...\n",
        "4:1: error: found a second tool called `f`, expected each name once; the first is at file.py:2",
    ),
    "a function twice": ("@tool(needs=[])\ndef f(): ..." + F, f"2:1: {TWO_FUNCTIONS}"),
    "a function that is replaced": ("@tool(needs=[])\ndef f(): ...\nf = wrap(f)\n", f"2:1: {TWO_FUNCTIONS}"),
    "a decorator of the same name": (
        "def tool(**k): return licet_tool(**widen(k))\n@tool(needs=[])" + F,
        f"3:1: {REBOUND}",
    ),
    "a decorator that a function replaces": (
        "def g():\n    global tool\n    tool = wider\n@tool(needs=[])" + F,
        f"5:1: {REBOUND}",
    ),
    "a decorator above": (
        "@other(1)\n@tool(needs=[])" + F,
        (
            "3:1: warning: found `other(1)` above `@tool` of `f`, expected `@tool` as the first "
            "decorator; what the other makes of the tool is not read"
        ),
    ),
    "a class": (
        "@tool(needs=[])\nclass F: ...\n",
        "2:1: error: found a class `F` as a tool, expected a function of the module",
    ),
    "a method": (
        "class F:\n    @tool(needs=[])\n    def f(self): ...\n",
        "3:5: error: found the method `f` as a tool, expected a function of the module",
    ),
    "a function of a function": (
        "def g():\n    @tool(needs=[])\n    def f(): ...\n",
        (
            "3:5: warning: found the tool `f` inside a function, expected a function of the module; it "
            "is not read; declare it in licet.yaml"
        ),
    ),
    "a decorator used by hand": ("f = tool(needs=[])(len)\n", f"2:5: {BY_HAND}"),
    "a decorator passed on": ("mine = tool\n", f"2:8: {BY_HAND}"),
    "a syntax error": (
        "@tool(needs=[)" + F,
        (
            "2:14: error: found a syntax error (closing parenthesis ')' does not match opening "
            "parenthesis '['), expected Python that this interpreter can read"
        ),
    ),
    "text that shows in another order": (
        "@tool(needs=[])  # \u202e" + F,
        (
            "2:20: error: found U+202E, which shows text in another order than Python reads it, expected "
            "text in reading order; delete it"
        ),
    ),
    "characters that take room in bytes": ("x = 'é'; y = tool\n", f"2:14: {BY_HAND}"),
}


@pytest.mark.parametrize("case", PROBLEMS.values(), ids=PROBLEMS)
def test_an_uncertain_declaration_is_a_problem_with_its_place(tmp_path: Path, case: tuple[str, ...]) -> None:
    source, *expected = case
    found = read(tmp_path, HEAD + source)
    assert problems(found) == [f"file.py:{line}" for line in expected]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@tool(needs=[], " + "x=1, " * 99 + ")" + F, "found more than 50 arguments in `@tool` of `f`"),
        ("@tool(" + "1, " * 99 + "needs=[])" + F, "found more than 50 arguments in `@tool` of `f`"),
        ("".join(f"@tool(needs=N)\ndef f{n}(): ...\n" for n in range(1100)), "found more than 1000 problems"),
        ("tool;" * 2000, "found `tool` used by hand"),
    ],
    ids=["arguments with names", "arguments without", "tools", "uses"],
)
def test_the_number_of_problems_is_limited(tmp_path: Path, source: str, expected: str) -> None:
    found = read(tmp_path, HEAD + source)
    assert len(found.problems) <= 1002
    assert any(expected in line for line in problems(found))


# What a hostile file costs --------------------------------------------------------------------------------------------

NINE_THOUSAND = "MANY = [" + ", ".join(f'"env:read:V{number}"' for number in range(9000)) + "]\n"


def tools(count: int, arguments: str) -> str:
    return "".join(f"@tool({arguments})\ndef t{number}(): ...\n" for number in range(count))


def test_the_total_number_of_values_in_a_file_is_limited(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + NINE_THOUSAND + tools(500, "needs=MANY"))
    assert [spec.name for spec in found.specs] == [f"t{number}" for number in range(11)]
    assert problems(found) == [(message("source.file_py_more_than_values"))]


def test_a_tool_beyond_the_limits_is_reported_as_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"m.py": HEAD + NINE_THOUSAND + tools(500, "needs=MANY")})
    assert isinstance(find_tool("m:t10", [tmp_path]), ToolSpec)
    assert "more than 100000 values" in str(find_tool("m:t400", [tmp_path]))
    assert "no `t500`" in str(find_tool("m:t500", [tmp_path]))


LONG: dict[str, tuple[str, str]] = {
    "text that is no rule": ("'" + "y" * 200_000 + "'", "needs=[LONG]"),
    "text that is no list": ("'" + "y" * 200_000 + "'", "needs=LONG"),
    "text that is no name": ("'" + "y" * 200_000 + "'", "needs=[], name=LONG"),
    "text that is fine": ("'" + "y" * 200_000 + "'", "needs=[], description=LONG"),
    "a path": ("'fs:read:/" + "y" * 200_000 + "'", "needs=[LONG]"),
    "text that is computed": ("f'" + "{x}" * 10_000 + "'", "needs=LONG"),
    "a call": ("f(" + "1," * 100_000 + ")", "needs=LONG"),
    "a number": ("0x" + "9" * 200_000, "needs=[], cost_usd=LONG"),
    "a number of digits": ("9" * 4000, "needs=[], cost_usd=LONG"),
}


@pytest.mark.parametrize(("value", "arguments"), LONG.values(), ids=LONG)
@pytest.mark.sampled(2)
def test_a_long_value_shared_by_many_tools_gives_short_messages(tmp_path: Path, value: str, arguments: str) -> None:
    found = read(tmp_path, HEAD + f"LONG = {value}\n" + tools(2000, arguments))
    assert found.problems
    assert len(found.problems) <= 1002
    assert max(map(len, problems(found))) < 1000
    assert len(found.specs) < 40


def test_an_excerpt_shared_by_many_tools_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[ast.expr] = []

    def counted(node: ast.expr, beginning: str) -> str:
        calls.append(node)
        return "`…`"

    monkeypatch.setattr(literals, "_excerpt", counted)
    found = read(tmp_path, HEAD + "A = f(1)\n" + tools(50, "needs=A"))
    assert len(found.problems) == 50
    assert len(calls) == 1


@pytest.mark.parametrize(("parts", "sound"), [(10_000, True), (10_001, False)])
@pytest.mark.parametrize("quote", ["'", '"', "'''", '"""'])
@pytest.mark.sampled(2)
def test_a_huge_f_string_is_not_parsed(tmp_path: Path, parts: int, sound: bool, quote: str) -> None:
    found = read(tmp_path, f"x = 1\n#\ny = rF{quote}{'{x}' * parts}{quote}\n")
    assert problems(found) == ([] if sound else [message("source.file_py_string_more_than")])


def test_names_inside_names_take_linear_time(tmp_path: Path) -> None:
    def steps(count: int) -> int:
        chain = "".join(f"A{number} = [A{number + 1}]\n" for number in range(count)) + f"A{count} = []\nprint(A0)\n"
        taken = 0

        def traced(frame: Any, event: str, argument: Any) -> Any:
            nonlocal taken
            taken += event == "line"
            return traced if frame.f_code.co_filename == literals.__file__ else None

        before = sys.gettrace()
        sys.settrace(traced)
        try:
            found = read(tmp_path, HEAD + chain + tools(1, f"needs=A{count}"))
        finally:
            sys.settrace(before)
        assert "may change" in problems(found)[0]
        return taken

    assert steps(400) < 6 * steps(100)


def test_a_name_with_many_bindings_takes_no_more_work_than_one_with_two(tmp_path: Path) -> None:
    bound = "".join(f"import a{number}.b as tool\n" for number in range(5000))
    found = read(tmp_path, HEAD + bound + tools(300, "needs=[]"))
    assert len(found.problems) == 300
    assert all(message("source.name_file_binds_more_than") in line for line in problems(found))
    names = literals.Names(parse((HEAD + bound).encode(), "file.py"))  # type: ignore[arg-type]
    assert len(names.dotted(ast.parse("tool", mode="eval").body)) == 2


def test_valid_tools_are_read_if_another_one_is_invalid(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + "@tool(needs=N)\ndef f(): ...\n@tool(needs=[])\ndef g(): ...\n")
    assert [spec.name for spec in found.specs] == ["g"]
    assert len(found.problems) == 1


HOSTILE: dict[str, tuple[bytes, str]] = {
    "bytes that are no text": (b"x = '\xff'\n", "1:1: error: found the byte 0xFF, expected UTF-8"),
    "a later byte": (b"\n\nx = '\xe9'\n", "3:1: error: found the byte 0xE9, expected UTF-8"),
    "another encoding": (
        b"# coding: latin-1\nx = '\xe9'\n",
        "1:1: error: found the encoding iso-8859-1, expected UTF-8",
    ),
    # Under UTF-7 the comment is a line break and code.
    "an encoding that turns comments into code": (
        b"# coding: utf-7\n#+AAo-import os\n",
        "1:1: error: found the encoding utf-7, expected UTF-8",
    ),
    "an unknown encoding": (
        b"# coding: klingon\n",
        "1:1: error: found no encoding that Python knows (unknown encoding: klingon), expected UTF-8",
    ),
    "an encoding against the mark": (
        b"\xef\xbb\xbf# coding: latin-1\n",
        "1:1: error: found no encoding that Python knows (encoding problem: utf-8), expected UTF-8",
    ),
    "a zero byte": (b"x = 1\x00\n", "1:1: error: found a zero byte, expected text"),
    "too much": (b"#" * (LARGEST_SOURCE + 1), "1:1: error: found more than 524288 bytes, expected at most 512 KiB"),
}


@pytest.mark.parametrize(("data", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_one_problem(tmp_path: Path, data: bytes, expected: str) -> None:
    found = read(tmp_path, data)
    assert found.specs == ()
    assert [line[: len(expected) + 8] for line in problems(found)] == [f"file.py:{expected}"]


DEEP = 20_000
NESTED = {
    "parentheses": "x = " + "(" * DEEP + ")" * DEEP,
    "lists": "x = " + "[" * 150 + "]" * 150,
    "signs": "x = " + "-" * DEEP + "1",
    "sums": "x = 1" + "+1" * DEEP,
    "attributes": "x = a" + ".a" * DEEP,
    "calls": "@tool" + "()" * DEEP + "\ndef f(): ...\n",
    "lambdas": "x = " + "lambda:" * DEEP + "1",
    "conditions": "if 1: pass\n" + "elif 1: pass\n" * DEEP,
    "attributes that Python still reads": "x = tool" + ".a" * 900,
    "calls that Python still reads": "@tool" + "()" * 900 + "\ndef f(): ...\n",
    "values that Python still reads": "@tool(needs=" + "-" * 900 + "1)\ndef f(): ...\n",
}


@pytest.mark.parametrize("source", NESTED.values(), ids=NESTED)
def test_nesting_never_makes_the_reader_fail(tmp_path: Path, source: str) -> None:
    found = read(tmp_path, HEAD + source)
    assert found.specs == ()
    assert all(str(problem) for problem in found.problems)


def test_code_nested_too_deeply_for_python_is_a_problem(tmp_path: Path) -> None:
    found = read(tmp_path, NESTED["sums"])
    assert problems(found) == [message("source.file_py_code_nested_too")]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: None, "no readable file (No such file or directory)"),
        (lambda path: path.mkdir(), "no readable file (a directory, not a regular file)"),
        (lambda path: os.mkfifo(path), "no readable file (a named pipe, not a regular file)"),
        (lambda path: path.symlink_to(path), "no readable file (Too many levels of symbolic links)"),
    ],
    ids=["no file", "a directory", "a named pipe", "a link to itself"],
)
def test_a_path_that_is_not_a_regular_file_is_a_problem(
    tmp_path: Path, make: Callable[[Path], None], expected: str
) -> None:
    path = tmp_path / "file.py"
    make(path)
    assert problems(read_tools(path, "file.py")) == [message("source.file_py_expected_python_file", expected=expected)]


def test_an_impossible_path_is_a_problem() -> None:
    [told] = problems(read_tools("a\0b", "file.py"))
    # Each Python puts it into its own words.
    assert re.fullmatch(message("source.file_py_no_readable_file"), told)


def test_the_path_itself_is_shown_if_nothing_else_is_given(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(HEAD + "@tool(needs=[])" + F, encoding="utf-8")
    assert [spec.origin for spec in read_tools(path).specs] == [Origin(str(path), 2, 1)]


PIECES = st.lists(
    st.sampled_from(
        ["@tool(", "needs=", "capabilities=", "[", "]", "{", "}", "(", ")", "'env:read:A'", "A", " = ", "\n", "\n    ",
         "def f(): ...", "class C:", "import licet", "from licet import tool", "global A", "@", ",", ":", "**", "*",
         "lambda: ", "1", "-", ".", "tool", "ToolCapabilities(", "\r", "\x0c", "é", "\ud800", "\\", "#", "'", '"""',
         "match A:", "case ", "async ", "await ", "f'{", "}'", "if A:", "else:", "try:", "except E as A:", "A := 1"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@given(PIECES)
def test_no_file_makes_the_reader_fail(tmp_path_factory: pytest.TempPathFactory, source: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "file.py"
    path.write_bytes((HEAD + source).encode(errors="surrogatepass"))
    found = read_tools(path)
    assert all(str(problem) for problem in found.problems)


def test_reading_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    poison = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n"
    annotation = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    files = {
        "pkg/__init__.py": poison + "from .inner import f\n",
        "pkg/inner.py": poison
        + HEAD
        + f"@tool(needs=['env:read:A'])\ndef f(x: {annotation} = {annotation}) -> {annotation}: ...\n"
        + f"@tool(needs=[{annotation}])\ndef g(): ...\n",
        "conftest.py": poison,
        "sitecustomize.py": poison,
    }
    write(tmp_path, files)
    before = set(sys.modules)
    assert isinstance(find_tool("pkg:f", [tmp_path]), ToolSpec)
    assert len(read_tools(tmp_path / "pkg" / "inner.py").problems) == 1
    assert not marker.exists()
    assert not any(name.startswith("pkg") for name in set(sys.modules) - before)
    # The marker does appear if the file is run.
    exec(compile(files["pkg/inner.py"].partition("@tool")[0], "x", "exec"), {})
    assert marker.exists()


# Finding one ----------------------------------------------------------------------------------------------------------

DECLARED = HEAD + T

FOUND: dict[str, tuple[dict[str, str], str]] = {
    "a module": ({"mod.py": DECLARED}, "mod:f"),
    "a package": ({"pkg/__init__.py": DECLARED}, "pkg:f"),
    "a module of a package": ({"pkg/mod.py": DECLARED}, "pkg.mod:f"),
    "the src layout": ({"src/pkg/mod.py": DECLARED}, "pkg.mod:f"),
    "an import from below": ({"pkg/__init__.py": "from .mod import f", "pkg/mod.py": DECLARED}, "pkg:f"),
    "an import under another name": ({"pkg/__init__.py": "from .mod import f as g", "pkg/mod.py": DECLARED}, "pkg:g"),
    "an import from beside": ({"pkg/a.py": "from .mod import f", "pkg/mod.py": DECLARED}, "pkg.a:f"),
    "an import from above": ({"pkg/in/a.py": "from ..mod import f", "pkg/mod.py": DECLARED}, "pkg.in.a:f"),
    "an import from the package": ({"pkg/__init__.py": DECLARED, "pkg/a.py": "from . import f"}, "pkg.a:f"),
    "an import by full name": ({"a.py": "from pkg.mod import f", "pkg/mod.py": DECLARED}, "a:f"),
    "an import across layouts": ({"a.py": "from pkg.mod import f", "src/pkg/mod.py": DECLARED}, "a:f"),
    "many imports": (
        {**{f"m{n}.py": f"from m{n + 1} import f" for n in range(8)}, "m8.py": DECLARED},
        "m0:f",
    ),
    "a file with other problems": ({"mod.py": DECLARED + "@tool(needs=N)\ndef g(): ...\n"}, "mod:f"),
}


@pytest.mark.parametrize(("files", "reference"), FOUND.values(), ids=FOUND)
def test_a_tool_is_found_by_its_reference(tmp_path: Path, files: dict[str, str], reference: str) -> None:
    found = find_tool(reference, [write(tmp_path, files)])
    assert isinstance(found, ToolSpec), str(found)
    assert found.needs == CapabilitySet(["env:read:A"])


AT = Origin("licet.yaml", 3, 9)
HINT = "decorate it with `@tool(…)` from licet, or declare `needs:` in licet.yaml"
UNMARKED = f"error: found `f`, which is not declared as a tool, expected a function with `@tool(…)`; {HINT}"
NO_FILE = "expected a Python file below the directory of the manifest, or an installed module; looked for"
LOST: dict[str, tuple[dict[str, str], str, str]] = {
    "no module": (
        {},
        "mod:f",
        (
            f"licet.yaml:3:9: error: found no module `mod`, {NO_FILE} ROOT/mod/__init__.py, ROOT/mod.py, "
            "ROOT/src/mod/__init__.py, ROOT/src/mod.py, and on the import path"
        ),
    ),
    "no function": (
        {"mod.py": DECLARED},
        "mod:g",
        f"licet.yaml:3:9: error: found no `g` in ROOT/mod.py, expected a function of that name; {HINT}",
    ),
    "a function that is misspelt": (
        {"mod.py": DECLARED.replace("def f", "def get_price")},
        "mod:get_prices",
        (
            "licet.yaml:3:9: error: found no `get_prices` in ROOT/mod.py, expected a function of that name; did you "
            "mean `get_price`?"
        ),
    ),
    "a function behind a star": (
        {"mod.py": "from other import *", "other.py": DECLARED},
        "mod:f",
        (
            f"licet.yaml:3:9: error: found no `f` in ROOT/mod.py, expected a function of that name; {HINT}; names "
            "behind `import *` are not followed"
        ),
    ),
    "a function without a decorator": ({"mod.py": "\ndef f(): ..."}, "mod:f", f"ROOT/mod.py:2:1: {UNMARKED}"),
    "a value": ({"mod.py": "f = 1"}, "mod:f", f"ROOT/mod.py:1:1: {UNMARKED}"),
    "a module in the place of a function": ({"mod.py": "import f"}, "mod:f", f"ROOT/mod.py:1:1: {UNMARKED}"),
    "an import that may be another": (
        {"mod.py": "try:\n    from a import f\nexcept ImportError:\n    from b import f\n"},
        "mod:f",
        f"ROOT/mod.py:4:5: error: found `f` bound 2 times in this file, expected one meaning; {HINT}",
    ),
    "a declaration that cannot be read": (
        {"mod.py": HEAD + "@tool(needs=N)" + F},
        "mod:f",
        f"ROOT/mod.py:2:13: {GIVEN} the name `N`, {LITERAL}",
    ),
    "a file that cannot be read": (
        {"mod.py": "("},
        "mod:f",
        (
            "ROOT/mod.py:1:1: error: found a syntax error ('(' was never closed), expected Python that "
            "this interpreter can read"
        ),
    ),
    "an import of nothing": (
        {"mod.py": "\nfrom .other import f", "pkg/a.py": "\nfrom .other import f"},
        "pkg.a:f",
        (
            f"ROOT/pkg/a.py:2:1: error: found no module `pkg.other`, {NO_FILE} "
            "ROOT/pkg/other/__init__.py, ROOT/pkg/other.py, ROOT/src/pkg/other/__init__.py, "
            "ROOT/src/pkg/other.py, and on the import path"
        ),
    ),
    "an import that leaves the package": (
        {"pkg/a.py": "from ...etc import f"},
        "pkg.a:f",
        "ROOT/pkg/a.py:1:1: error: found `...etc.f`, expected an import that stays inside the package",
    ),
    "a relative import outside a package": (
        {"a.py": "from .b import f", "b.py": DECLARED},
        "a:f",
        "ROOT/a.py:1:1: error: found `.b.f`, expected an import that stays inside the package",
    ),
    "imports in a circle": (
        {"a.py": "from b import f", "b.py": "from a import f"},
        "a:f",
        (
            "ROOT/b.py:1:1: error: found `a:f`, imported in a circle, expected an import that leads to a "
            "function; a:f → b:f → a:f"
        ),
    ),
    "too many imports": (
        {**{f"m{n}.py": f"from m{n + 1} import f" for n in range(9)}, "m9.py": DECLARED},
        "m0:f",
        "ROOT/m8.py:1:1: error: found `m0:f`, imported over more than 8 files, expected an import that leads to a "
        "function; " + " → ".join(f"m{n}:f" for n in range(10)),
    ),
    "two modules of one name": (
        {"mod.py": DECLARED, "mod/__init__.py": DECLARED},
        "mod:f",
        "licet.yaml:3:9: error: found `mod` in two places: ROOT/mod/__init__.py and ROOT/mod.py, expected one of them",
    ),
    "two layouts": (
        {"mod.py": DECLARED, "src/mod.py": DECLARED},
        "mod:f",
        "licet.yaml:3:9: error: found `mod` in two places: ROOT/mod.py and ROOT/src/mod.py, expected one of them",
    ),
    **{
        f"the reference {text!r}": (
            {"mod.py": DECLARED},
            text,
            f"licet.yaml:3:9: error: found `{shown}`, expected `package.module:function`",
        )
        for text, shown in {
            "mod": "mod",
            "mod:": "mod:",
            ":f": ":f",
            "mod:f:g": "mod:f:g",
            "../mod:f": "../mod:f",
            "/mod:f": "/mod:f",
            "..mod:f": "..mod:f",
            "mod.py:f()": "mod.py:f()",
            "a b:f": "a b:f",
            "mod:f\n": "mod:f\\u000a",
            "mod\x00:f": "mod\\u0000:f",
            "mod.:f": "mod.:f",
            "x" * 600 + ":f": "x" * 80,
        }.items()
    },
}


@pytest.mark.parametrize(("files", "reference", "expected"), LOST.values(), ids=LOST)
def test_a_tool_that_is_not_found_is_a_problem_with_the_searched_paths(
    tmp_path: Path, files: dict[str, str], reference: str, expected: str
) -> None:
    found = find_tool(reference, [write(tmp_path, files)], origin=AT)
    assert isinstance(found, Problem)
    assert str(found).replace(str(tmp_path), "ROOT") == expected


def test_a_tool_must_have_the_name_that_the_workspace_uses(tmp_path: Path) -> None:
    write(tmp_path, {"mod.py": DECLARED})
    assert isinstance(find_tool("mod:f", [tmp_path], name="f", origin=AT), ToolSpec)
    found = find_tool("mod:f", [tmp_path], name="g", origin=AT)
    assert str(found).replace(str(tmp_path), "ROOT") == (message("source.licet_yaml_tool_calls_itself"))


def test_the_first_directory_that_has_a_module_wins(tmp_path: Path) -> None:
    other = DECLARED.replace("env:read:A", "env:read:B")
    roots = [write(tmp_path / "empty", {"x.py": ""}), write(tmp_path / "one", {"mod.py": DECLARED})]
    roots.append(write(tmp_path / "two", {"mod.py": other, "only.py": other}))
    first, second = find_tool("mod:f", roots), find_tool("only:f", roots)
    assert isinstance(first, ToolSpec)
    assert isinstance(second, ToolSpec)
    assert (first.needs, second.needs) == (CapabilitySet(["env:read:A"]), CapabilitySet(["env:read:B"]))
    assert str(find_tool("mod:f", [])).startswith(message("source.mod_no_module_mod"))


def test_a_link_that_leads_outside_is_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"mod.py": DECLARED, "pkg/mod.py": DECLARED})
    root = tmp_path / "root"
    root.mkdir()
    (root / "mod.py").symlink_to(outside / "mod.py")
    (root / "pkg").symlink_to(outside / "pkg")
    (root / "src").symlink_to(outside)
    for reference, shown in (("mod:f", "mod.py"), ("pkg.mod:f", "pkg/mod.py")):
        found = find_tool(reference, [root], origin=AT)
        assert str(found) == (message("source.licet_yaml_which_leads_outside", root=root / shown, root2=root))


def test_links_inside_a_directory_and_to_the_directory_are_followed(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"real/mod.py": DECLARED})
    (root / "pkg").symlink_to("real")
    (root / "src").symlink_to(".")
    link = tmp_path / "link"
    link.symlink_to(root)
    for start in (root, link, tmp_path / "root" / ".." / "link"):
        assert isinstance(find_tool("pkg.mod:f", [start]), ToolSpec)


def test_a_file_is_read_again_after_it_changed(tmp_path: Path) -> None:
    write(tmp_path, {"mod.py": DECLARED})
    first = find_tool("mod:f", [tmp_path])
    write(tmp_path, {"mod.py": DECLARED.replace("env:read:A", "env:read:B")})
    second = find_tool("mod:f", [tmp_path])
    assert isinstance(first, ToolSpec)
    assert isinstance(second, ToolSpec)
    assert first.needs != second.needs


# Ready-made tools -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["licet.tools:read_file", "licet.tools.basic:read_file"])
def test_a_ready_made_tool_is_read_from_the_package_itself(tmp_path: Path, reference: str) -> None:
    found = find_tool(reference, [tmp_path])
    assert isinstance(found, ToolSpec)
    assert found.needs == CapabilitySet(["fs:read:*"])
    assert found.origin is not None
    assert found.origin.file == "licet/tools/basic.py"  # the same on every machine


def test_a_directory_next_to_a_manifest_cannot_replace_a_ready_made_tool(tmp_path: Path) -> None:
    # An import would not find it either: licet is loaded already.
    fake = HEAD + "@tool(needs=[])\ndef read_file(): ...\n"
    write(tmp_path, {"licet/tools/basic.py": fake, "licet/tools/__init__.py": fake, "licet/tools/own.py": fake})
    found = find_tool("licet.tools.basic:read_file", [tmp_path])
    assert isinstance(found, ToolSpec)
    assert found.needs == CapabilitySet(["fs:read:*"])
    assert isinstance(find_tool("licet.tools.own:read_file", [tmp_path]), Problem)


@pytest.mark.parametrize("module", ["licet.core.algebra.set", "licet.toolsmith", "os"])
def test_no_other_installed_module_is_read(tmp_path: Path, module: str) -> None:
    found = find_tool(f"{module}:read_file", [tmp_path])
    assert isinstance(found, Problem)
    assert message("source.python_file_below_directory_manifest") in str(found)
