"""A grant over a directory that this process imports modules from: refused, dropped or accepted.

Each case runs in a process of its own, whose import path is the case.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm
from licet.guard.import_path import ways

AGENT = """
import json, os, sys
sys.path[:0] = json.loads(os.environ.get("ENTRIES", "[]"))
{before}
from licet import Backends, Context, Gate, RegistrationRefused, load_manifest, run, tool
from msgspec.structs import replace

@tool(needs=["fs:*:*", "process:exec:*"], effect="{effect}", sandbox="{level}", name="t")
async def t(ctx: Context) -> str:
    "Do nothing."
    return "done"

backends = Backends.{backends}
try:
    gate = Gate(replace(load_manifest("{manifest}"), pinned="a test"), [t], backends{options})
except RegistrationRefused as refused:
    print(json.dumps([[one.capability, str(one)] for one in refused.misfits]))
else:
    print(json.dumps("built"))
    {after}
"""


class Host:
    """A directory with a script that builds a gate."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.manifest = root / "policy" / "a.yaml"
        for place in (self.work, self.manifest.parent):
            place.mkdir()

    def write_manifest(self, write: list[str], deny: list[str] | None = None) -> None:
        """Write a manifest with these grants."""
        capabilities = {
            "tools": {"t": {}},
            "max_side_effect_class": "write_limited",
            "approvals": {"write": "manifest"},
            "fs_reach": {"write": write},
            "deny": [f"fs:write:{path}" for path in deny or ()],
            "process": {"allowed_binaries": ["sh"]},
        }
        self.manifest.write_text(json.dumps({"agent": "a", "version": "1.0", "capabilities": capabilities}))

    def build(
        self,
        write: list[str],
        *,
        deny: list[str] | None = None,
        entries: list[str] | None = None,
        before: str = "",
        after: str = "pass",
        options: str = "",
        effect: str = "write_limited",
        level: str = "restricted",
        backends: str = "local('../state')",
        start: tuple[str, ...] = ("agent.py",),
        environment: dict[str, str] | None = None,
    ) -> Any:
        """Run a script in `work` that builds a gate with these grants, and return what it printed."""
        self.write_manifest(write, deny)
        script = AGENT.format(
            before=before, after=after, options=options, effect=effect, level=level, backends=backends,
            manifest=self.manifest,
        )  # fmt: skip
        (self.work / "agent.py").write_text(script)
        ran = subprocess.run(
            [sys.executable, *start], cwd=self.work, capture_output=True, text=True, timeout=120, check=False,
            env={"PATH": os.environ["PATH"], "ENTRIES": json.dumps(entries or []), **(environment or {})},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        said = [json.loads(line) for line in ran.stdout.splitlines()]
        return said[0] if len(said) == 1 else said


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path.resolve())


# What is refused ------------------------------------------------------------------------------------------------------

WHOLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "the directory of the script": ("${workdir}", {}, "the directory of the script `agent.py`"),
    "a directory above it": ("{root}", {}, "the directory of the script `agent.py`"),
    "python -c": (
        "${workdir}",
        {"start": ("-c", "exec(open('agent.py').read())")},
        "the current directory, which `python -c` and an interactive session search first",
    ),
    "python -m": ("${workdir}", {"start": ("-m", "agent")}, "the current directory, which `python -m` searches first"),
    "PYTHONPATH": (
        "{root}/lib",
        {"environment": {"PYTHONPATH": "{root}/lib"}},
        "`PYTHONPATH` names it",
    ),
    "the program itself": ("{root}/lib", {"entries": ["{root}/lib"]}, "this program has added it to `sys.path`"),
    "a relative entry": ("{root}/lib", {"entries": ["../lib"]}, "this program has added it to `sys.path`"),
    "an entry that does not exist yet": (
        "{root}/new",
        {"entries": ["{root}/new/lib"]},
        "this program has added it to `sys.path`",
    ),
    "an archive": ("{root}/lib", {"entries": ["{root}/lib/code.zip"]}, "this program has added it to `sys.path`"),
    "an archive by its own name": (
        "{root}/lib/code.zip",
        {"entries": ["{root}/lib/code.zip"]},
        "this program has added it to `sys.path`",
    ),
    "a link to what is granted": ("{root}/real", {"entries": ["{root}/link"]}, "this program has added it"),
    "a link that is granted": ("{root}", {"entries": ["{root}/link"]}, "the directory of the script `agent.py`"),
    "what a grant that is a link leads to": ("{root}/link", {"entries": ["{root}/real"]}, "this program has added it"),
    "a link on the way": ("{root}/hops", {"entries": ["{root}/first/code"]}, "this program has added it"),
    "a loaded package": (
        "{root}/lib/pkg",
        {"entries": ["{root}/lib"], "before": "import pkg; sys.path.remove('{root}/lib')"},
        "the package `pkg` is loaded from there",
    ),
    "a loaded package without a file": (
        "{root}/lib/bare",
        {"entries": ["{root}/lib"], "before": "import bare.inner"},
        "the package `bare` is loaded from there",
    ),
}


