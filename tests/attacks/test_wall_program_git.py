"""A program that may commit leads git, which somebody runs outside of the walls, to programs of its own.

`.git` must be writable for a commit. What names programs in it, and what leads git to another directory that does, is
closed by name, there or not.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from attacks.walled_programs import Programs, needs_namespaces, place
from licet.core.review.sensitive import GIT_LEADS

pytestmark = [
    needs_namespaces,
    pytest.mark.skipif(shutil.which("git", path="/usr/bin:/bin") is None, reason="there is no git here"),
]

EVIL = "printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = touch {0}/ran; false\\n'"
# What is there already, what the program does, and what its user types afterwards if it is not `git status`.
WAYS = {
    "commondir": ("", "cp -r .git evil && {evil} > evil/config && echo ../evil > .git/commondir"),
    "commondir, by a rename": (
        "",
        "cp -r .git evil && {evil} > evil/config && echo ../evil > c && mv c .git/commondir",
    ),
    "the whole of .git, moved away": ("", "mv .git old && cp -r old .git && {evil} > .git/config"),
    "config": ("", "{evil} > .git/config"),
    "config.worktree": ("git config extensions.worktreeConfig true", "{evil} > .git/config.worktree"),
    "a remote": ("", "{bare} && mkdir .git/remotes && echo URL: evil > .git/remotes/origin", "git push origin main"),
    "a remote, in the oldest form": (
        "",
        "{bare} && mkdir -p .git/branches && echo evil > .git/branches/origin",
        "git push origin main",
    ),
    "config of a submodule": (
        """git init -q ../lib && git -C ../lib {me} commit -q --allow-empty -m First
        git -c protocol.file.allow=always submodule -q add ../lib lib && git {me} commit -q -m lib""",
        "{evil} > .git/modules/lib/config",
    ),
}
SCRIPT = "printf '#!/bin/sh\\ntouch {0}/ran\\n'"
BARE = "git init -q --bare evil && {script} > evil/hooks/pre-receive && chmod +x evil/hooks/pre-receive"
ME = "-c user.name=me -c user.email=me@example.com"
COMMIT = f"echo two > a && git add a && git {ME} commit -q -m Second && git log --format=%s"


def at_home(line: str, where: Path) -> str:
    """What somebody types in the project, without walls."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(where), "GIT_CONFIG_NOSYSTEM": "1"}
    given = {"cwd": where / "in", "env": environment, "capture_output": True, "text": True, "check": False}
    return str(subprocess.run(["sh", "-c", line], **given).stdout)  # type: ignore[call-overload]


def programs(where: Path, closed: tuple[str, ...]) -> Programs:
    rules = [f"fs:{action}:{where}/in" for action in ("read", "write", "delete")]
    deny = [f"fs:write:{where}/in/.git/{name}" for name in closed]
    given = {"environ": {"PATH": "/usr/bin:/bin"}, "workdir": str(where / "in")}
    return Programs("namespaces", rules, deny=deny, effect="full", deletes="session", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
def test_git_is_led_nowhere(way: str, tmp_path: Path) -> None:
    before, attack, *typed = WAYS[way]
    ran = []
    for name, closed in (("open", ()), ("closed", GIT_LEADS)):
        (tmp_path / name).mkdir()
        where = place(tmp_path / name)
        at_home(f"git init -q -b main && echo one > a && git add a && git {ME} commit -q -m First", where)
        at_home(before.format(me=ME), where)
        script = SCRIPT.format(where)
        line = attack.format(evil=EVIL.format(where), script=script, bare=BARE.format(script=script))
        programs(where, closed).run("sh", "-c", line)
        at_home("".join(typed).format(me=ME) or "git status", where)
        ran.append(os.path.exists(where / "ran"))
    assert ran == [True, False]


def test_commits_are_made_all_the_same(tmp_path: Path) -> None:
    where = place(tmp_path)
    at_home(f"git init -q -b main && echo one > a && git add a && git {ME} commit -q -m First", where)
    others = f"git {ME} revert --no-edit HEAD > /dev/null && git {ME} cherry-pick main > /dev/null"
    line = f"{COMMIT} && git switch -q -c other && git gc -q && {others} && git status -s"
    before = {*os.listdir(where / "in" / ".git")}
    ended = programs(where, GIT_LEADS).run("sh", "-c", line)
    assert (ended.exit_code, ended.stdout_bytes, ended.stderr_bytes) == (0, b"Second\nFirst\n?? file\n", b"")
    said = at_home("git log --format=%s && git branch --show-current", where)
    assert said == 'Second\nRevert "Second"\nSecond\nFirst\nother\n'
    assert not {*GIT_LEADS} & ({*os.listdir(where / "in" / ".git")} - before)
