"""A tool under one manifest rewrites the policy of another agent in the same directory, or plants one for it."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attacks.rewriting_tools import WIDER, act, act_behind_walls, act_directly
from attacks.walled_programs import needs_namespaces
from licet import CapabilitySet, Gate, Manifest, ManifestError, Result, check_and_run, load_manifest
from licet.own_files import PLACEHOLDER_TIME
from pins import pinned, trust
from sandbox.levels import call, local_backends, needs_walls

DESK = "agent: desk\ncapabilities: {}\n"


def project(place: Path) -> Path:
    """A directory with the policies of several agents, and data."""
    root = place.resolve() / "project"
    (root / ".licet").mkdir(parents=True)
    (root / "elsewhere").mkdir()
    for name, content in {
        "research.yaml": json.dumps(manifest(root)),
        "desk.yaml": DESK,
        "broken.yml": "capabilities: {]\n",
        "shared.json": '{"bundles": {}}',
        "elsewhere/linked.yaml": DESK,
        ".licet/agent.yaml": DESK,
        "notes.yaml": "title: capabilities\n",
        "data.json": "{}",
    }.items():
        (root / name).write_text(content)
    (root / "linked.yaml").symlink_to("elsewhere/linked.yaml")
    return root


def manifest(root: Path) -> dict[str, object]:
    return {
        "agent": "research",
        "bundles": {"all": {"tools": ["act", "act_directly"]}},
        "capabilities": {
            "bundles": ["all"],
            "native": ["act"],
            "max_side_effect_class": "write_limited",
            "approvals": {"write": "manifest"},
            "fs_reach": {"read": [str(root)], "write": [str(root)]},
            "process": {"allowed_binaries": ["sh", "mv", "rm", "ln", "cp"]},
            "sandbox": {"allow_degraded": True},
        },
    }


PATHS = [
    *("research.yaml", "desk.yaml", "broken.yml", "shared.json", "linked.yaml", "elsewhere/linked.yaml"),
    *(".licet/agent.yaml", ".licet/new.yaml", "licet.yaml", "licet.lock"),
]


def gate(root: Path) -> Gate:
    manifest = pinned(load_manifest(root / "research.yaml"))
    return Gate(manifest, [act, act_directly], local_backends(root.parent / "state"))


def content(root: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def assert_refused(result: Result, root: Path, before: dict[str, str]) -> None:
    assert not result.ok, result
    assert content(root) == before


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.sampled(3)
def test_handles_refuse(path: str, tmp_path: Path) -> None:
    root = project(tmp_path)
    before = content(root)
    at = gate(root)
    result = call(at, "act", {"path": f"{root}/{path}"})
    assert_refused(result, root, before)
    assert result.reason == "PATH_NOT_REACHABLE"
    for free in ("notes.yaml", "data.json", "new.yaml", "elsewhere/licet.yaml"):
        assert call(at, "act", {"path": f"{root}/{free}"}).ok, free


FROM_CODE = [path for path in PATHS if path != "research.yaml"]


@pytest.mark.parametrize("path", FROM_CODE)
@pytest.mark.parametrize("where", ["the working directory", "the root of its code", "met with a file"])
@pytest.mark.sampled(5)
def test_policy_from_code_leaves_policy_files_alone(where: str, path: str, tmp_path: Path) -> None:
    root = project(tmp_path)
    before = content(root)
    other = tmp_path / "other"
    other.mkdir()
    code = root if where == "the root of its code" else None
    made = Manifest.from_data(manifest(root), root=code)
    if where == "met with a file":
        file = other / "person.yaml"
        wide = {key: value for key, value in manifest(root)["capabilities"].items() if key != "bundles"}  # type: ignore[attr-defined]
        file.write_text(json.dumps({"id": "p", "toolset": ["act", "act_directly"], **wide}))
        made = made.meet(load_manifest(file))
    at = Gate(
        pinned(made),
        [act, act_directly],
        local_backends(root.parent / "state"),
        workdir=other if where == "the root of its code" else root,
    )
    result = call(at, "act", {"path": f"{root}/{path}"})
    assert_refused(result, root, before)
    assert result.reason == "PATH_NOT_REACHABLE"
    for free in ("notes.yaml", "new.yaml", "elsewhere/licet.yaml"):
        assert call(at, "act", {"path": f"{root}/{free}"}).ok, free


def test_one_tool_under_a_set_leaves_policy_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_walls()
    root = project(tmp_path)
    before = content(root)
    monkeypatch.chdir(root)
    with local_backends(tmp_path / "state") as backends:
        for path in ("desk.yaml", "licet.yaml", "licet.lock", ".licet/agent.yaml", ".licet/new.yaml"):
            allow = CapabilitySet([f"fs:write:{root}"])
            arguments = {"path": f"{root}/{path}"}
            result = asyncio.run(check_and_run(act_behind_walls, arguments, allow=allow, backends=backends))
            assert_refused(result, root, before)
            assert result.reason == "PATH_NOT_REACHABLE", path


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("how", ["write", "delete", "rename", "replace", "link"])
@pytest.mark.sampled(4)
def test_a_tool_behind_walls_cannot_do_it_directly(how: str, path: str, tmp_path: Path) -> None:
    needs_walls()
    root = project(tmp_path)
    before = content(root)
    result = call(gate(root), "act_directly", {"path": f"{root}/{path}", "how": how})
    assert not result.ok, result
    assert {name: text for name, text in content(root).items() if not name.endswith("elsewhere/new")} == before


@pytest.mark.parametrize("how", ["rename", "make a directory"])
def test_nor_exchange_the_directory_for_policy(how: str, tmp_path: Path) -> None:
    needs_walls()
    root = project(tmp_path)
    if how == "make a directory":
        shutil.rmtree(root / ".licet")
    before = content(root)
    assert_refused(call(gate(root), "act_directly", {"path": f"{root}/.licet", "how": how}), root, before)


ATTACKS = {
    "write": 'echo "$W" > "$1"',
    "delete": 'rm -f "$1"; test ! -e "$1"',
    "rename": 'mv "$1" "$1.old"',
    "replace": 'echo "$W" > elsewhere/new; mv -f elsewhere/new "$1"',
    "link": 'ln -s elsewhere/linked.yaml "$1"',
    "copy": 'cp elsewhere/linked.yaml "$1"',
}


def licet(cwd: Path, state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from licet.cli import program; program()", *words]
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)


def program(root: Path, *words: str) -> int:
    """Run a program with `licet run` under the manifest of the project."""
    trust(root / "research.yaml", root.parent / "state")
    return licet(root, root.parent / "state", "run", "research.yaml", "--", *words).returncode


@needs_namespaces
@pytest.mark.parametrize("how", ATTACKS)
@pytest.mark.sampled(1)
def test_a_program_cannot(how: str, tmp_path: Path) -> None:
    root = project(tmp_path)
    before = content(root)
    # One program for all of them: what counts is what is left afterwards.
    script = f"W='{WIDER}'; for path in {' '.join(PATHS)}; do set -- $path; {ATTACKS[how]}; done; mv .licet moved"
    assert program(root, "sh", "-c", script) != 125
    assert {name: text for name, text in content(root).items() if not name.endswith("elsewhere/new")} == before


PLANT = """
cd "$1"
for path in licet.yaml licet.lock .licet/licet.yaml agent.yaml more/agent.yaml more/licet.yaml lib/tools.py \\
  lib/helper.py; do mkdir -p "$(dirname $path)"; echo 'tools: {note: {from: "planted:note"}}' > $path; done
