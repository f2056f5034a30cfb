"""Attack: a program in a project plants what the person's own programs run later, under every recommended list.

Git hooks and configuration, tasks of editors, what shells and agents read: after the run the person types `git status`
and `git commit`, and opens the project. Each list is also tried open, so that the attack is seen to work.
"""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import warm
from attacks.walled_programs import needs_namespaces
from licet.cli.init_preset import coding_policy
from licet.core.review.sensitive import GIT_LEADS, TRUSTED
from licet.policy_files.trusted_paths import TrustedPaths

pytestmark = needs_namespaces

ALWAYS = [trusted.path for trusted in TRUSTED if trusted.closing == "always" and trusted.path != ".git"]
ME = "git -c user.name=a -c user.email=a@b"
# Plants one name as a file, or as a directory with a file in it, whichever is possible.
PLANT = 'mkdir -p "$(dirname {0})"; echo planted > {0} || {{ mkdir -p {0}; echo planted > {0}/planted; }}\n'
GIT_PLANTS = """
printf '#!/bin/sh\\ntouch {ran}\\n' > .git/planted; chmod +x .git/planted
cp .git/planted .git/hooks/pre-commit; mkdir -p .git/hooks; cp .git/planted .git/hooks/pre-commit
git config core.fsmonitor "$PWD/.git/planted"
git config core.hooksPath "$PWD/.git"
git config alias.s "!touch {ran}"
printf '[core]\\n\\tfsmonitor = %s\\n' "$PWD/.git/planted" >> .git/config
printf '[core]\\n\\tfsmonitor = %s\\n' "$PWD/.git/planted" > .git/new; mv -f .git/new .git/config
printf '[core]\\n\\tfsmonitor = %s\\n' "$PWD/.git/planted" > .git/config.worktree
rm -rf .git/hooks; mv .git/hooks .git/old; ln -s "$PWD/.git" .git/hooks
mkdir evil; printf '[core]\\n\\tfsmonitor = %s\\n' "$PWD/.git/planted" > evil/config; echo "$PWD/evil" > .git/commondir
mv .git .gone && git init -q . && cp .gone/planted .git/hooks/pre-commit
"""


