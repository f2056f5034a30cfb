"""The `.git` file of a worktree or submodule: followed where git has written both ends, and nowhere else."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from licet.policy_files.linked_repository import NotFollowed, linked_repository

ME = "git -c user.name=me -c user.email=me@example.com -c protocol.file.allow=always"


def types(line: str, place: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["sh", "-ec", line], cwd=place, env=environment, check=True, capture_output=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A repository with a worktree beside it and a submodule in it; and one that is nobody's business."""
    types(
        f"""git init -q private; {ME} -C private commit -q --allow-empty -m Secret
        git init -q other; {ME} -C other commit -q --allow-empty -m Other
        git init -q main; cd main; {ME} commit -q --allow-empty -m First
        {ME} submodule --quiet add ../other lib; {ME} commit -qm Lib; git worktree add -q ../tree""",
        tmp_path,
    )
    return tmp_path


def followed(tree: Path, changeable: Callable[[str], bool] = lambda _: False) -> tuple[str, str] | None:
    repository = linked_repository(str(tree), changeable)
    return None if repository is None else (repository.own, repository.common)


def test_a_worktree_and_a_submodule_lead_to_their_repository(home: Path) -> None:
    git = str(home / "main" / ".git")
    assert followed(home / "tree") == (f"{git}/worktrees/tree", git)
    assert followed(home / "main" / "lib") == (f"{git}/modules/lib", f"{git}/modules/lib")


def test_a_worktree_is_followed_through_links_and_with_relative_names(home: Path) -> None:
    git = str(home / "main" / ".git")
    (home / "alias").symlink_to(home / "tree")
    assert followed(home / "alias") == (f"{git}/worktrees/tree", git)
    (home / "tree" / ".git").write_text("gitdir: ../main/.git/worktrees/tree\n")
    (home / "main" / ".git" / "worktrees" / "tree" / "gitdir").write_text("../../../../tree/.git\n")
    assert followed(home / "tree") == (f"{git}/worktrees/tree", git)


def test_where_there_is_no_such_file_nothing_is_followed(home: Path) -> None:
    (home / "plain").mkdir()
    (home / "text").mkdir()
    (home / "text" / ".git").write_text("no repository\n")
    (home / "link").mkdir()
    (home / "link" / ".git").symlink_to(home / "tree" / ".git")
    for name in ("main", "plain", "text", "link"):
        assert followed(home / name) is None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


PRIVATE = "{home}/private/.git"
PLANTED = {  # what a program or an archive may leave in a tree of its own, with where it would lead
    "to a repository": {"in/.git": f"gitdir: {PRIVATE}"},
    "to another worktree": {"in/.git": "gitdir: {home}/main/.git/worktrees/tree"},
    "to a submodule": {"in/.git": "gitdir: {home}/main/.git/modules/lib"},
    "to itself": {"in/.git": "gitdir: {home}/in"},
    "to nothing": {"in/.git": "gitdir: {home}/nowhere"},
    "to a directory of its own whose common one is private": {
        "in/.git": "gitdir: made/.git/worktrees/x",
        "in/made/.git/worktrees/x/gitdir": "{home}/in/.git",
        "in/made/.git/worktrees/x/commondir": PRIVATE,
    },
    "to one that says what it should, with a link in the place of its data": {
        "in/.git": "gitdir: made/.git/worktrees/x",
        "in/made/.git/worktrees/x/gitdir": "{home}/in/.git",
        "in/made/.git/worktrees/x/commondir": "../..",
        "in/made/.git/refs/x": "",
        "in/made/.git/objects": "-> {home}/private/.git/objects",
    },
    "to a submodule of its own with a common directory": {
        "in/.git": "gitdir: made",
        "in/made/config": "[core]\n\tworktree = ..\n",
        "in/made/commondir": PRIVATE,
        "in/made/objects/x": "",
        "in/made/refs/x": "",
    },
    "to a submodule that names two trees": {
        "in/.git": "gitdir: made",
        "in/made/config": "[core]\n\tworktree = ..\n\tworktree = {home}/private\n",
        "in/made/objects/x": "",
        "in/made/refs/x": "",
    },
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_file_is_not_followed(name: str, home: Path) -> None:
    for path, text in PLANTED[name].items():
        text = text.format(home=home)
        file = home / path
        if text.startswith("-> "):
            file.symlink_to(text.removeprefix("-> "))
        else:
            _write(file, text)
    with pytest.raises(NotFollowed, match="leads to"):
        followed(home / "in")


def test_what_programs_of_the_policy_may_write_is_not_followed(home: Path) -> None:
    main = str(home / "main" / ".git")
    with pytest.raises(NotFollowed, match="may have made"):
        followed(home / "tree", lambda path: path == f"{main}/worktrees/tree/gitdir")
    with pytest.raises(NotFollowed, match="may have made"):
        followed(home / "main" / "lib", lambda path: path == f"{main}/modules/lib/config")


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a directory away")
def test_a_directory_of_another_user_is_not_followed(home: Path) -> None:
    os.chown(home / "main" / ".git", 1234, 1234)
    with pytest.raises(NotFollowed, match="another user"):
        followed(home / "tree")


def test_a_worktree_that_was_moved_is_told_how_to_be_mended(home: Path) -> None:
    os.rename(home / "tree", home / "moved")
    with pytest.raises(NotFollowed, match="git worktree repair"):
        followed(home / "moved")
    types("cd moved && git worktree repair", home)
    assert followed(home / "moved") is not None


def test_data_and_leads_of_both_kinds(home: Path) -> None:
    git = str(home / "main" / ".git")
    tree = linked_repository(str(home / "tree"), lambda _: False)
    lib = linked_repository(str(home / "main" / "lib"), lambda _: False)
    assert tree is not None
    assert lib is not None
    assert tree.data == tuple(f"{git}/{name}" for name in ("worktrees/tree", "objects", "refs", "logs"))
    assert f"{git}/worktrees/tree/config.worktree" in tree.leads
    assert lib.data == (f"{git}/modules/lib",)
    assert {f"{git}/modules/lib/{name}" for name in ("hooks", "config", "commondir")} <= {*lib.leads}