def laid_out(root: Path) -> None:
    for place in ("lib/pkg/sub", "lib/bare", "real", "hops", "code/code"):
        (root / place).mkdir(parents=True)
    for file in ("lib/pkg/__init__.py", "lib/pkg/sub/__init__.py", "lib/bare/inner.py", "lib/single.py"):
        (root / file).write_text("")
    (root / "link").symlink_to("real")
    (root / "first").symlink_to("hops/second")
    (root / "hops/second").symlink_to(root / "code")


def filled(value: Any, root: Path) -> Any:
    if isinstance(value, str):
        return value.replace("{root}", str(root))
    if isinstance(value, dict):
        return {key: filled(one, root) for key, one in value.items()}
    return type(value)(filled(one, root) for one in value) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(("write", "how", "origin"), WHOLE.values(), ids=WHOLE)
@pytest.mark.sampled(2)
def test_a_grant_over_an_entry_is_refused_and_names_its_origin(
    host: Host, write: str, how: dict[str, Any], origin: str
) -> None:
    laid_out(host.root)
    misfits = host.build([filled(write, host.root)], **filled(how, host.root))
    assert isinstance(misfits, list), misfits
    said = [text for _, text in misfits if origin in text]
    assert said, misfits
    assert "could run in this process, without walls; to allow it: grant a subdirectory" in said[0]
    for help_ in ("installed", "`python -P`", "unchecked_imports=True"):
        assert help_ in said[0]


INSIDE = {
    "a module of Python": "{root}/lib/json",
    "a module of Python as a file": "{root}/lib/json.py",
    "an extension": "{root}/lib/json.abi3.so",
    "an installed package": "{root}/lib/httpcore2",
    "an installed package as a file": "{root}/lib/httpcore2.py",
    "part of a package without a file": "{root}/lib/bare/inner.py",
    "a loaded module": "{root}/lib/licet",
    "a module beside it": "{root}/lib/single",
    "a package beside it": "{root}/lib/pkg",
    "a part of a package beside it": "{root}/lib/pkg/sub",
    "what is compiled there": "{root}/lib/__pycache__",
    "what is compiled of a package": "{root}/lib/pkg/__pycache__",
}


@pytest.mark.parametrize("write", INSIDE.values(), ids=INSIDE)
@pytest.mark.sampled(2)
def test_a_grant_over_what_shadows_a_module_is_refused(host: Host, write: str) -> None:
    laid_out(host.root)
    loaded = "__import__('bare' + '.inner')" if "bare" in write else ""  # in words it would be closed, as a tool's file
    path = filled(write, host.root)
    misfits = host.build([path], entries=[f"{host.root}/lib"], before=loaded)
    assert isinstance(misfits, list), misfits
    assert [capability for capability, _ in misfits] == [f"fs:write:{path}"] * len(misfits)


