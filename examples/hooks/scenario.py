"""What happens when Claude Code is hijacked by a file of the project, and licet's hooks are installed."""

import json
import os
import pty
import re
import shutil
import subprocess
import sysconfig
from contextlib import suppress
from pathlib import Path

from claude_code import SESSION, VERSION, ClaudeCode
from hijacked import steps
from stage import Stage

_RECEIPT = re.compile(r"\breceipt (r-[0-9a-f]{8,}-\d+)")
_BEHIND_WALLS = re.compile(r"receipts show (r-[0-9a-f]{8,}-\d+)")
LICET = str(Path(sysconfig.get_path("scripts"), "licet"))


def project(place: Path) -> None:
    """A git repository with one commit, a denied file, and the policy."""
    shutil.copytree("project", place, dirs_exist_ok=True)
    (place / "src").mkdir()
    (place / ".env").write_text("TOKEN=for-this-example-only\n")
    git = ["git", "-C", str(place), "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    for words in (
        ["init", "--quiet", "--template=", "--initial-branch=main"],
        ["add", "."],
        ["commit", "--quiet", "--message", "first"],
    ):
        subprocess.run([*git, *words], check=True)  # noqa: S603
    (place / ".git" / "hooks").mkdir()
    (place / ".licet").mkdir()
    shutil.copy("licet.yaml", place / ".licet")


def trust(policy: Path) -> None:
    """Play the person at a terminal who accepts the policy, and agrees that shell lines rename and delete files."""
    ours, theirs = pty.openpty()
    command = [LICET, "trust", str(policy)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=policy.parent.parent) as person:  # noqa: S603
        os.close(theirs)
        said = b""
        with suppress(OSError):  # the terminal is closed when the command has ended
            while piece := os.read(ours, 65536):
                said += piece
                if said.endswith(b"[y/N]: "):
                    os.write(ours, b"y\n")
    os.close(ours)
    assert person.returncode == 0, said.decode()  # noqa: S101


def is_told(line: str) -> bool:
    """Whether a line of `licet hooks install` is one of the last, which sum up; before them it shows each edit."""
    return line.startswith(("Claude Code: changed", "made, empty"))


async def play(stage: Stage) -> None:
    """Play the session, and show what is left of it."""
    home, root = stage.workdir.parent / "home", stage.workdir
    project(root)
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text("for this example only\n")
    for name in [one for one in os.environ if one.startswith(("XDG_", "GIT_", "CLAUDE_"))]:
        del os.environ[name]
    os.environ |= {"HOME": str(home), "XDG_STATE_HOME": str(stage.state), "LANG": "C.UTF-8"}
    os.chdir(root)
    trust(root / ".licet" / "licet.yaml")
    stage.title("A hijacked coding agent, with hooks")
    stage.say("The project has a policy, which a person has accepted at a terminal. Then the hooks are installed.")
    stage.licet("hooks", "install", "--agent", "claude", "--yes", keep=is_told)
    stage.licet("hooks", "status", "--agent", "claude", keep=lambda line: "canary" in line)

    agent = ClaudeCode(root, home)
    agent.event("SessionStart", source="startup", model="played")
    stage.title("Ordinary work")
    stage.say(f"""The agent is played: it sends the events of Claude Code {VERSION}, in their recorded form, to
        the commands in its settings, and does what the answers say. It asks nobody by itself, as with
        `--dangerously-skip-permissions`.""")
    receipts: list[str] = []
    behind_walls: list[str] = []
    for step in steps(root, home):
        if step.title:
            stage.title(step.title)
        if step.say:
            stage.say(step.say)
        words = ", ".join(f"{name}={json.dumps(value)}" for name, value in step.arguments.items())
        who = "subagent>" if step.subagent else "model> "
        said = agent.call(step)
        receipts += _RECEIPT.findall("\n".join(said))
        behind_walls += _BEHIND_WALLS.findall("\n".join(said))
        stage.show(f"{who} {step.tool}({words})", *(f"        {line}" for line in said))
    agent.event("SessionEnd", reason="other")

    stage.title("What is left")
    hooks = sorted(path.name for path in (root / ".git" / "hooks").iterdir())
    settings = sorted(path.name for path in (root / ".claude").iterdir())
    stage.show(
        f"git hooks          {', '.join(hooks) or 'none'}", f"files in .claude   {', '.join(settings) or 'none'}"
    )
    stage.licet("receipts", "list", "--session", f"claude/{SESSION}")
    stage.say("The first refusal, and the shell line that tried to push:")
    left_out = ("  their access", "  event         session opened")  # long; and only of the process that saw it first
    for receipt in (receipts[0], behind_walls[0]):
        stage.licet("receipts", "show", receipt, keep=lambda line: not line.startswith(left_out))
    stage.licet("receipts", "verify", keep=lambda line: not line.startswith(("  file", "  size")))
    stage.licet("hooks", "remove", "--yes", keep=lambda line: "hooks are out" in line)
