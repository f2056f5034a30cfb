"""What commands write into, what they replace, and what they leave alone."""

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import warm
from cli.messages import message
from kept_calls import make, run
from licet.cli.app import licet

WORDS = {
    "export": ["receipts", "export", "--session", "main", "--state", "state", "-o"],
    "surface": ["surface", "desk.yaml", "--svg"],
}
BEGINS = {"export": '{"payload":', "surface": "<svg"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("writing") / "made").parent


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "here")
    (tmp_path / "here" / "desk.yaml").write_text("agent: desk\n")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def licet_of(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


@pytest.mark.parametrize("command", WORDS)
@pytest.mark.parametrize("linked", [False, True], ids=["itself", "a link to it"])
def test_a_pipe_is_written_into_and_stays(here: Path, command: str, linked: bool) -> None:
    os.mkfifo("pipe.svg")
    if linked:
        Path("link.svg").symlink_to("pipe.svg")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(Path("pipe.svg").read_text("utf-8")), daemon=True)
    reader.start()
    result = licet_of(*WORDS[command], "link.svg" if linked else "pipe.svg")
    assert result.exit_code == 0, result.output
    reader.join(60)
    assert got[0].startswith(BEGINS[command])
    assert Path("pipe.svg").is_fifo()
    assert Path("link.svg").is_symlink() is linked


@pytest.mark.parametrize("command", WORDS)
def test_a_link_to_a_device_stays(here: Path, command: str) -> None:
    Path("nowhere.svg").symlink_to("/dev/null")
    result = licet_of(*WORDS[command], "nowhere.svg")
    assert result.exit_code == 0, result.output
    assert os.readlink("nowhere.svg") == "/dev/null"
    assert sorted(os.listdir(here)) == ["desk.yaml", "nowhere.svg", "state"]


@pytest.mark.parametrize("command", WORDS)
@pytest.mark.parametrize("target", ["-", "linked-output"])
def test_a_path_to_stdout_is_treated_as_stdout(here: Path, command: str, target: str) -> None:
    Path("linked-output").symlink_to("/proc/self/fd/1")  # as /dev/stdout is, and nothing of the machine is at stake
    with Path("out.txt").open("wb") as out:
        subprocess.run([*warm.licet(), *WORDS[command], target], cwd=here, stdout=out, check=True)
    text = Path("out.txt").read_text("utf-8")
    assert text.startswith(BEGINS[command])
    assert "\n" in text
    assert text.rstrip()[-1] in ">}"
    assert os.readlink("linked-output") == "/proc/self/fd/1"
    assert not Path("-").exists()


@pytest.mark.parametrize("kind", ["manifest", "JSON", "other attestation", "link to a manifest"])
def test_a_file_that_is_no_pack_is_not_replaced_unless_one_insists(here: Path, kind: str) -> None:
    target, text = Path("target.json"), '{"payload":"e30=","payloadType":"application/vnd.in-toto+json"}'
    if kind.startswith("link"):
        target.symlink_to("desk.yaml")
    else:
        target.write_text({"manifest": "agent: desk\n", "JSON": "{}"}.get(kind, text))
    before = target.read_bytes()
    result = licet_of(*WORDS["export"], "target.json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message("writing.target_json_there_already_no") in result.stderr
    assert (
        message("writing.no_evidence_pack")
        in json.loads(licet_of(*WORDS["export"], "target.json", "--json").stdout)["error"]
    )
    assert target.read_bytes() == before
    assert licet_of(*WORDS["export"], "target.json", "--force").exit_code == 0
    assert target.read_text().startswith('{"payload":')
    assert Path("desk.yaml").read_text() == "agent: desk\n"


def test_a_pack_is_replaced_by_a_pack(here: Path) -> None:
    for session in ("main", "side", "main"):
        result = run(here / "state", "receipts", "export", "--session", session, "-o", "pack.json")
        assert result.exit_code == 0, result.output
    told = json.loads(run(here / "state", "receipts", "verify", "pack.json", "--json").stdout)
    assert (told["ok"], len(told["entries"])) == (True, 8)


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["new", "forced"])
def test_a_manifest_is_begun_in_no_device(here: Path, force: list[str]) -> None:
    Path("tools.py").write_text(
        'from licet import tool\n\n\n@tool(needs=[], effect="read_only")\ndef f() -> None:\n    """F."""\n'
    )
    Path("null.yaml").symlink_to("/dev/null")
    result = licet_of("init", "tools.py", "-o", "null.yaml", *force)
    assert result.exit_code == 1
    assert message("writing.something_not_file_expected_new") in result.stderr
    assert os.readlink("null.yaml") == "/dev/null"
    assert not Path(".licet").exists()
