"""The cache of a policy, and what programs see of git's configuration: from one `licet run` to the next."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import warm
from attacks.walled_programs import needs_namespaces, needs_walls
from licet.sandbox.programs import policy_cache
from licet.sandbox.programs.policy_cache import PolicyCache
from pins import trust

pytestmark = [needs_walls, pytest.mark.who]

POLICY = """\
agent: {agent}
capabilities:
  max_side_effect_class: {effect}
  fs_reach: {{read: ["${{workdir}}"], write: ["${{workdir}}"]}}
  process: {{allowed_binaries: [{programs}]}}
  env: [{variables}]
  approvals: {{write: manifest}}
  sandbox: {{allow_degraded: true}}
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    names = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GIT_"))}
    return {**names, "HOME": str(home), **more}


def licet(place: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return warm.run(warm.PROGRAM, words, cwd=place, env=environment(place.parent, **more))


def project(
    home: Path,
    name: str,
    *,
    agent: str = "desk",
    effect: str = "write_limited",
    programs: str = "sh",
    variables: str = "",
) -> Path:
    place = home / name
    place.mkdir()
    text = POLICY.format(agent=agent, effect=effect, programs=programs, variables=variables)
    (place / "licet.yaml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home / ".local" / "state"))
        trust(place / "licet.yaml")
    return place


def shell(place: Path, line: str, **more: str) -> str:
    done = licet(place, "run", "--", "sh", "-c", line, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


PUT = "mkdir -p $PIP_CACHE_DIR && echo once >> $PIP_CACHE_DIR/got"
SEE = "cat $PIP_CACHE_DIR/got 2>/dev/null || echo nothing"


def test_what_one_run_downloads_the_next_one_has(tmp_path: Path) -> None:
    place = project(tmp_path, "one")
    shell(place, PUT)
    assert shell(place, SEE) == "once\n"
    names = shell(place, "env").splitlines()
    assert {name.partition("=")[0] for name in names if "licet" in name} >= {
        *("PIP_CACHE_DIR", "UV_CACHE_DIR", "npm_config_cache", "CARGO_HOME", "GOCACHE", "GOMODCACHE"),
        *("PLAYWRIGHT_BROWSERS_PATH", "GRADLE_USER_HOME"),
    }


@pytest.mark.parametrize("other", [{"name": "two"}, {"name": "two", "agent": "another"}])
def test_another_policy_has_another_cache(other: dict[str, str], tmp_path: Path) -> None:
    shell(project(tmp_path, "one"), PUT)
    name = other.pop("name")
    assert shell(project(tmp_path, name, **other), SEE) == "nothing\n"


def test_no_grant_reaches_the_cache_of_another_policy(tmp_path: Path) -> None:
    shell(project(tmp_path, "one"), PUT)
    (cache,) = (tmp_path / ".local" / "share" / "licet" / "caches").iterdir()
    tries = f"cat {cache}/files/pip/got; echo evil >> {cache}/files/pip/got; ls {cache}; true"
    (tmp_path / "two").mkdir()
    done = licet(tmp_path / "two", "run", "--allow-read", str(tmp_path), "--allow-write", ".", "--", "sh", "-c", tries)
    assert done.stdout == ""
    assert (cache / "files" / "pip" / "got").read_text() == "once\n"
    assert cache.stat().st_mode & 0o077 == 0


@needs_namespaces
def test_no_link_leads_out_of_the_cache_or_into_it(tmp_path: Path) -> None:
    place = project(tmp_path, "one")
    shell(place, f"{PUT}; echo mine > mine; ln $PIP_CACHE_DIR/got out; ln mine $PIP_CACHE_DIR/in; true")
    assert not (place / "out").exists()
    assert (place / "mine").stat().st_nlink == 1


def test_flags_and_a_policy_that_only_reads_have_none(tmp_path: Path) -> None:
    place = project(tmp_path, "one", effect="read_only")
    assert shell(place, "echo ${PIP_CACHE_DIR-none}") == "none\n"
    (tmp_path / "two").mkdir()
    done = licet(tmp_path / "two", "run", "--allow-read", ".", "--", "sh", "-c", "echo ${PIP_CACHE_DIR-none}")
    assert done.stdout == "none\n"


def test_a_variable_of_the_policy_stays(tmp_path: Path) -> None:
    place = project(tmp_path, "one", variables="PIP_CACHE_DIR")
    assert shell(place, "echo $PIP_CACHE_DIR", PIP_CACHE_DIR="/mine") == "/mine\n"


def test_a_cache_of_the_person_that_is_granted_stays_in_use(tmp_path: Path) -> None:
    (tmp_path / ".cargo").mkdir()
    place = project(tmp_path, "one", variables="HOME")
    text = (place / "licet.yaml").read_text().replace('read: ["${workdir}"]', 'read: ["${workdir}", "~/.cargo"]')
    (place / "licet.yaml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / ".local" / "state"))
        trust(place / "licet.yaml")
    assert shell(place, "echo ${CARGO_HOME-none} ${PIP_CACHE_DIR:+set}") == "none set\n"


def test_a_person_lists_and_clears_caches(tmp_path: Path) -> None:
    place = project(tmp_path, "one")
    shell(place, PUT)
    (shown,) = json.loads(licet(place, "state", "caches", "--json").stdout)["caches"]
    assert shown["policy"] == str(place / "licet.yaml")
    assert not shown["cleared"]
    assert "cleared" in licet(place, "state", "caches", "--clear").stdout
    assert shell(place, SEE) == "nothing\n"


@pytest.fixture
def cache(tmp_path: Path) -> PolicyCache:
    made = PolicyCache(str(tmp_path / "cache"))
    made.open("a policy").close()
    (tmp_path / "cache" / "files" / "large").write_bytes(b"x" * 8192)
    return made


def test_a_cache_that_is_too_large_is_emptied_unless_a_run_uses_it(
    cache: PolicyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_cache, "CACHE_BYTES", 4096)
    cache.open("a policy").close()
    assert os.listdir(cache.files) == ["large"]  # looked at a moment ago
    monkeypatch.setattr(policy_cache, "CACHE_LOOK_SECONDS", 0.0)
    running = cache.open("a policy")
    cache.open("a policy").close()
    assert os.listdir(cache.files) == ["large"]
    assert not cache.clear()
    running.close()
    assert os.listdir(cache.files) == []


@needs_namespaces
def test_git_knows_the_name_of_the_person_and_nothing_else_is_seen(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n[credential]\nhelper = !evil\n")
    place = project(tmp_path, "one", programs="git, sh")
    line = (
        "git var GIT_AUTHOR_IDENT | cut -d '>' -f 1; "
        "git config --list --show-origin | grep -c evil; echo x 2>/dev/null > /etc/gitconfig || echo closed"
    )
    assert shell(place, line) == "Ada <ada@example.com\n0\nclosed\n"
    assert shell(project(tmp_path, "two"), "test -e /etc/gitconfig && cat /etc/gitconfig; true") == ""
