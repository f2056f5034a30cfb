"""What programs see of the configuration of git of a user: a name, an address and choices, and nothing that is run."""

import subprocess
from pathlib import Path

import pytest

from licet.policy_files.git_settings import shown_settings


@pytest.fixture(autouse=True)
def no_other_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "none"))


def read(text: str, place: Path) -> dict[str, str]:
    """The values as git itself reads them."""
    (place / "shown").write_text(text)
    listed = subprocess.run(
        ["git", "config", "--file", "shown", "--list", "-z"], cwd=place, capture_output=True, check=True
    )
    return dict(entry.split("\n", 1) for entry in listed.stdout.decode().split("\0") if entry)


SHOWN = {
    "a name with quotes and a backslash": ('[user]\n\tname = Ada \\"L\\" \\\\ x', {"user.name": 'Ada "L" \\ x'}),
    "the last value": ("[user]\nname = a\n[user]\nname = b", {"user.name": "b"}),
    "choices": ("[pull]\nrebase=true\n[Core]\nAutoCRLF = input", {"pull.rebase": "true", "core.autocrlf": "input"}),
    "a comment sign in quotes": ('[user]\nname = "a # b"', {"user.name": "a # b"}),
    "an included file": ("[include]\npath = more", {"user.email": "more@example.com"}),
    "an included file below home": ("[include]\npath = ~/more", {"user.email": "more@example.com"}),
    "itself, included": ("[include]\npath = .gitconfig\n[user]\nname = a", {"user.name": "a"}),
}
LEFT_OUT = {
    "helpers": "[credential]\nhelper = !evil",
    "helpers of a host": '[credential "https://x"]\nhelper = store\nusername = me',
    "keys": '[http "https://x"]\nextraheader = "AUTHORIZATION: basic KEY"',
    "addresses with keys": '[url "https://KEY@x/"]\ninsteadOf = https://x/',
    "aliases": "[alias]\nst = !evil",
    "programs": "[core]\npager = evil\neditor = evil\nsshCommand = evil\nfsmonitor = evil\nhooksPath = /evil",
    "filters": '[filter "x"]\nsmudge = evil\n[diff "x"]\ntextconv = evil\n[merge "x"]\ndriver = evil',
    "signing": "[commit]\ngpgsign = true\n[gpg]\nprogram = evil\n[user]\nsigningkey = KEY",
    "files": "[core]\nexcludesFile = ~/x\nattributesFile = ~/y\n[init]\ntemplateDir = ~/t",
    "a file under a condition": '[includeIf "gitdir:~/work/"]\npath = more',
    "a value with control characters": "[user]\nname = a\x1b[31mb",
    "a long value": f"[user]\nname = {'a' * 5_000}",
    "text that is none": "user.name = me\n]][[",
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_setting_is_shown_as_git_reads_it(name: str, tmp_path: Path) -> None:
    text, expected = SHOWN[name]
    (tmp_path / "more").write_text("[user]\nemail = more@example.com\n")
    (tmp_path / ".gitconfig").write_text(text)
    assert read(shown_settings(str(tmp_path)), tmp_path) == expected


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_runs_programs_or_holds_keys_is_left_out(name: str, tmp_path: Path) -> None:
    (tmp_path / "more").write_text("[user]\nemail = more@example.com\n")
    (tmp_path / ".gitconfig").write_text(LEFT_OUT[name])
    assert shown_settings(str(tmp_path)) == ""


def test_a_value_begins_no_other_section(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text('[user]\nname = "a\\n[alias]\\nx = !evil"\nemail = "]\\" [core] pager=evil"')
    assert {*read(shown_settings(str(tmp_path)), tmp_path)} <= {"user.name", "user.email"}


def test_both_files_of_a_user_count_and_no_file_is_none(tmp_path: Path) -> None:
    assert shown_settings(str(tmp_path)) == ""
    (tmp_path / ".config" / "git").mkdir(parents=True)
    (tmp_path / ".config" / "git" / "config").write_text("[user]\nname = a\nemail = b")
    (tmp_path / ".gitconfig").write_text("[user]\nname = c")
    assert read(shown_settings(str(tmp_path)), tmp_path) == {"user.name": "c", "user.email": "b"}
