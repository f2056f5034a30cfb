"""A tool plants code where a server without walls is started from: at its next start it would run as this user.

Each attack works if nothing guards the files, and its mark is not made under a policy that names the server: the file
cannot be planted, or it is not used.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import Struct

from attacks.test_hijacked_agent import SERVER, tool
from gateway.workspaces import Workspace
from licet import Context, Gate, load_manifest
from licet import tool as licet_tool
from licet.assemble.server_process import server_launch
from licet.cli.app import licet
from licet.core.policy.servers import server_of
from licet.packages.programs import find_program
from pins import pinned
from sandbox.levels import call, local_backends, needs_walls

NODE = shutil.which("node")
NEEDS = ["fs:read:*", "fs:write:*", "process:exec:*"]
PYTHON_MARK, NODE_MARK = "open('MARK', 'w').close()\n", "require('fs').writeFileSync('MARK', '')\n"
HELLO = "import json\nprint('hello')\n"


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


class Victim(Struct, frozen=True):
    """A server, its files, and the file that an attacker plants."""

    command: tuple[str, ...]
    files: dict[str, str]
    plant: str
    text: str = PYTHON_MARK
    code: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()  # each with what it leads to, from its own directory
    closed: bool = True  # otherwise it can be planted, and is not used


LIB = f"venv/lib/python3.{sys.version_info.minor}/site-packages"
VENV = {"venv/pyvenv.cfg": f"home = {Path(sys.executable).resolve().parent}\n", "server/main.py": HELLO}
IN_VENV = ("venv/bin/python", "server/main.py")
LAUNCHED = {"server/main.py": f"#!{sys.executable}\n{HELLO}"}
INFO = {f"{LIB}/demo-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1\n",
        f"{LIB}/demo-1.dist-info/RECORD": "demo.py,,\n"}  # fmt: skip
MODULE = {f"{LIB}/demo.py": HELLO, **INFO, **VENV}
EDITED = {f"{LIB}/edit.pth": "PLACE/src\n", "src/own.py": "", **VENV, "server/main.py": "import own\n"}
FINDER = "MAPPING: dict[str, str] = {'own': 'PLACE/own'}\nimport sys\nsys.path.append('PLACE')\n"
FOUND = {f"{LIB}/__editable__.own.pth": "import __editable___own_finder", f"{LIB}/__editable___own_finder.py": FINDER,
         "own/__init__.py": "", **VENV, "server/main.py": "import own\n"}  # fmt: skip
OWN = {"server/main.py": "import own\n", "server/own.py": ""}
SYSTEM = (sys.executable, "server/main.py")
PACKAGED = {"a/b/main.js": "try { require('x') } catch {}\nconsole.log('hello')\n"}
RELATIVE = {"a/main.js": "try { require('./x') } catch {}\nconsole.log('hello')\n"}
SELF = {"a/main.js": "try { require('x/y') } catch {}\n", "a/evil.js": NODE_MARK}
NAMED = {"main.js": "require('foo')\n", "packages/foo/package.json": '{"main": "lib/main"}',
         "packages/foo/lib/main.js": "require('./more'); require('../../shared/x')\n", "packages/foo/lib/more.js": "",
         "packages/shared/x.js": ""}  # fmt: skip
WORKSPACE = (("node_modules/foo", "../packages/foo"),)
SCOPED = {**NAMED, "main.js": "require('@s/foo')\n"}
EXPORTED = '{"name": "self", "exports": {"./lib": {"require": "./lib/own.js"}, "./all/*": "./*.js"}}'
OWN_NAME = {"main.js": "require('self/lib')\n", "package.json": EXPORTED, "lib/own.js": ""}
ABSOLUTE = {"main.js": "require('PLACE/lib/abs')\n", "lib/abs.js": ""}
BY_URL = {"main.mjs": "import 'file://PLACE/lib/a%62s.mjs'\n", "lib/abs.mjs": ""}
IMPORTED = {**VENV, "server/main.py": "import foo\n", "src/foo/__init__.py": "", f"{LIB}/kept": ""}
VICTIMS = {
    "the script": Victim(SYSTEM, {"server/main.py": HELLO}, "server/main.py"),
    "a module beside the script": Victim(SYSTEM, {"server/main.py": HELLO}, "server/json.py", closed=False),
    "a module beside a program": Victim(("server/main.py",), LAUNCHED, "server/json.py", closed=False),
    "the program": Victim(("server/main.py",), LAUNCHED, "server/main.py", f"#!{sys.executable}\n{PYTHON_MARK}"),
    "a module in the directory that `-m` starts in": Victim(
        ("venv/bin/python", "-m", "demo"), MODULE, "json.py", closed=False
    ),
    "a `.pth` in the environment": Victim(IN_VENV, VENV, f"{LIB}/x.pth", f"import sys; {PYTHON_MARK}"),
    "the environment's settings": Victim(IN_VENV, VENV, f"{LIB}/sitecustomize.py"),
    "the module that is started": Victim(("venv/bin/python", "-m", "demo"), MODULE, f"{LIB}/demo.py"),
    "a module that is installed as editable": Victim(IN_VENV, EDITED, "src/own.py"),
    "a package that an editable finder names": Victim(IN_VENV, FOUND, "own/__init__.py"),
    "a file in `code`": Victim(SYSTEM, OWN, "server/own.py", code=("${workdir}/server",)),
    "a new file in `code`": Victim(SYSTEM, OWN, "server/own/__init__.py", code=("${workdir}/server",)),
    "a package in `node_modules` beside": Victim(("node", "a/b/main.js"), PACKAGED, "a/b/node_modules/x/index.js"),
    "a package in `node_modules` above": Victim(("node", "a/b/main.js"), PACKAGED, "node_modules/x/index.js"),
    "a relative import": Victim(("node", "a/main.js"), {**RELATIVE, "a/x.js": ""}, "a/x.js"),
    "a relative import that is searched first": Victim(("node", "a/main.js"), {**RELATIVE, "a/x.js": ""}, "a/x"),
    "a relative import that is missing": Victim(("node", "a/main.js"), RELATIVE, "a/x/index.js"),
    "a `package.json`": Victim(
        ("node", "a/main.js"), SELF, "a/package.json", '{"name": "x", "exports": {"./y": "./evil.js"}}'
    ),
    "a package of a workspace": Victim(("node", "main.js"), NAMED, "packages/foo/lib/main.js", links=WORKSPACE),
    "a file of a package of a workspace": Victim(
        ("node", "main.js"), NAMED, "packages/foo/lib/more.js", links=WORKSPACE
    ),
    "a file beside a package of a workspace": Victim(
        ("node", "main.js"), NAMED, "packages/shared/x.js", links=WORKSPACE
    ),
    "a package of a workspace with a scope": Victim(
        ("node", "main.js"), SCOPED, "packages/foo/lib/main.js", links=(("node_modules/@s/foo", "../../packages/foo"),)
    ),
    "a package of a workspace in a scope that is linked": Victim(
        ("node", "main.js"), SCOPED, "packages/foo/lib/main.js", links=(("node_modules/@s", "../packages"),)
    ),
    "what a package exports to itself": Victim(("node", "main.js"), OWN_NAME, "lib/own.js"),
    "an import of an absolute path": Victim(("node", "main.js"), ABSOLUTE, "lib/abs.js"),
    "an import of a `file:` address": Victim(
        ("node", "main.mjs"), BY_URL, "lib/abs.mjs", "import fs from 'fs'\nfs.writeFileSync('MARK', '')\n"
    ),
    "a package that is linked into the environment": Victim(
        IN_VENV, IMPORTED, "src/foo/__init__.py", links=((f"{LIB}/foo", "../../../../src/foo"),)
    ),
}  # fmt: skip
PYTHON = [name for name, victim in VICTIMS.items() if victim.command[0] != "node"]


class Project:
    """A directory with a server, whose files all may be written."""

    def __init__(self, place: Path, victim: Victim) -> None:
        self.place, self.victim = place.resolve(), victim
        self.mark = self.place / "it-ran"
        for name, text in victim.files.items():
            self.write(name, text)
        for name, target in victim.links:
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            (self.place / name).symlink_to(target)
        if any(name.startswith("venv/") for name in victim.files):
            (self.place / "venv" / "bin").mkdir()
            os.symlink(os.path.realpath(sys.executable), self.place / "venv" / "bin" / "python")
        self.planted = self.place / victim.plant
        self.free = self.place / "notes" / "free"  # the attacker can write in general
        self.free.parent.mkdir()
        text = NODE_MARK if victim.command[0] == "node" and victim.text == PYTHON_MARK else victim.text
        self.text = self.filled(text)

    def filled(self, text: str) -> str:
        return text.replace("MARK", str(self.mark)).replace("PLACE", str(self.place))

    def write(self, name: str, text: str) -> None:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.filled(text))
        path.chmod(0o755)

    @property
    def entry(self) -> dict[str, Any]:
        return {"command": list(self.victim.command), "sandbox": "native", "tools": {"*": {"effect": "read_only"}},
                **({"code": list(self.victim.code)} if self.victim.code else {})}  # fmt: skip

    def started(self) -> bool:
        """Start the server as licet does; whether what was planted ran."""
        launch = server_launch(server_of("victim", self.entry), str(self.place), str(Path.home()))
        self.run(*find_program(launch, self.place).installed.argv)
        return self.mark.exists()

    def run(self, *command: str) -> None:
        subprocess.run(command, cwd=self.place, capture_output=True, check=False)

    def attack_works_without_a_guard(self) -> bool:
        """Plant it, start the server as it is written, and clear up."""
        before = self.planted.read_text() if self.planted.exists() else None
        self.write(self.victim.plant, self.text)
        word, *rest = self.victim.command
        self.run(str(self.place / word) if "/" in word else word, *rest)
        worked = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        self.planted.unlink()
        for above in self.planted.parents:
            if above == self.place or any(above.iterdir()):
                break
            above.rmdir()
        for cache in self.place.rglob("__pycache__"):
            shutil.rmtree(cache)
        if before is not None:
            self.write(self.victim.plant, before)
        return worked


# The ways to plant ----------------------------------------------------------------------------------------------------

LINE = 'echo fine > "$2"; mkdir -p "$(dirname "$0")" && printf %s "$1" > "$0"'


@licet_tool(needs=NEEDS, effect="write_limited")
async def by_handle(ctx: Context, path: str, text: str, free: str) -> None:
    """Write with `ctx.fs`."""
    await ctx.fs.write(free, "fine")
    await ctx.fs.write(path, text)


@licet_tool(needs=NEEDS, effect="write_limited", sandbox="isolated")
def by_worker(path: str, text: str, free: str) -> None:
    """Write as any Python code does."""
    Path(free).write_text("fine")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


@licet_tool(needs=NEEDS, effect="write_limited")
async def by_program(ctx: Context, path: str, text: str, free: str) -> None:
    """Write with a shell."""
    await ctx.process.spawn("/bin/sh", ["-c", LINE, path, text, free])


def with_a_tool(project: Project, state: Path, tried: Any, level: str) -> None:
    policy = {
        "agent": "tester",
        "capabilities": {
            "tools": {tried.name: {"sandbox": level}},
            "native": [tried.name],
            "max_side_effect_class": "write_limited",
            "approvals": {"write": "manifest"},
            "grants": [f"fs:read:{project.place}", f"fs:write:{project.place}", "process:exec:*"],
        },
        "servers": {"victim": project.entry},
    }
    file = project.place / "agent.yaml"
    file.write_text(json.dumps(policy))
    gate = Gate(pinned(load_manifest(file)), [tried], local_backends(state), workdir=project.place,
                on_misfit="narrow", unchecked_imports=True)  # fmt: skip
    call(gate, tried.name, {"path": str(project.planted), "text": project.text, "free": str(project.free)})


def with_a_command(project: Project, state: Path) -> None:
    policy = {
        "agent": "tester",
        "capabilities": {
            "max_side_effect_class": "write_limited",
            "approvals": {"write": "manifest"},
            "fs_reach": {"read": ["/"], "write": ["${workdir}"]},
            "process": {"allowed_binaries": ["*"]},
        },
        "servers": {"victim": project.entry},
    }
    file = project.place / "agent.yaml"
    file.write_text(json.dumps(policy))
    (project.place / "licet.lock").write_text(
        json.dumps({"format": 1, "manifests": {"agent.yaml": load_manifest(file).digest}})
    )
    words = ["run", str(file), "--workdir", str(project.place), "--state", str(state), "--"]
    CliRunner().invoke(licet, [*words, "/bin/sh", "-c", LINE, str(project.planted), project.text, str(project.free)])


def with_a_server(project: Project, state: Path) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
    offered = [tool("write_file", "Write a note.", schema)]
    writer = {
        "command": [sys.executable, "-I", "-S", str(SERVER), json.dumps({"tools": offered})],
        "grants": ["fs:read:${workdir}", "fs:write:${workdir}"],
        "tools": {"*": {"effect": "write_limited"}},
        "script": {"era": "2025", "tools": offered},
    }
    capabilities = {
        "tools": ["writer.write_file"],
        "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}"]},
        "max_side_effect_class": "write_limited",
        "approvals": {"write": "manifest"},
    }
    victim = {**project.entry, "script": {"era": "2025", "tools": []}}
    workspace = Workspace(project.place, state, {"writer": writer, "victim": victim}, capabilities)

    async def attack() -> None:
        async with workspace.gateway() as client:
            await client.call("writer__write_file", {"path": str(project.free), "text": "fine"})
            await client.call("writer__write_file", {"path": str(project.planted), "text": project.text})

    project.planted.parent.mkdir(parents=True, exist_ok=True)  # what its tool does not do
    asyncio.run(attack())


WAYS: dict[str, Callable[[Project, Path], None]] = {
    "a handle": lambda project, state: with_a_tool(project, state, by_handle, "native"),
    "a walled tool": lambda project, state: with_a_tool(project, state, by_worker, "isolated"),
    "a program of a tool": lambda project, state: with_a_tool(project, state, by_program, "native"),
    "`licet run`": with_a_command,
    "a walled server": with_a_server,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VICTIMS)
@pytest.mark.sampled(6)
def test_what_a_server_is_started_from_is_not_planted(name: str, way: str, tmp_path: Path, store_path: Path) -> None:
    victim = VICTIMS[name]
    if victim.command[0] == "node" and NODE is None:
        pytest.skip("Node is not installed here")
    project = Project(tmp_path / "work", victim)
    assert project.attack_works_without_a_guard()
    before = project.planted.read_text() if project.planted.exists() else None
    WAYS[way](project, store_path)
    assert project.free.exists()
    after = project.planted.read_text() if project.planted.exists() else None
    assert not project.started()
    assert after == (before if victim.closed else after)
