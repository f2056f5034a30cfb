"""`licet run` in a linked worktree and in a submodule: git works as far as the policy goes, and what leads it stays."""

import os
import subprocess
from pathlib import Path

import pytest

import warm
from attacks.walled_programs import needs_namespaces
from licet.core.review.sensitive import GIT_LEADS
from pins import give_standing, trust

pytestmark = [needs_namespaces, pytest.mark.who]

ME = "git -c user.name=me -c user.email=me@example.com -c protocol.file.allow=always"
WRITES = ("--allow-read", ".", "--allow-write", ".")


def environment(home: Path) -> dict[str, str]:
    names = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GIT_"))}
    return {**names, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


def types(line: str, home: Path) -> str:
    done = subprocess.run(["sh", "-ec", line], cwd=home, env=environment(home), check=True, capture_output=True)
    return done.stdout.decode()


def licet(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(warm.PROGRAM, ("run", *words), cwd=tree, env=environment(tree.parent))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A repository with two worktrees beside it and a submodule."""
    types(
        f"""git init -q other; {ME} -C other commit -q --allow-empty -m Other
        git init -q main; cd main; git config user.name me; git config user.email me@example.com
        echo one > a.txt; git add a.txt; {ME} submodule --quiet add ../other lib; git commit -qm First
        git -C lib config user.name me; git -C lib config user.email me@example.com
        git worktree add -q ../tree; git worktree add -q ../second
        git config extensions.worktreeConfig true; echo hook > .git/hooks/pre-commit.sample""",
        tmp_path,
    )
    return tmp_path


LINES = {
    "status": "git status --short",
    "log": "git --no-pager log --format=%s",
    "commit": "echo two >> a.txt && git commit -qam Second && git --no-pager log --format=%s",
    "branch and switch": "git switch -qc topic && git commit -q --allow-empty -m T && git branch",
    "stash": "echo two >> a.txt && git stash -q && git stash list && git stash pop -q && cat a.txt",
    "rebase": "git switch -qc topic HEAD && git commit -q --allow-empty -m T && git rebase -q --force-rebase HEAD~1",
    "tag": "git tag one && git tag",
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("tree", ["tree", "main/lib"])
def test_git_works_in_it(tree: str, name: str, home: Path) -> None:
    if tree != "tree" and "a.txt" in LINES[name]:
        pytest.skip("the submodule has no files")
    done = licet(home / tree, *WRITES, "--", "sh", "-c", LINES[name])
    assert done.returncode == 0, done.stderr
    types("git fsck", home / tree)


def test_a_read_only_run_reads_the_repository_and_writes_nothing(home: Path) -> None:
    done = licet(home / "tree", "--allow-read", ".", "--", "git", "--no-pager", "log", "--format=%s")
    assert (done.returncode, done.stdout) == (0, "First\n")
    before = types("find main/.git -newer tree/.git -type f | sort; cat main/.git/refs/heads/tree", home)
    done = licet(home / "tree", "--allow-read", ".", "--", "sh", "-c", "git commit --allow-empty -m No; git tag no")
    assert done.returncode != 0
    assert types("find main/.git -newer tree/.git -type f | sort; cat main/.git/refs/heads/tree", home) == before


STAYS = {
    "hooks": "{git}/hooks/pre-commit",
    "configuration": "{git}/config",
    "configuration of the worktree": "{git}/worktrees/tree/config.worktree",
    "common directory": "{git}/worktrees/tree/commondir",
    "way back": "{git}/worktrees/tree/gitdir",
    "modules": "{git}/modules/lib/config",
    "modules of the worktree": "{git}/worktrees/tree/modules/lib/config",
    "another worktree": "{git}/worktrees/second/HEAD",
    "head of the main worktree": "{git}/HEAD",
    "attributes": "{git}/info/attributes",
    "files of the main worktree": "{home}/main/a.txt",
    "the file that leads there": "{home}/tree/.git",
}


@pytest.mark.parametrize("name", STAYS)
def test_what_leads_git_elsewhere_or_is_of_others_stays(name: str, home: Path) -> None:
    path = Path(STAYS[name].format(home=home, git=home / "main" / ".git"))
    before = path.read_text() if path.exists() else None
    tries = (
        f"mkdir -p {path.parent}; echo evil >> {path}; rm -f {path}; echo evil > {home}/tree/x; mv {home}/tree/x {path}"
    )
    licet(home / "tree", *WRITES, "--", "sh", "-c", tries)
    assert (path.read_text() if path.exists() else None) == before


def test_the_data_itself_cannot_be_replaced_by_links(home: Path) -> None:
    git = home / "main" / ".git"
    names = ("objects", "refs", "logs", "worktrees/tree")
    tries = "; ".join(f"mv {git}/{name} {git}/old; rmdir {git}/{name}; ln -s /tmp {git}/{name}" for name in names)
    licet(home / "tree", *WRITES, "--", "sh", "-c", tries)
    assert not any((git / name).is_symlink() for name in names)
    assert not (git / "old").exists()


def test_nothing_that_stands_for_a_closed_name_stays_after_a_run(home: Path) -> None:
    before = types("find main/.git tree | sort", home)
    assert licet(home / "tree", *WRITES, "--", "true").returncode == 0
    assert types("find main/.git tree | sort", home) == before


def test_a_planted_file_opens_no_other_repository_and_is_named(home: Path) -> None:
    types("git init -q private; echo key > private/.git/key; mkdir in", home)
    (home / "in" / ".git").write_text(f"gitdir: {home}/private/.git\n")
    done = licet(home / "in", *WRITES, "--", "sh", "-c", f"git status; cat {home}/private/.git/key")
    assert "key\n" not in done.stdout
    assert "git has no repository here: `.git` leads to" in done.stderr


def test_a_directory_that_the_run_may_write_is_no_way_to_another(home: Path) -> None:
    """The attack in two runs: the first plants both ends and a common directory, the second would follow it."""
    types("git init -q private; echo key > private/.git/key; mkdir -p in/sub", home)
    own = f"{home}/in/made/.git/worktrees/x"
    plant = (
        f"mkdir -p {own}; echo {home}/in/sub/.git > {own}/gitdir; "
        f"echo {home}/private/.git > {own}/commondir; echo gitdir: {own} > sub/.git"
    )
    licet(home / "in", *WRITES, "--", "sh", "-c", plant)
    done = licet(home / "in" / "sub", *WRITES, "--", "cat", f"{home}/private/.git/key")
    assert done.stdout == ""


POLICY = """\
agent: desk
capabilities:
  max_side_effect_class: full
  fs_reach: {{read: ["${{workdir}}"], write: ["${{workdir}}"]}}
  deny: [{deny}]
  process: {{allowed_binaries: [git, sh]}}
  env: [HOME]
  approvals: {{write: manifest, delete: manifest}}
  budget: {{max_calls_per_day: 100}}
"""


DENIES = {  # with whether the log can be read, and whether a commit is made
    "nothing": ([], True, True),
    "the file": (["write", "delete"], True, False),
    "a part of what it leads to": (["write:/refs", "delete:/refs"], True, False),
    "reads": (["read"], False, False),
    "what leads a plain `.git`": ([f"write:/{name}" for name in GIT_LEADS], True, True),
}


@pytest.mark.parametrize("name", DENIES)
def test_what_a_policy_denies_in_the_repository_is_denied_there(name: str, home: Path) -> None:
    denied, reads, commits = DENIES[name]
    rules = (rule.partition(":") for rule in denied)
    deny = ", ".join(f'"fs:{action}:${{workdir}}/.git{below}"' for action, _, below in rules)
    tree = home / "tree"
    (tree / "licet.yaml").write_text(POLICY.format(deny=deny))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home / ".local" / "state"))
        trust(tree / "licet.yaml")
        give_standing(tree / "licet.yaml", ["fs:delete:*"])
    log = licet(tree, "--", "git", "--no-pager", "log", "--format=%s")
    assert (log.stdout == "First\n") is reads, log.stderr
    head = types("cat main/.git/refs/heads/tree", home)
    done = licet(tree, "--", "git", "commit", "--allow-empty", "-qm", "Second")
    assert (types("cat main/.git/refs/heads/tree", home) != head) is commits, done.stderr


def test_a_stash_that_may_not_be_written_is_explained(home: Path) -> None:
    for tree in (home / "main", home / "tree"):
        (tree / "a.txt").write_text("changed\n")
        done = licet(tree, "--allow-read", ".", "--", "git", "stash")
        assert done.returncode == 1
        assert "`git stash` writes to its repository, and `" in done.stderr
        assert f"{home}/main/.git" in done.stderr