class Desk:
    """A project of git, in a home of its own."""

    def __init__(self, place: Path) -> None:
        self.project, self.ran = place / "project", place / "ran"
        (place / "home").mkdir()
        self.project.mkdir()
        state = str(place / "state")
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(place / "home"), "XDG_STATE_HOME": state}
        self.types(f"git init -q -b main . && echo a > a && git add a && {ME} commit -qm First && mkdir -p .git/hooks")

    def types(self, line: str, *, check: bool = True) -> str:
        """What the person types outside of the walls."""
        given = {"cwd": self.project, "env": self.environment, "capture_output": True, "text": True, "check": check}
        return str(subprocess.run(["sh", "-c", line], **given).stdout)  # type: ignore[call-overload]

    def licet(self, *words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(warm.PROGRAM, list(words), cwd=self.project, env=self.environment)

    def names(self) -> set[str]:
        """Every name in the project that one of the list begins."""
        found = set[str]()
        for path in self.project.rglob("*"):
            name = path.relative_to(self.project).as_posix()
            if any(name == one or name.startswith(f"{one}/") for one in ALWAYS) and not path.is_dir():
                found.add(f"{name} {path.read_text()}")
        return found

    def person_works(self) -> None:
        """Git, as the person uses it: whatever it starts leaves a file."""
        for line in ("git status", f"echo b > b && git add b && {ME} commit -qm Second", "git s"):
            self.types(line, check=False)


LISTS = {
    "flags": ["run", "--allow-read", ".", "--allow-write", "."],
    "preset": ["run"],
    "hooks": ["run"],
}


@pytest.fixture(params=LISTS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Desk, list[str]]:
    made = Desk(tmp_path.resolve())
    kind = request.param
    if kind != "flags":
        if kind == "preset":
            assert made.licet("init", "--preset", "coding").returncode == 0
            renew(made, (made.project / ".licet" / "licet.yaml").read_text())
        else:
            renew(made, hooks_policy(made.project))
    return made, LISTS[kind]


def renew(made: Desk, text: str) -> None:
    """Write the policy of the project, and accept it."""
    policy = made.project / ".licet" / "licet.yaml"
    policy.parent.mkdir(exist_ok=True)
    policy.write_text(text.replace("delete: manifest", "delete: session"))
    assert made.licet("trust", "--yes").returncode == 0


def hooks_policy(project: Path) -> str:
    return coding_policy("agent", "manifest.schema.json", (), project, tools={})


def behind_walls(made: Desk, words: list[str], script: str) -> str:
    """Run a script as the program; a policy asks a person once, who agrees."""
    (made.project / "work.sh").write_text(script)
    ended = made.licet(*words, "--", "sh", "work.sh")
    if "to settle it" in ended.stderr:
        (request,) = [word for word in ended.stderr.replace("`", " ").split() if word.startswith("a-")][:1]
        assert made.licet("approvals", "approve", request, "--yes").returncode == 0
        ended = made.licet(*words, "--", "sh", "work.sh")
    (made.project / "work.sh").unlink(missing_ok=True)
    assert ended.returncode != 125, ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.who
def test_none_of_the_list_can_be_planted(desk: tuple[Desk, list[str]]) -> None:
    made, words = desk
    before = made.names()
    script = "".join(PLANT.format(shlex.quote(path)) for path in ALWAYS)
    said = behind_walls(made, words, f"{script}echo done > done\n")
    assert (made.project / "done").read_text() == "done\n", said
    assert made.names() == before
    made.types(script)  # without walls
    assert len(made.names() - before) == len(ALWAYS)


@pytest.mark.who
def test_git_of_the_person_runs_nothing_of_the_program(desk: tuple[Desk, list[str]]) -> None:
    made, words = desk
    script = GIT_PLANTS.format(ran=made.ran)
    behind_walls(made, words, f"{script}true\n")
    made.person_works()
    assert not made.ran.exists()
    made.types(script, check=False)  # without walls
    made.person_works()
    assert made.ran.exists()


@pytest.mark.who
def test_flags_close_the_leads_of_every_repository_below(tmp_path: Path) -> None:
    """One inside another, a bare one, a worktree, a submodule, and hooks where the configuration says."""
    made = Desk(tmp_path.resolve())
    made.types(
        f"""
        git init -q in/inner; git init -q --bare bare.git; {ME} worktree add -q tree
        git init -q ../lib && cd ../lib && echo x > x && git add x && {ME} commit -qm Lib && cd - > /dev/null
        git -c protocol.file.allow=always submodule --quiet add ../lib lib
        git config core.hooksPath tools/hooks; mkdir -p tools/hooks in/.vscode tools/more
        git config include.path ../tools/shared.gitconfig
        printf '[includeIf "gitdir:/"] path = "more/own"\n' > tools/shared.gitconfig
        """
    )
    targets = [
        *("in/inner/.git/config", "in/inner/.git/hooks/pre-commit", "in/inner/.git/commondir", "bare.git/config"),
        *("bare.git/hooks/post-receive", "tools/hooks/pre-commit", ".git/modules/lib/config", "lib/.git", "tree/.git"),
        *(".git/modules/lib/hooks/pre-commit", ".git/worktrees/tree/config.worktree", ".git/worktrees/tree/commondir"),
        *(".git/config.worktree", "in/.vscode/tasks.json", ".gitmodules", "tools/shared.gitconfig", "tools/more/own"),
    ]
    script = "".join(f"echo planted >> {path} || true\n" for path in targets)
    before = made.types("cat " + " ".join(targets), check=False)
    behind_walls(made, LISTS["flags"], script)
    assert made.types("cat " + " ".join(targets), check=False) == before
    made.types(script)
    assert made.types("cat " + " ".join(targets), check=False).count("planted") == len(targets)


@pytest.mark.who
def test_no_number_of_other_files_opens_a_home_or_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The search of a large tree ends early. What is closed without a search must not wait for it.
    home, project = tmp_path / "home", tmp_path / "home" / "work" / "deep" / "project"
    (project / ".git").mkdir(parents=True)
    for number in range(20):
        (home / f"many-{number}" / "in").mkdir(parents=True)
    (home / ".npmrc").write_text("")
    monkeypatch.setattr("licet.policy_files.trusted_paths.MOST_LOOKED_THROUGH", 30)
    trusted = TrustedPaths([str(home), str(project)], str(project), str(home))
    assert not trusted.unclosed
    assert str(home / "many-7") in trusted.unsearched
    closed = [home / name for name in (".ssh", ".bashrc", ".npmrc", ".gitconfig", ".config/autostart")]
    closed += [project / name for name in (".vscode", ".envrc", ".git/hooks", ".git/config")]
    assert {str(path) for path in closed} <= trusted.paths.keys()


def test_work_in_a_repository_goes_on(tmp_path: Path) -> None:
    """Flags close nothing that a commit, a branch, a build or a test writes, and leave nothing behind."""
    made = Desk(tmp_path.resolve())
    (made.project / "Makefile").write_text("all:\n\techo built > built\n")
    (made.project / "test_a.py").write_text("def test_a():\n    assert open('a').read()\n")
    made.types(f"git add . && {ME} commit -qm Files")
    script = f"""
    set -e
    git status --short; echo b > b; git add -A; {ME} commit -qm Second
    git checkout -q -b other; git checkout -q main; {ME} merge -q other; git stash list; git gc -q
    make -s; git log --format=%s; rm -f work.sh
    """
    said = behind_walls(made, LISTS["flags"], script)
    assert "Second\nFiles\nFirst\n" in said
    assert "its output says" not in said
    assert made.types("git status --short") == " D work.sh\n?? built\n"
    assert made.types("git ls-files").split() == ["Makefile", "a", "b", "test_a.py", "work.sh"]
    assert not [name for name in os.listdir(made.project) if name in ALWAYS]


def test_a_worktree_commits_no_placeholders(tmp_path: Path) -> None:
    """Nor does a directory of a repository that has no `.git` of its own."""
    made = Desk(tmp_path.resolve())
    made.types(f"mkdir sub && echo s > sub/s && git add sub && {ME} commit -qm Sub && git worktree add -q ../tree")
    line = f"set -e; echo b > b; git add -A; {ME} commit -qm Inside; git status --short"
    for place, read, git in (("../tree", "../project/.git", "../project/.git"), ("sub", "..", "../.git")):
        folder = (made.project / place).resolve()
        words = ["run", "--allow-read", ".", "--allow-read", read, "--allow-write", ".", "--allow-write", git]
        ended = warm.run(warm.PROGRAM, [*words, "--", "sh", "-c", line], cwd=folder, env=made.environment)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == ""
        listed = made.types(f"git -C {folder} show --name-only --format=%s HEAD").split()
        assert listed == ["Inside", "sub/b" if place == "sub" else "b"]


def test_links_lead_to_nothing_open_and_hold_up_no_work(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    made.types("echo rules > AGENTS.md; ln -s AGENTS.md CLAUDE.md; mkdir hidden; echo h > hidden/h; echo x > x")
    said = behind_walls(made, LISTS["flags"], "set -e; rm x; echo y > y; mv y z; ! echo e > CLAUDE.md\n")
    assert (made.project / "z").exists(), said
    assert (made.project / "AGENTS.md").read_text() == "rules\n"
    made.types("ln -s hidden .vscode")
    behind_walls(made, LISTS["flags"], "echo e > hidden/tasks.json; rm .vscode; mkdir .vscode; true\n")
    assert made.types("ls .vscode/; readlink .vscode") == "h\nhidden\n"


HINTED = {
    "git config alias.x y": "--allow-write .git/config",
    "git remote add other /nowhere": "--allow-write .git/config",
    "echo x > .git/hooks/pre-commit": "--allow-write .git/hooks",
    "mkdir .vscode/x": "--allow-write .vscode",
    "echo x > .envrc": "--allow-write .envrc",
    "echo x > .github/workflows/a.yml": "--allow-write .github/workflows",
    "echo x > CLAUDE.md": "--allow-write CLAUDE.md",
}


@pytest.mark.parametrize("line", HINTED)
def test_the_hint_names_the_flag_that_opens_a_name(line: str, tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    (made.project / ".github" / "workflows").mkdir(parents=True)
    ended = made.licet(*LISTS["flags"], "--", "sh", "-c", line)
    assert ended.returncode != 0
    assert f"`{HINTED[line]}` opens it" in ended.stderr, ended.stderr
    flag = HINTED[line].split()
    missing = not os.path.lexists(made.project / flag[1])
    if missing and "." in flag[1][1:]:
        (made.project / flag[1]).touch()  # a flag makes a directory of what is missing
    elif missing and flag[1] == ".envrc":
        (made.project / flag[1]).touch()
    opened = made.licet(*LISTS["flags"], *flag, "--", "sh", "-c", line)
    assert opened.returncode == 0, opened.stderr


@pytest.mark.who
def test_one_line_says_what_is_closed_and_only_where_something_is(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    (made.project / "out").mkdir()
    closed = "not writable, since other programs run or trust it: "
    lines = made.licet(*LISTS["flags"], "--", "true").stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"licet: {closed}.git/hooks, .git/")
    assert not made.licet(*LISTS["flags"], "-q", "--", "true").stderr
    assert closed not in made.licet("run", "--allow-read", ".", "--allow-write", "out", "--", "true").stderr
    assert closed not in made.licet("run", "--allow-read", ".", "--", "true").stderr
    (made.project / "out" / ".vscode").mkdir()
    said = made.licet("run", "--allow-read", ".", "--allow-write", "out", "--", "true").stderr
    assert said == f"licet: {closed}out/.vscode; `--allow-write out/.vscode` opens one\n"


def test_saved_flags_close_the_same(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    assert made.licet(*LISTS["flags"], "--save", "saved.yaml", "--", "true").returncode == 0
    text = (made.project / "saved.yaml").read_text()
    for name in (*(f".git/{lead}" for lead in GIT_LEADS), *ALWAYS):
        assert json.dumps(f"fs:write:${{workdir}}/{name}") in text
        assert json.dumps(f"fs:delete:${{workdir}}/{name}") in text
    assert made.licet("check", "saved.yaml").returncode == 0


def test_recommended_lists_are_the_one_list(tmp_path: Path) -> None:
    """The preset and the policy of hooks name all of it; the page names what leads git to programs."""
    for text in (coding_policy("agent", "schema", (), tmp_path), coding_policy("agent", "schema", (), tmp_path, {})):
        for name in (".git", *ALWAYS):
            assert f'"fs:write:${{workdir}}/{name}"' in text
            assert f'"fs:delete:${{workdir}}/{name}"' in text
    made = Desk(tmp_path.resolve())
    made.types("git config core.hooksPath tools/hooks; git config include.path ../own.config; mkdir -p tools/hooks")
    text = coding_policy("agent", "schema", (), made.project)
    assert '"fs:write:${workdir}/tools/hooks"' in text
    assert '"fs:delete:${workdir}/own.config"' in text
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "coding-agent.md").read_text()
    assert re.findall(r'"fs:write:\$\{workdir\}/\.git/(\S+)"', page) == [*GIT_LEADS]


# Git takes the directory that it is started in for a repository if these are there, and so does the person's own.
BARE = """
mkdir -p objects refs; echo "ref: refs/heads/main" > HEAD
printf '[core]\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = "touch {ran};false"\\n' > config
printf '[alias]\\n\\ts = "!touch {ran}"\\n' >> config
"""
NOWHERE = "rm -rf .git"  # as in a directory that is no repository


@pytest.mark.who
@pytest.mark.parametrize("before", ["true", NOWHERE])
@pytest.mark.parametrize("way", ["", "mkdir else; mv objects refs config else; echo else > commondir"])
def test_no_directory_becomes_a_repository_itself(before: str, way: str, desk: tuple[Desk, list[str]]) -> None:
    made, words = desk
    made.types(before)
    if words == ["run"]:  # a policy of the directory as it is
        (made.project / ".licet" / "licet.yaml").unlink()
        renew(made, hooks_policy(made.project))
    script = f"rm -rf .git/HEAD\n{BARE.format(ran=made.ran)}\n{way}\ntrue\n"
    behind_walls(made, words, script)
    made.types("git status; git s", check=False)
    assert not made.ran.exists()
    made.types(f"rm -rf objects refs HEAD config commondir else\n{script}", check=False)  # without walls
    made.types("git status; git s", check=False)
    assert made.ran.exists()


def test_what_looks_like_a_bare_repository_is_searched_all_the_same(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    made.types("git init -q in/inner")
    plant = "echo planted > .git/hooks/pre-commit; echo planted > in/inner/.git/hooks/pre-commit; true"
    behind_walls(made, LISTS["flags"], "touch HEAD objects refs in/HEAD in/objects in/refs; true\n")
    behind_walls(made, LISTS["flags"], plant)
    planted = "ls .git/hooks/pre-commit in/inner/.git/hooks/pre-commit"
    assert made.types(planted, check=False) == ""
    made.types(plant)
    assert len(made.types(planted).split()) == 2


EVIL = 'git config core.fsmonitor "touch {ran};false"'
NEW_LINKS = {
    "a new repository": f"git init -q lib; cd lib; {ME} commit -qm Lib --allow-empty; {EVIL}; cd ..; git add lib",
    "one of a file": f"git init -q evil; cd evil; {ME} commit -qm Lib --allow-empty; {EVIL}; cd ..; mkdir lib;"
    " echo 'gitdir: ../evil/.git' > lib/.git; git add lib",
    "one further in, of another index": "git update-index --index-version 4; mkdir -p d/b; git init -q d/b/lib;"
    f"cd d/b/lib; {ME} commit -qm Lib --allow-empty; {EVIL}; cd -; git add d",
    "an index of two parts": f"git init -q lib; cd lib; {ME} commit -qm Lib --allow-empty; {EVIL}; cd ..; git add lib;"
    "git update-index --split-index",
}


@pytest.mark.who
@pytest.mark.parametrize("way", NEW_LINKS)
def test_a_repository_that_the_program_adds_runs_nothing(way: str, tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    script = NEW_LINKS[way].format(ran=made.ran)
    said = behind_walls(made, LISTS["flags"], f"({script}); git status --short; rm -f {made.ran}; true\n")
    assert "is a repository that the command added to yours: its .git is .git.set-aside-1 now" in said
    made.types("git status; git diff; git submodule status", check=False)
    assert not made.ran.exists()
    made.types("git reset -q --hard; rm -rf lib d evil", check=False)
    made.types(f"{script}; rm -f {made.ran}; git status", check=False)  # without walls
    assert made.ran.exists()


OLD_LINKS = {
    "not checked out": (
        "git -c protocol.file.allow=always clone -q . ../c; rm -rf lib/.git",
        "git init -q lib; cd lib; " + EVIL,
    ),
    "removed": ("rm -rf lib", "git init -q lib; cd lib; " + EVIL),
    "a file that leads on": (
        "true",
        "rm lib/.git; git init -q evil; cd evil; " + EVIL + "; cd ..; echo 'gitdir: ../evil/.git' > lib/.git",
    ),
    "moved away": ("true", "mv lib old; git init -q lib; cd lib; " + EVIL),
}


@pytest.mark.who
@pytest.mark.parametrize("way", OLD_LINKS)
@pytest.mark.sampled(4)
def test_a_submodule_runs_nothing_of_the_program(way: str, desk: tuple[Desk, list[str]]) -> None:
    made, words = desk
    before, script = OLD_LINKS[way]
    made.types(
        f"git init -q ../lib && cd ../lib && echo x > x && git add x && {ME} commit -qm Lib && cd - > /dev/null;"
        "git -c protocol.file.allow=always submodule --quiet add ../lib lib;"
        f"git add -A; {ME} commit -qm Sub; {before}"
    )
    if words == ["run"]:
        renew(made, hooks_policy(made.project))
    script = script.format(ran=made.ran)
    behind_walls(made, words, f"{script}; git add -A; true\n")
    made.types(f"rm -f {made.ran}; git status; git diff")
    assert not made.ran.exists()
    made.types(f"{script}", check=False)  # without walls
    made.types(f"cd lib; {ME} commit -qm Inside --allow-empty; rm -f {made.ran}; cd ..; git status", check=False)
    assert made.ran.exists()


@pytest.mark.who
def test_repositories_below_directories_of_any_name_are_closed(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    places = ("dev/app", "in/sys", "proc/a", "lib/site-packages/b", "__pycache__/c", "in/odd*name/d")
    made.types("".join(f"git init -q '{place}'; mkdir -p '{place}/.git/hooks';" for place in places))
    plants = "".join(f"echo planted > '{place}/.git/hooks/pre-commit' || true\n" for place in places)
    behind_walls(made, LISTS["flags"], f"{plants}echo x > x; echo y > in/odd || true\n")
    assert (made.project / "x").exists()
    assert not [*made.project.rglob("pre-commit")]
    made.types(plants)
    assert len([*made.project.rglob("pre-commit")]) == len(places)


def test_what_cannot_be_closed_is_not_run(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    made.types("git init -q 'odd*name'")
    ended = made.licet(*LISTS["flags"], "--", "touch", "done")
    assert ended.returncode == 2
    assert "cannot be closed to the command: name other directories to write" in ended.stderr
    assert not (made.project / "done").exists()


def test_many_files_open_nothing(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    behind_walls(made, LISTS["flags"], "seq 100001 | xargs touch\n")
    plant = "echo planted > .git/hooks/pre-commit; true\n"
    behind_walls(made, LISTS["flags"], plant)
    assert not (made.project / ".git" / "hooks" / "pre-commit").exists()
    made.types(plant)
    assert (made.project / ".git" / "hooks" / "pre-commit").exists()


# How git is led into the project: typed before the run, and what the program writes then.
LEADS = {
    "hooks of the user": ("git config --global core.hooksPath ci/hooks; mkdir -p ci/hooks", "ci/hooks/pre-commit"),
    "included by the user": ('git config --global include.path "$PWD/own"; touch own', "own"),
    "of the XDG directory": (
        'mkdir -p ~/.config/git; printf "[include]\\npath = $PWD/own\\n" > ~/.config/git/config; touch own',
        "own",
    ),
    "a name with signs": ("git config core.hooksPath 'ci;#\"x'; mkdir -p 'ci;#\"x'", 'ci;#"x/pre-commit'),
    "a link to a script": (
        "mkdir scripts; echo true > scripts/pc; ln -s scripts/pc pc; ln -s ../../pc .git/hooks/pre-commit",
        "scripts/pc",
    ),
    "a directory that is a link": ("mkdir ci; rm -rf .git/hooks; ln -s ../ci .git/hooks", "ci/pre-commit"),
}


@pytest.mark.who
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.sampled(6)
def test_what_git_is_led_to_in_the_project_is_closed(
    lead: str, desk: tuple[Desk, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, words = desk
    monkeypatch.setenv("HOME", made.environment["HOME"])
    before, name = LEADS[lead]
    made.types(before)
    if words == ["run"]:
        renew(made, hooks_policy(made.project))
    target = made.project / name
    old = target.read_text() if target.exists() else None
    script = f"echo planted > '{name}' || {{ rm -f '{name}'; echo planted > '{name}'; }}\n"
    behind_walls(made, words, f"{script}true\n")
    assert (target.read_text() if target.exists() else None) == old
    made.types(script)
    assert target.read_text() == "planted\n"


@pytest.mark.who
def test_rare_names_are_closed_where_they_are(desk: tuple[Desk, list[str]]) -> None:
    made, words = desk
    rare = [trusted.path for trusted in TRUSTED if trusted.closing == "if there" and "venv" not in trusted.path]
    rare += ["my.code-workspace", "My.sublime-project"]
    for path in rare:
        (made.project / path).parent.mkdir(parents=True, exist_ok=True)
        (made.project / path).write_text("own\n")
    if words == ["run"]:
        renew(made, hooks_policy(made.project))
    script = "".join(f"echo planted > {path} || true; rm -f {path} || true\n" for path in rare)
    behind_walls(made, words, script)
    assert {path: (made.project / path).read_text() for path in rare} == dict.fromkeys(rare, "own\n")
    made.types(script)
    assert not [path for path in rare if (made.project / path).exists()]


@pytest.mark.who
def test_a_project_whose_own_name_is_on_the_list_is_closed_like_others(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    inner = made.project / ".vim"
    made.types("git init -q .vim; mkdir -p .vim/.git/hooks .vim/.vscode")
    plant = "echo planted > .git/hooks/pre-commit; echo planted > .vscode/tasks.json; echo x > x; true\n"
    planted = [inner / ".git" / "hooks" / "pre-commit", inner / ".vscode" / "tasks.json"]
    words = ["run", "--allow-read", ".", "--allow-write", ".", "--", "sh", "-c", plant]
    assert warm.run(warm.PROGRAM, words, cwd=inner, env=made.environment).returncode == 0
    assert (inner / "x").exists()
    assert not [path for path in planted if path.exists()]
    named = made.licet("run", "--allow-read", ".", "--allow-write", ".vim", "--", "sh", "-c", f"cd .vim; {plant}")
    assert named.returncode == 0, named.stderr
    assert all(path.exists() for path in planted)


def test_a_rebase_that_is_left_is_told(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    made.types(f"echo b > b; git add b; {ME} commit -qm Second")
    script = f"GIT_SEQUENCE_EDITOR='printf \"break\\nexec touch {made.ran}\\n\" >' {ME} rebase -q -i HEAD~1; true\n"
    told = "the command has left a rebase under way: read "
    assert told in behind_walls(made, LISTS["flags"], script)
    assert told not in behind_walls(made, LISTS["flags"], "true\n")
    made.types(f"{ME} rebase --continue")  # as `git status` advises
    assert made.ran.exists()
