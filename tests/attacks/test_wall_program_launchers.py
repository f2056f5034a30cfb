"""A granted program is talked into running another: that one is behind the same walls, so nothing is gained."""

import shutil
import subprocess
from pathlib import Path

import pytest

from attacks.walled_programs import CANARY, PYTHON, Programs, both_kinds, open_programs, place

STEAL = "cat {out}/secret > {in}/loot"
LAUNCHERS = {
    "env": ("env", "X=1", "sh", "-c", STEAL),
    "sh": ("sh", "-c", STEAL),
    "find": ("find", "{in}/file", "-exec", "sh", "-c", STEAL, ";"),
    "xargs": ("xargs", "sh", "-c", STEAL),
    "tar": ("tar", "--to-command", STEAL, "-xf", "{in}/a.tar"),
    "tar checkpoint": ("tar", "-cf", "{in}/b.tar", "--checkpoint=1", f"--checkpoint-action=exec={STEAL}", "{in}/a.tar"),
    "git alias": ("git", "-C", "{in}/repo", "-c", f"alias.x=!{STEAL}", "x"),
    "git fsmonitor": ("git", "-C", "{in}/repo", "-c", f"core.fsmonitor={STEAL};true", "status"),
    "git ssh": ("git", "-C", "{in}/repo", "-c", f"core.sshCommand=sh -c '{STEAL}' #", "ls-remote", "ssh://h/x"),
    "git hook": ("git", "-C", "{in}/repo", "-c", "core.hooksPath={in}/hooks", "commit", "--allow-empty", "-m", "x"),
    "python": (PYTHON, "-I", "-c", f"import os; os.system('{STEAL}')"),
    "sed": ("sed", "-n", f"1e {STEAL}", "{in}/file"),
    "awk": ("awk", f'BEGIN {{ system("{STEAL}") }}'),
    "the loader": ("/lib64/ld-linux-x86-64.so.2", "/bin/sh", "-c", STEAL),
    "timeout": ("timeout", "5", "sh", "-c", STEAL),
    "nohup": ("nohup", "sh", "-c", STEAL),
    "setsid": ("setsid", "-w", "sh", "-c", STEAL),
}


def filled(words: tuple[str, ...], where: Path) -> list[str]:
    return [word.replace("{out}", str(where / "out")).replace("{in}", str(where / "in")) for word in words]


def furnished(where: Path) -> None:
    """What some of the launchers need: an archive, a repository, a hook."""
    inside = where / "in"
    subprocess.run(["tar", "-C", inside, "-cf", inside / "a.tar", "file"], check=True)
    if shutil.which("git"):
        git = ["git", "-C", str(inside / "repo")]
        subprocess.run(["git", "init", "-q", inside / "repo"], check=True)
        for key, value in (("user.name", "n"), ("user.email", "e@x"), ("safe.directory", "*")):
            subprocess.run([*git, "config", key, value], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    (inside / "hooks").mkdir()
    hook = inside / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\n" + filled((STEAL,), where)[0] + "\n")
    hook.chmod(0o755)


@both_kinds
@pytest.mark.parametrize("words", LAUNCHERS.values(), ids=LAUNCHERS.keys())
@pytest.mark.sampled(3)
def test_a_launcher_gains_nothing(kind: str, words: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]} here")
    where = place(tmp_path)
    furnished(where)
    loot = where / "in" / "loot"
    rules = (f"fs:read:{where}/in", f"fs:write:{where}/in")
    command = filled(words, where)
    open_programs(*rules).run(*command)
    assert loot.read_text() == CANARY
    loot.unlink()
    Programs(kind, rules).run(*command)
    assert not loot.exists() or loot.read_text() == ""
