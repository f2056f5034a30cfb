"""The example agent passes its own checks, and the demo tells the whole story."""

import os
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import warm
from licet.assemble import Places, review
from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.request import Request
from licet.core.decision.validate import validate_tools
from licet.core.policy.manifest import Manifest

EXAMPLES = Path(__file__).parents[1] / "examples"
MANIFESTS = ("research.yaml", "research-next.yaml")


def reviewed(name: str) -> Manifest:
    policy = review(EXAMPLES / "weather" / name, places=Places("/srv/agent", "/home/u"))
    assert policy.problems == ()
    assert policy.manifest is not None
    return policy.manifest


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_example_is_sound_and_its_tools_fit(name: str) -> None:
    manifest = reviewed(name)
    assert manifest.admissions.keys() <= manifest.tools.keys()
    assert validate_tools([manifest.tools[tool] for tool in manifest.admissions], manifest) == ()


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_an_example_says_must_match_does_and_nothing_else(name: str) -> None:
    manifest = reviewed(name)
    assert manifest.examples
    for example in manifest.examples:
        decision = decide(Request(example.tool, (Use(example.use),)), manifest)
        assert (decision.verdict != "deny") == example.matches, example


def test_reading_the_example_imports_nothing_of_it() -> None:
    reviewed("research.yaml")
    assert "weather" not in sys.modules


def test_the_demo_tells_the_whole_story_from_any_directory(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "licet").write_text(f'#!/bin/sh\nexec {shlex.join(warm.licet())} "$@"\n')
    (programs / "licet").chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(tmp_path), "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        ["sh", str(EXAMPLES / "demo.sh")], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\x1b" not in ran.stdout
    commands = [line.split()[2] for line in ran.stdout.splitlines() if line.startswith("$ licet ")]
    assert commands == ["check", "explain", "explain", "surface", "surface", "diff", "call", "call"]
    for told in ("2 files, fine", "allowed: `fetch_weather`", "denied: `fetch_weather`", "+ `publish_report`",
                 '"path": "notes/oslo.md"', "denied: `read_file` may not fs:read:", "(desk.yaml:25)"):  # fmt: skip
        assert told in ran.stdout
    (picture,) = tmp_path.rglob("*.svg")
    assert str(picture) in ran.stdout.splitlines()[-1]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_the_demo_says_what_is_missing(tmp_path: Path) -> None:
    # Nothing but what the demo needs to find its own directory, so that no licet of this machine can be found.
    needed = {name: shutil.which(name) for name in ("sh", "dirname")}
    assert None not in needed.values()
    for name, program in needed.items():
        (tmp_path / name).symlink_to(str(program))
    bare = {"PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    ran = subprocess.run([tmp_path / "sh", EXAMPLES / "demo.sh"], env=bare, capture_output=True, text=True, timeout=600)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "licet is not on PATH; `make demo` sets everything up\n"
