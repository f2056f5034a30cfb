"""`licet diff` and `licet surface` on a workspace: several agents, directories, git revisions, pages."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.verbs import AGENT, SHARED
from licet.backends import git_tree
from licet.cli.app import licet


def git(*words: str) -> str:
    names = {f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(["git", *words], check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


def write(name: str, tools: str, hosts: str) -> None:
    Path(f"{name}.yaml").write_text(AGENT % (name, tools, hosts))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two commits: the first has one agent, the second widens it and adds another."""
    place = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        git("init", "-q", "-b", "main", ".")
        Path("licet.yaml").write_text(SHARED)
        Path("compose.yaml").write_text("services: {}\n")
        write("one", "look", "a.example")
        git("add", ".")
        git("commit", "-qm", "first")
        write("one", "look", "a.example, b.example")
        write("two", "put", "c.example")
        git("add", ".")
        git("commit", "-qm", "second")
    return place


@pytest.fixture(autouse=True)
def here(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the repository."""
    place = tmp_path / "work"
    shutil.copytree(repository, place, symlinks=True)
    monkeypatch.chdir(place)
    return place


def test_nothing_of_a_repository_runs_and_nothing_is_checked_out(here: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    Path(".gitattributes").write_text("*.yaml filter=evil diff=evil export-subst\n*.py export-ignore\n")
    git("add", ".gitattributes")
    git("commit", "-qm", "attributes")
    for name in ("post-checkout", "reference-transaction", "pre-auto-gc"):
        hook = here / ".git/hooks" / name
        hook.write_text(program.read_text())
        hook.chmod(0o755)
    for key in (
        *("filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "diff.evil.textconv", "core.fsmonitor"),
        *("core.sshCommand", "core.pager", "core.editor", "credential.helper", "remote.origin.uploadpack"),
    ):
        git("config", key, str(program))
    git("config", "core.hooksPath", str(here / ".git/hooks"))
    git("config", "alias.ls-tree", f"!{program}")
    ran.unlink(missing_ok=True)
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*") if ".git" not in path.parts}
    assert run("diff", "HEAD~2", "HEAD", "one.yaml").exit_code == 1
    assert not ran.exists()
    assert before == {path: path.stat().st_mtime_ns for path in here.rglob("*") if ".git" not in path.parts}


def test_a_missing_object_of_a_partial_clone_is_not_fetched(here: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    blob = git("rev-parse", "HEAD:one.yaml")
    (here / ".git/objects" / blob[:2] / blob[2:]).unlink()
    git("config", "remote.origin.url", f"ext::touch {ran}")
    git("config", "remote.origin.promisor", "true")
    git("config", "protocol.allow", "always")
    git("config", "extensions.partialClone", "origin")
    result = run("diff", "HEAD~1", "HEAD", "one.yaml")
    assert not ran.exists()
    assert (result.exit_code, "HEAD:one.yaml is missing in this clone" in result.stderr) == (1, True)


def test_links_and_submodules_are_left_out(here: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(AGENT % ("stolen", "look", "a.example"))
    Path("sub").mkdir()
    Path("sub/link.yaml").symlink_to(secret)
    Path("link.py").symlink_to(secret)
    git("add", ".")
    git("update-index", "--add", "--cacheinfo", f"160000,{git('rev-parse', 'HEAD')},sub.yaml")
    git("commit", "-qm", "links")
    result = run("diff", "HEAD~1", "HEAD")
    assert "links and large files of HEAD are left out: link.py, sub.yaml, sub/link.yaml" in result.stderr
    assert (result.exit_code, "stolen" not in result.output) == (0, True)


def linked(name: str, target: str) -> None:
    """Replace a file or a directory by a link."""
    place = Path(name)
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(target)


def as_submodule(name: str) -> None:
    shutil.rmtree(name)
    Path(name).mkdir()
    git("rm", "-rq", "--cached", name)
    git("update-index", "--add", "--cacheinfo", f"160000,{git('rev-parse', 'HEAD')},{name}")


# A change that makes git revisions incomplete: what is done, what is compared, what the error names.
NEEDED: dict[str, tuple[Callable[[], object], tuple[str, ...], str]] = {
    "a policy": (lambda: linked("one.yaml", "conf/one.yaml"), (), "HEAD:one.yaml is a link"),
    "the named policy": (lambda: linked("one.yaml", "conf/one.yaml"), ("one.yaml",), "one.yaml is a link"),
    "a policy that is new": (lambda: linked("new.yaml", "conf/one.yaml"), (), "new.yaml is a link"),
    "a workspace": (lambda: linked("licet.yaml", "conf/licet.yaml"), (), "licet.yaml is a link"),
    "a workspace of a named policy": (lambda: linked("licet.yaml", "x"), ("one.yaml",), "licet.yaml is a link"),
    "a lock": (lambda: linked("licet.lock", "conf/licet.lock"), ("one.yaml",), "licet.lock is a link"),
    "a policy directory": (lambda: linked(".licet", "conf"), (), ".licet is a link"),
    "a policy directory of a named policy": (lambda: linked(".licet", "conf"), ("one.yaml",), ".licet is a link"),
    "a policy directory as submodule": (lambda: as_submodule(".licet"), (), ".licet is a submodule"),
    "a directory around": (lambda: linked("deep", "conf"), ("deep/down",), "deep is a link"),
    "a directory around a named policy": (
        lambda: linked("deep/down", "../conf"),
        ("deep/down/one.yaml",),
        "deep/down is a link",
    ),
    "a source": (lambda: linked("made/tools.py", "x.py"), ("made",), "made/tools.py"),
    "a second source": (lambda: linked("made/src", "../conf"), ("made/agent.yaml",), "made/src is a link"),
    "a large workspace": (
        lambda: Path("licet.yaml").write_text(f"#{' ' * (8 << 20)}\n{SHARED}"),
        ("one.yaml",),
        "licet.yaml has more than 8 MiB",
    ),
}


@pytest.mark.parametrize(("change", "words", "text"), NEEDED.values(), ids=list(NEEDED))
@pytest.mark.sampled(6)
def test_nothing_is_compared_without_a_file_that_a_policy_needs(
    change: Callable[[], object], words: tuple[str, ...], text: str
) -> None:
    for folder in (".licet", "conf", "deep/down"):
        Path(folder).mkdir(parents=True)
        Path(folder, "licet.yaml").write_text(SHARED)
        shutil.copy("one.yaml", f"{folder}/one.yaml")
    Path("made").mkdir()
    Path("made/tools.py").write_text('from licet import tool\n\n@tool(needs=["fs:read:/a"])\ndef scan(ctx): ...\n')
    Path("made/agent.yaml").write_text("agent: a\ntools: {scan: {from: 'tools:scan'}}\ncapabilities: {tools: [scan]}\n")
    git("add", ".")
    git("commit", "-qm", "before")
    change()
    git("add", ".")
    git("commit", "-qm", "after")
    result = run("diff", "HEAD~1", "HEAD", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert text in result.stderr


def test_a_policy_is_found_by_its_path_and_not_by_the_links_of_the_working_tree() -> None:
    Path("conf").mkdir()
    Path("conf/licet.yaml").write_text(AGENT % ("wide", "look", "'*'") + SHARED)
    Path(".licet").mkdir()
    Path(".licet/licet.yaml").write_text(AGENT % ("one", "look", "a.example") + SHARED)
    git("add", ".")
    git("commit", "-qm", "before")
    linked(".licet", "conf")
    git("add", ".")
    git("commit", "-qm", "after")
    result = run("diff", "HEAD~1", "HEAD", ".licet/licet.yaml")
    assert (result.exit_code, "HEAD:.licet is a link" in result.stderr) == (1, True)
    assert "+ look: network:read:*" in run("diff", "HEAD~1", ".licet/licet.yaml").stdout


def tree(*entries: tuple[str, str, str]) -> str:
    """Write a tree that git itself would not write; each entry is a mode, a name and an object."""
    data = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(one) for mode, name, one in entries)
    words = ["git", "hash-object", "-w", "-t", "tree", "--stdin", "--literally"]
    return subprocess.run(words, input=data, capture_output=True, check=True).stdout.decode().strip()


def bomb(levels: int, width: int) -> str:
    inner = tree(("100644", "a.txt", git("hash-object", "-w", "one.yaml")))
    for _ in range(levels):
        inner = tree(*(("40000", f"d{number}", inner) for number in range(width)))
    return inner


def deep(levels: int) -> str:
    inner = tree(("100644", "a.py", git("hash-object", "-w", "one.yaml")))
    for _ in range(levels):
        inner = tree(("40000", "d", inner))
    return inner


# A tree that costs too much: how it is made, the limits for the test, and the message.
TOO_MUCH: dict[str, tuple[Callable[[], str], dict[str, int], str]] = {
    "a tree of many trees": (lambda: bomb(10, 10), {"MOST_TREE_ENTRIES": 5000}, "has more than 5,000 files"),
    "a long list": (lambda: bomb(10, 10), {"MOST_TREE_BYTES": 1 << 20}, "the list of its files has more than 1 MiB"),
    "many policies": (lambda: deep(2), {"MOST_EXPORTED_FILES": 0}, "has more than 0 policy and source files"),
    "much content": (lambda: deep(2), {"MOST_EXPORTED_BYTES": 1}, "the policy and source files have more than"),
    "many directories": (lambda: deep(150), {}, "below more than 100 directories"),
    "a long name": (lambda: tree(("100644", "a" * 200_000, "0" * 40)), {}, "a name that no system accepts"),
    "a missing tree": (lambda: tree(("40000", "d", "1" * 40)), {}, "git failed"),
}


@pytest.mark.parametrize(("make", "limits", "text"), TOO_MUCH.values(), ids=list(TOO_MUCH))
@pytest.mark.sampled(3)
def test_a_tree_that_costs_too_much_is_refused_and_nothing_stays_behind(
    make: Callable[[], str],
    limits: dict[str, int],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    for name, limit in limits.items():
        monkeypatch.setattr(git_tree, name, limit)
    result = run("diff", git("commit-tree", "-m", "bomb", make()))
    assert (result.exit_code, text in result.stderr, list(private.iterdir())) == (1, True, []), result.output


def test_a_tree_that_leads_out_is_refused(here: Path, tmp_path: Path) -> None:
    evil = tree(("100644", "evil.yaml", git("hash-object", "-w", "one.yaml")))
    commit = git("commit-tree", "-m", "evil", tree(("40000", "..", evil)))
    result = run("diff", commit)
    assert result.exit_code == 1
    assert "which is no path below its root" in result.stderr


class Page(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.mark.parametrize(
    "words", [("surface", "."), ("surface", "one.yaml"), ("diff", "HEAD~1"), ("diff", "HEAD~1", "HEAD")]
)
@pytest.mark.sampled(2)
def test_a_page_is_one_file_without_scripts_and_nothing_can_be_injected(words: tuple[str, ...], here: Path) -> None:
    path = f"/out/{HOSTILE}"
    Path("licet.yaml").write_text(SHARED.replace('"fs:write:/out"', json.dumps(f"fs:write:{path}")))
    agent = (AGENT % ("one", "look, put", "a.example")).replace("[/out]", json.dumps([path]))
    Path("one.yaml").write_text(agent)
    Path("two.yaml").write_text(agent)
    git("commit", "-qam", "hostile")
    result = run(*words, "--html", "page.html")
    assert result.exit_code in (0, 1), result.output
    assert "wrote page.html" in result.stderr
    text = Path("page.html").read_text("utf-8")
    page = Page(text)
    assert "&lt;script&gt;alert(1)" in text
    assert {"script", "img", "link", "iframe", "object", "base", "form"}.isdisjoint(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert {value for name, value in page.attributes if name in ("href", "src")} <= {"#agent-0", "#agent-1"}
    assert not re.search(r"url\(|@import", text)
    assert ("svg" in page.tags, "prefers-color-scheme: dark" in text, "default-src 'none'" in text) == (True,) * 3
    assert str(here) not in text
    again = run(*words, "--html", "one.yaml")
    assert (again.exit_code, Path("one.yaml").read_text()) == (2, agent)


def test_a_repository_that_git_waits_for_is_refused_soon(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_tree, "FIND_SECONDS", 0.2)
    (here / ".git" / "HEAD").unlink()
    os.mkfifo(here / ".git" / "HEAD")
    result = run("diff", "HEAD", "one.yaml")
    said = "`HEAD` cannot be looked up in the repository here: git took more than 0.2 s"
    assert (result.exit_code, said in result.stderr) == (1, True), result.output