FINE: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a subdirectory": (["${workdir}/notes"], {}),
    "a subdirectory that exists": (["${workdir}/../lib/data"], {}),
    "a directory beside": (["{root}/elsewhere"], {}),
    "data in a package": (["{root}/lib/pkg/data"], {"entries": ["{root}/lib"], "before": "import pkg"}),
    "a name that begins like an entry": (["{root}/libs"], {"entries": ["{root}/lib"]}),
    "python -P": (["${workdir}"], {"start": ("-P", "agent.py")}),
    "what is denied again": (["{root}"], {"deny": ["{root}/work"]}),
    "a class that only reads": (["${workdir}"], {"effect": "read_only"}),
    "files in memory": (["${workdir}"], {"backends": "memory()"}),
    "what is compiled elsewhere, which is never writable": (
        ["{root}/compiled"],
        {"before": "sys.pycache_prefix = '{root}/compiled'"},
    ),
    "nothing": ([], {}),
}


@pytest.mark.parametrize(("write", "how"), FINE.values(), ids=FINE)
@pytest.mark.sampled(2)
def test_other_grants_are_not_refused(host: Host, write: list[str], how: dict[str, Any]) -> None:
    laid_out(host.root)
    fixed = [filled(path, host.root).replace("${workdir}/../", f"{host.root}/") for path in write]
    assert host.build(fixed, **filled(how, host.root)) == "built"


MEMORY = {
    "an isolated worker writes by itself": {"backends": "memory()", "level": "isolated"},
    "programs are real": {"backends": "memory(processes=Backends.local('../state').processes)"},
    "files are real": {"backends": "memory(files=Backends.local('../state').files)"},
}


@pytest.mark.parametrize("how", MEMORY.values(), ids=MEMORY)
@pytest.mark.sampled(2)
def test_a_memory_backend_does_not_permit_grants_that_a_worker_could_write_to(host: Host, how: dict[str, str]) -> None:
    assert isinstance(host.build(["${workdir}"], **how), list)  # type: ignore[arg-type]


def test_calls_under_such_a_grant_are_denied_after_a_reload(host: Host) -> None:
    reload = """
    wide = os.environ["WIDE"]
    try:
        gate.reload(load_manifest(wide))
    except RegistrationRefused as refused:
        print(json.dumps("refused"))
    print(json.dumps([gate.manifest.agent, run(gate, gate.tools[0].name).reason]))
"""
    wide = host.root / "policy" / "wide.yaml"
    host.write_manifest(["${workdir}"])
    wide.write_text(host.manifest.read_text().replace('"agent": "a"', '"agent": "wide"'))
    said = host.build(["${workdir}/notes"], after=reload.strip(), environment={"WIDE": str(wide)})
    assert said == ["built", "refused", ["wide", "PATH_NOT_REACHABLE"]]


# What accepts it ------------------------------------------------------------------------------------------------------


def test_an_accepted_risk_is_in_every_receipt(host: Host) -> None:
    call = "result = run(gate, 't'); print(json.dumps([result.layers, result.receipt]))"
    built, (layers, receipt) = host.build(
        ["${workdir}"], options=", unchecked_imports=True", after=call, environment={"HOME": str(host.root)}
    )
    assert (built, layers[-1]) == ("built", "unchecked imports")
    state = ["--state", str(host.root / "state")]
    for words, told in ((["show", receipt], "unchecked imports"), (["verify"], "fine: ")):
        ran = warm.run("from licet.cli import main\nmain()", ["receipts", *words, *state])
        assert told in ran.stdout, ran.stderr


def test_ways_lists_every_spelling_of_a_path(tmp_path: Path) -> None:
    laid_out(tmp_path)
    way = str(tmp_path / "first" / "code")
    hop = [str(tmp_path / "hops/second/code"), str(tmp_path / "code/code")]
    assert list(dict.fromkeys(ways(way))) == [way, *hop]
    (tmp_path / "circle").symlink_to("circle")
    assert str(tmp_path / "circle") in ways(str(tmp_path / "circle"))