mv .licet moved; mv more moved; mv agent.yaml moved; rm -rf .licet agent.yaml lib/tools.py
echo made > new && mkdir -p deep/er && mv new deep/er/new
"""
FLAGS = {  # where the command is run, and what it may write
    "in the directory of the policy": ("project", "."),
    "below it": ("project/sub", ".."),
    "above it": (".", "."),
    "beside it": ("other", "../project"),
}


def hand_written(place: Path) -> Path:
    """A project with policies that nobody has accepted, one of which names code."""
    root = place.resolve() / "project"
    for name in ("sub", "more", "lib"):
        (root / name).mkdir(parents=True)
    (place / "other").mkdir()
    (root / "agent.yaml").write_text("agent: desk\ncapabilities: {tools: [note]}\n")
    (root / "more" / "agent.yaml").write_text(DESK)
    (root / "lib" / "agent.yaml").write_text("agent: lib\ncapabilities: {tools: [t]}\ntools: {t: {from: 'tools:t'}}\n")
    (root / "lib" / "tools.py").write_text("import helper\n")
    (root / "lib" / "helper.py").write_text("")
    return root


@needs_namespaces
@pytest.mark.parametrize(("cwd", "written"), FLAGS.values(), ids=FLAGS)
@pytest.mark.sampled(1)
def test_a_run_on_flags_alone_plants_no_policy(cwd: str, written: str, tmp_path: Path) -> None:
    root = hand_written(tmp_path)
    before = content(root)
    flags = ("--allow-read", "/", "--allow-write", written)
    ran = licet(tmp_path / cwd, tmp_path / "state", "run", *flags, "--", "sh", "-c", PLANT, "sh", str(root))
    assert ran.returncode == 0, ran.stderr
    assert content(root) == before | {f"{root}/deep/er/new": "made\n"}
    assert sorted(path.name for path in root.iterdir()) == ["agent.yaml", "deep", "lib", "more", "sub"]


@needs_namespaces
def test_a_written_directory_inside_a_project_keeps_the_code_of_its_policy(tmp_path: Path) -> None:
    root = hand_written(tmp_path)
    (root / "src").mkdir()
    (root / "src" / "own.py").write_text("")
    (root / "agent.yaml").write_text("agent: a\ncapabilities: {tools: [t]}\ntools: {t: {from: 'own:t'}}\n")
    line = "echo evil > src/own.py; echo > src/new"
    ran = licet(root, tmp_path / "state", "run", "--allow-write", "src", "--", "sh", "-c", line)
    assert (ran.returncode, (root / "src" / "own.py").read_text()) == (0, ""), ran.stderr


@needs_namespaces
def test_a_run_on_flags_alone_keeps_the_files_with_keys_of_a_policy(tmp_path: Path) -> None:
    root = hand_written(tmp_path)
    (root / "src").mkdir()
    (root / "src" / ".npmrc").write_text("_authToken=x\n")
    entry = {"file": "${workdir}/src/.npmrc", "field": "_authToken", "hosts": ["npm.test"]}
    stated = {"inspect": ["npm.test"], "stand_ins": {"NPM": entry}}
    (root / "agent.yaml").write_text(json.dumps({"agent": "a", "capabilities": stated}))
    line = "echo evil > src/.npmrc; mv src/.npmrc src/old; echo > src/new"
    ran = licet(root, tmp_path / "state", "run", "--allow-write", "src", "--", "sh", "-c", line)
    assert (root / "src" / "new").exists(), ran.stderr
    assert (root / "src" / ".npmrc").read_text() == "_authToken=x\n", ran.stderr


def test_what_stands_for_a_name_is_no_policy(tmp_path: Path) -> None:
    root = hand_written(tmp_path)
    before = load_manifest(root / "agent.yaml").digest
    for name in ("licet.yaml", "licet.lock"):  # as a host that was killed leaves them
        (root / name).mkdir()
        os.utime(root / name, ns=(PLACEHOLDER_TIME, PLACEHOLDER_TIME))
    found = load_manifest(root / "agent.yaml")
    assert (found.digest, found.lock, found.lock_problem) == (before, None, None)
    assert "no licet.yaml here" in licet(root, tmp_path / "state", "check").stderr
    os.utime(root / "licet.yaml")  # anything else is not
    with pytest.raises(ManifestError):
        load_manifest(root / "agent.yaml")
