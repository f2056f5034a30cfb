"""Programs read the configuration of installed programs in /etc, and nothing there that some user may not read."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from attacks.walled_programs import Programs, both_kinds
from licet.core.algebra.set import CapabilitySet
from licet.sandbox.programs import system_configuration
from licet.sandbox.programs.system_configuration import configuration, public_parts, search


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of this test alone."""
    made = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(made))
    system_configuration._links.cache_clear()
    yield made
    system_configuration._links.cache_clear()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Packages with links to /etc, as far as the search goes."""
    for path, target in {
        "maven/conf": "/etc/maven",
        "java/conf/security/policy": "/etc/java/security/policy",
        "relative/conf": os.path.relpath("/etc/relative", tmp_path / "relative"),
        "chosen/by-the-administrator": "/etc/alternatives/java",
        "elsewhere/conf": "/var/lib/elsewhere",
        "nearly/conf": "/etcetera",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).symlink_to(target)
    return tmp_path


def test_links_to_etc_are_found_as_deep_as_a_tree_is_searched(tree: Path) -> None:
    links = {os.path.relpath(link, tree): target for link, target in search([(str(tree), 1)])}
    assert links == {"maven/conf": "/etc/maven", "relative/conf": "/etc/relative"}
    assert "/etc/java/security/policy" in {target for _, target in search([(str(tree), 8)])}


def test_a_search_ends(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_configuration, "MOST_LINK_ENTRIES", 3)
    assert [*search([(str(tree), 8)])] == []


@pytest.fixture
def in_etc() -> Iterator[Path]:
    """A directory in /etc; not in the way of anybody."""
    if os.getuid():
        pytest.skip("only root makes files in /etc")
    with tempfile.TemporaryDirectory(prefix="licet-test-", dir="/etc") as made:
        os.chmod(made, 0o755)
        yield Path(made)


def test_only_what_every_user_may_read_is_shown(in_etc: Path) -> None:
    for name, mode in (("open", 0o644), ("key", 0o640)):
        (in_etc / name).write_text(name)
        (in_etc / name).chmod(mode)
    (in_etc / "private").mkdir(mode=0o711)
    (in_etc / "private/inner").write_text("cannot be listed, though it can be opened by those who know its name")
    (in_etc / "whole").mkdir()
    (in_etc / "whole/a").write_text("a")
    (in_etc / "whole/link").symlink_to("/etc/shadow")
    assert [*public_parts(str(in_etc))] == [str(in_etc / "open"), str(in_etc / "whole")]
    (in_etc / "key").unlink()
    (in_etc / "private").chmod(0o755)
    assert [*public_parts(str(in_etc))] == [str(in_etc)]
    (in_etc / "out").symlink_to("/root")
    for closed in ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private", str(in_etc / "out")):
        assert [*public_parts(closed)] == []
    in_etc.chmod(0o750)
    assert [*public_parts(str(in_etc / "open"))] == []


@both_kinds
def test_programs_read_what_a_link_leads_to_and_no_other_file(
    kind: str, in_etc: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_etc / "shown").write_text("SHOWN\n")
    (in_etc / "key").write_text("KEY\n")
    (in_etc / "other").write_text("OTHER\n")
    (in_etc / "key").chmod(0o600)
    for name in ("shown", "key"):
        (tree / name).symlink_to(in_etc / name)
    line = f"cat {in_etc}/shown {in_etc}/key {in_etc}/other /etc/shadow /etc/environment | tr -d '\\n'"

    def printed() -> str:
        return Programs(kind).run("sh", "-c", line).stdout_bytes.decode()

    assert printed() == ""
    monkeypatch.setattr(system_configuration, "_TREES", ((str(tree), 1),))
    monkeypatch.setattr(system_configuration, "_WATCHED", (str(tree),))
    assert printed() == "SHOWN"
    denied = Programs(kind, deny=[f"fs:read:{in_etc}"]).run("cat", f"{in_etc}/shown")
    assert (denied.stdout_bytes, denied.exit_code) == (b"", 1)


def test_links_that_a_tool_may_make_lead_nowhere(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "links").symlink_to("/etc/passwd-")
    (tree / "more").symlink_to("/etc/services")
    (tree / "group").symlink_to("/etc/networks")
    monkeypatch.setattr(system_configuration, "_TREES", ((str(tree), 1),))
    monkeypatch.setattr(system_configuration, "_WATCHED", (str(tree),))
    monkeypatch.setattr(system_configuration, "TABLE", ())
    assert configuration() == configuration(CapabilitySet(["fs:read:*", "fs:write:/nowhere"])) != ()
    for rule in (f"fs:write:{tree}", f"fs:write:{tree}/maven", "fs:write:*"):
        assert configuration(CapabilitySet([rule])) == ()


def test_the_search_is_remembered_until_something_is_installed(
    tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_configuration, "_TREES", ((str(tree), 1),))
    monkeypatch.setattr(system_configuration, "_WATCHED", (str(tree),))
    searches = []

    def counted(trees: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str]]:
        searches.append(1)
        return search(trees)

    monkeypatch.setattr(system_configuration, "search", counted)

    def targets() -> list[str]:
        system_configuration._links.cache_clear()  # as in the next process
        return [target for _, target in system_configuration._links(system_configuration._changes())]

    assert sorted(targets()) == sorted(targets()) == ["/etc/maven", "/etc/relative"]
    assert len(searches) == 1
    (file,) = (cache / "licet").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    (tree / "new").symlink_to("/etc/new")
    assert "/etc/new" in targets()
    for text in ("", "{", "[]", "[1, 2, 3]", json.dumps([0, [], []])):  # of another version, or by somebody else
        file.write_text(text)
        assert "/etc/new" in targets()
    assert len(searches) == 7


@pytest.mark.skipif(not Path("/etc/java-17-openjdk").is_dir(), reason="no Java of the distribution")
def test_java_finds_its_configuration() -> None:
    assert Programs("namespaces").run("java", "-version").exit_code == 0


def test_what_is_named_in_etc_is_there_in_a_process_of_its_own() -> None:
    code = "from licet.sandbox.programs.system_configuration import configuration; print(*configuration())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    for name in ("/etc/shadow", "/etc/ssh", "/etc/sudoers", "/etc/environment", "/etc/ssl"):
        assert not any(path == name or path.startswith(f"{name}/") for path in shown)
