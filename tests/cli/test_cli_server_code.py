"""`servers.NAME.code`: what the lock has of it, what a start and `check` refuse, and how a person learns of it."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import needs_walls
from command_line import enter_project_of_server, run
from licet import Backends, Gate, load_manifest
from licet.assemble.never_writable import never_writable
from licet.assemble.server_process import ServerError
from licet.core.policy.lock import read_lock
from licet.core.policy.servers import Server
from licet.errors import RegistrationRefused
from licet.gateway.gateway import gateway_servers
from licet.mcp.server_definitions import missing_code
from licet.packages.package_store import file_digest

pytestmark = needs_walls
MAIN = "import json, sys\nfrom own import Server\nServer({'tools': ['echo']}).run()\n"
CODE = {"command": ["python3", "server/main.py"], "code": ["${workdir}/server"]}
DESK = {"tools": {"desk.echo": {}}, "native": ["desk"], "budget": {"max_calls_per_day": 5}}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = enter_project_of_server(tmp_path, monkeypatch, "server/own.py")
    (folder / "server" / "main.py").write_text(MAIN)
    return folder


def policy(server: dict[str, Any], **capabilities: Any) -> None:
    about = {"tools": {"*": {"effect": "read_only"}}, **server}
    content = {"agent": "a", "servers": {"desk": about}, "capabilities": {**DESK, **capabilities}}
    Path("a.yaml").write_text(json.dumps(content, indent=1))


def start(state: Path) -> str:
    """Start the gateway and its server; empty, or why that fails."""

    async def once() -> str:
        backend = gateway_servers(load_manifest("a.yaml"), state, session="g-x", report=lambda _: None)
        try:
            async with backend.running["desk"]._links():
                return ""
        except ServerError as wrong:
            return str(wrong)
        finally:
            await backend.close()

    return asyncio.run(once())


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a changed file": (lambda here: (here / "server" / "own.py").write_text("x = 1"), "`own.py` is different"),
    "a new file": (lambda here: (here / "server" / "json.py").touch(), "`json.py` is new"),
    "a new file below": (lambda here: shutil.copytree(here / "server", here / "server" / "a"), "`a/main.py` is new"),
    "a removed file": (lambda here: (here / "server" / "own.py").unlink(), "`own.py` is missing"),
    "a link that leads out": (lambda here: os.symlink("/etc", here / "server" / "etc"), "leads out of the code"),
    "a pipe": (lambda here: os.mkfifo(here / "server" / "pipe"), "it is no regular file"),
}  # fmt: skip


@pytest.mark.parametrize("sandbox", ["isolated", "native"])
def test_the_lock_has_each_file_and_the_server_starts(here: Path, store_path: Path, sandbox: str) -> None:
    policy({**CODE, "sandbox": sandbox})
    (here / "server" / "__pycache__").mkdir()
    (here / "server" / "__pycache__" / "own.cpython-399.pyc").touch()
    run("lock", "a.yaml")
    locked = read_lock(Path("licet.lock").read_bytes()).servers["desk"]
    digests = {name: file_digest(here / "server" / name) for name in ("main.py", "own.py")}
    assert locked.code == {"${workdir}/server": digests}
    assert str(here) not in Path("licet.lock").read_text()
    run("check", "--locked", "a.yaml")
    assert start(store_path) == ""


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.sampled(2)
def test_a_difference_is_refused_by_check_and_start(here: Path, store_path: Path, change: str) -> None:
    policy(CODE)
    run("lock", "a.yaml")
    act, said = CHANGES[change]
    act(here)
    assert said in start(store_path)
    text = run("check", "--locked", "a.yaml", code=1).output
    assert "its code in ${workdir}/server" in text or said in text


def test_a_changed_key_is_a_change_of_policy_and_lock(here: Path, store_path: Path) -> None:
    policy(CODE)
    run("lock", "a.yaml")
    shown = run("surface", "a.yaml", "--json").output
    assert json.loads(shown)["servers"]["desk"]["code"] == ["${workdir}/server"]
    assert "${workdir}/server" in run("surface", "a.yaml").output
    digest = load_manifest("a.yaml").digest
    shutil.copy("a.yaml", here.parent / "before.yaml")
    (here / "other").mkdir()
    policy({**CODE, "code": ["${workdir}/server", "${workdir}/other"]})
    assert load_manifest("a.yaml").digest != digest
    assert "code of server `desk`" in run("diff", str(here.parent / "before.yaml"), "a.yaml", code=None).output
    assert "its code in ${workdir}/other" in run("check", "--locked", "a.yaml", code=1).output


HINTS = {
    "in a directory": (["python3", "server/main.py"], 'add to `servers.desk`: code: ["${workdir}/server"]'),
    "in the working directory": (["python3", "main.py"], 'under `servers.desk`: code: ["${workdir}/server"]'),
}  # fmt: skip


@pytest.mark.parametrize("where", HINTS)
def test_lock_names_the_key_when_an_import_beside_the_script_fails(here: Path, where: str) -> None:
    for file in ("main.py", "own.py"):
        shutil.copy(here / "server" / file, here / file)
    command, hint = HINTS[where]
    policy({"command": command})
    assert hint in run("lock", "a.yaml", code=1).output


def test_an_import_that_is_nowhere_is_not_a_matter_of_code(here: Path) -> None:
    (here / "server" / "own.py").unlink()
    policy({"command": ["python3", "server/main.py"]})
    assert "code:" not in run("lock", "a.yaml", code=1).output


REFUSED = {
    "code that is the granted directory": (
        {"command": ["python3", "server/main.py"], "code": ["${workdir}"]}, ["${workdir}"],
        "move the server's files from HERE to a directory of their own, such as HERE/server",
    ),
    "a granted directory in the code": (CODE, ["${workdir}/server/data"], "move HERE/server/data out of HERE/server"),
    "an environment that is granted": (
        {"command": ["venv/bin/python", "server/main.py"]}, ["${workdir}/venv/lib"],
        "move HERE/venv/lib out of HERE/venv",
    ),
    "a script that puts its directory on the path": (
        {"command": ["python3", "server/reaching.py"]}, ["${workdir}/server"],
        "move the server's files from HERE/server to a directory of their own",
    ),
    "`node_modules` that is granted": (
        {"command": ["node", "server/main.js"]}, ["${workdir}/node_modules/.cache"],
        "move HERE/node_modules/.cache out of HERE/node_modules",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_grant_that_would_be_taken_away_as_a_whole_is_refused(here: Path, store_path: Path, name: str) -> None:
    server, granted, fix = REFUSED[name]
    fix = fix.replace("HERE", str(here))
    (here / "server" / "reaching.py").write_text("import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n")
    reach = {"read": ["${workdir}"], "write": granted}
    policy({**server, "sandbox": "native"}, fs_reach=reach, max_side_effect_class="write_limited")
    assert fix in " ".join(run("check", "a.yaml", code=1).output.split())
    with pytest.raises(RegistrationRefused) as refusal:
        Gate(load_manifest("a.yaml"), [], Backends.local(store_path))
    assert fix in str(refusal.value)
    assert fix in run("run", "a.yaml", "--state", str(store_path), "--", "true", code=None).output
    assert fix in " ".join(run("call", "a.yaml", "desk.echo", "--state", str(store_path), code=1).output.split())


FINE = {
    "a script in the project's root": {"command": ["python3", "main.py"]},
    "a directory of code in it": CODE,
    "an environment in it": {"command": ["venv/bin/python", "server/main.py"]},
}


@pytest.mark.parametrize("name", FINE)
def test_a_grant_of_the_whole_project_stays(here: Path, store_path: Path, name: str) -> None:
    reach = {"read": ["${workdir}"], "write": ["${workdir}"]}
    policy({**FINE[name], "sandbox": "native"}, fs_reach=reach, max_side_effect_class="write_limited")
    assert "whole of that grant" not in run("check", "a.yaml", code=None).output
    Gate(load_manifest("a.yaml"), [], Backends.local(store_path), unchecked_imports=True)


def test_code_is_for_a_command_that_starts_a_file(here: Path) -> None:
    policy({"url": "https://mcp.example.com/mcp", "code": ["${workdir}/server"]})
    assert "`code` on a server with a `url`" in run("check", "a.yaml", code=1).output
    policy({"command": ["npx", "left"], "code": ["${workdir}/server"]})
    assert "`code` is for a command that starts a file" in run("lock", "a.yaml", code=1).output


# Modules --------------------------------------------------------------------------------------------------------------

MODULES = {"a module": ("main", "main.py"), "a package": ("desk.run", "desk/run/__main__.py")}


@pytest.mark.parametrize("sandbox", ["isolated", "native"])
@pytest.mark.parametrize("name", MODULES)
def test_a_module_in_code_is_locked_and_starts(here: Path, store_path: Path, name: str, sandbox: str) -> None:
    module, file = MODULES[name]
    (here / "server" / file).parent.mkdir(parents=True, exist_ok=True)
    (here / "server" / "main.py").rename(here / "server" / file)
    policy({"command": ["python3", "-m", module], "code": ["${workdir}/server"], "sandbox": sandbox})
    run("lock", "a.yaml")
    locked = read_lock(Path("licet.lock").read_bytes()).servers["desk"].resolved
    assert locked is not None
    assert (locked.kind, locked.program) == ("file", module)
    run("check", "--locked", "a.yaml")
    assert start(store_path) == ""
    (here / "server" / file).write_text(f"{MAIN}#")
    assert "is different" in start(store_path)


# Servers of other agents ----------------------------------------------------------------------------------------------


def test_a_grant_inside_the_code_of_another_agents_server_is_refused(here: Path, store_path: Path) -> None:
    policy({**CODE, "sandbox": "native"})
    other = {"fs_reach": {"write": ["${workdir}/server/data"]}, "max_side_effect_class": "write_limited"}
    Path("b.yaml").write_text(json.dumps({"agent": "b", "capabilities": other}))
    run("lock", "a.yaml", "b.yaml")
    fix = f"move {here}/server/data out of {here}/server"
    assert fix in " ".join(run("check", "b.yaml", code=1).output.split())
    with pytest.raises(RegistrationRefused) as refusal:
        Gate(load_manifest("b.yaml"), [], Backends.local(store_path))
    assert fix in str(refusal.value)


# Version managers -----------------------------------------------------------------------------------------------------

SHIM = "#!/bin/sh\ntouch RAN\nexec sleep 600\n"


@pytest.mark.parametrize("command", [["python3", "server/main.py"], ["server/by_env.py"]])
def test_a_gate_starts_no_version_manager_and_closes_what_it_has_installed(
    here: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (here / "server" / "by_env.py").write_text("#!/usr/bin/env python3\n")
    manager, ran = here / "pyenv", here / "ran"
    editable = manager / "versions" / "3.12" / "lib" / "python3.12" / "site-packages" / "own.pth"
    for folder in (manager / "shims", manager / "versions" / "3.12" / "bin", editable.parent):
        folder.mkdir(parents=True)
    editable.write_text(f"{here}/editable\n")
    (manager / "shims" / "python3").write_text(SHIM.replace("RAN", str(ran)))
    (manager / "shims" / "python3").chmod(0o755)
    (manager / "versions" / "3.12" / "bin" / "python3").write_bytes(b"\x7fELF")
    monkeypatch.setenv("PATH", f"{manager}/shims:{os.environ['PATH']}")
    policy({"command": command, "sandbox": "native"})
    manifest = load_manifest("a.yaml")
    gate = Gate(manifest, [], Backends.local(store_path), unchecked_imports=True)
    gate.reload(manifest)
    assert not ran.exists()
    # The directory of the whole manager is closed. A manager may also leave it to the system's interpreter.
    system = shutil.which("python3", path=os.environ["PATH"].partition(":")[2])
    assert system is not None
    inside = ("pyenv/shims", "pyenv/versions", "editable", ".python-version", ".tool-versions")
    closed = [one.path for one in never_writable(str(here), manifest)]
    for path in (system, *(str(here / path) for path in inside)):
        assert any(f"{path}/".startswith(f"{one}/") for one in closed), path


# Advice ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["uvx", "pkg"], ["npx", "pkg"], ["docker", "run", "-i", "img"]])
def test_code_is_not_advised_where_it_is_refused(here: Path, command: list[str]) -> None:
    lines = ["ModuleNotFoundError: No module named 'own'"]
    for folder in (here, here.parent):
        (folder / "own.py").touch()
    server = Server(name="desk", command=tuple(command))
    assert list(missing_code(lines, server, command, str(here))) == []
    assert list(missing_code(lines, server, ["python3", "-m", "x"], str(here)))


IMPORTS: dict[str, tuple[str, str, str]] = {  # the command, what the server wrote, and what is advised
    "python": ("python3 server/main.py", "ModuleNotFoundError: No module named 'own'", "own"),
    "node by a path": ("node server/main.js", "Error: Cannot find module './lib/own'", "lib/own"),
    "node by a whole path": ("node server/main.js", "Cannot find module '{here}/server/lib/own.js' from", "lib/own.js"),
    "a package": ("node server/main.js", "Error: Cannot find module 'own'", ""),
    "a file that is not there": ("node server/main.js", "Error: Cannot find module './gone.js'", ""),
    "a file elsewhere": ("node server/main.js", "Error: Cannot find module './../own.js'", ""),
    "a whole path elsewhere": ("node server/main.js", "Error: Cannot find module '/etc/hosts'", ""),
}  # fmt: skip


@pytest.mark.parametrize(("command", "wrote", "named"), IMPORTS.values(), ids=IMPORTS)
def test_code_is_advised_for_files_that_lie_beside_the_script(here: Path, command: str, wrote: str, named: str) -> None:
    for file in ("own.js", "server/own.py", "server/lib/own.js", "server/main.js"):
        (here / file).parent.mkdir(exist_ok=True)
        (here / file).touch()
    server = Server(name="desk", command=tuple(command.split()))
    found = list(missing_code(["x", wrote.format(here=here)], server, server.command, str(here)))
    only = "a server imports its own files only from `code`: add to `servers.desk`"
    assert found == ([f'`{named}` lies beside the script, and {only}: code: ["${{workdir}}/server"]'] if named else [])
