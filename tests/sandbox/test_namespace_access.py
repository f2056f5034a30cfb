"""What `licet doctor --fix` writes, and when the launcher that it writes is used."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from licet.sandbox.launcher_script import LAUNCHERS, by_launcher, launcher_text
from licet.sandbox.namespace_access import Remedy, apply, is_applied, remedy
from licet.sandbox.probe import Machine
from licet.sandbox.programs.supervisor_client import own_interpreter

RESTRICTED = {"kernel.apparmor_restrict_unprivileged_userns": "1"}
OWN = (os.getuid(), os.getgid())


def machine(settings: dict[str, str], **given: Any) -> Machine:
    return Machine(
        **{"user": 1000, "settings": settings, "kinds": frozenset(), "mounts": (), "filtered": False, **given}
    )


def of_ubuntu(root: Path) -> Remedy:
    found = remedy(machine(RESTRICTED), *OWN, str(root))
    assert found is not None
    assert found.command == ("apparmor_parser", "--replace", f"{root}/etc/apparmor.d/licet")
    return Remedy(found.hint, found.changes, ("true",))


def test_on_ubuntu_a_profile_is_attached_to_a_launcher_of_its_own(tmp_path: Path) -> None:
    wanted = of_ubuntu(tmp_path)
    assert not is_applied(wanted)
    for _ in range(2):  # again changes nothing
        apply(wanted)
        assert is_applied(wanted)
    profile = (tmp_path / "etc/apparmor.d/licet").read_text()
    assert "userns," in profile
    assert f"/{LAUNCHERS}/*" in profile
    assert "python" not in profile  # no interpreter that others use
    launcher = tmp_path / LAUNCHERS / str(OWN[0])
    assert oct(launcher.stat().st_mode & 0o7777) == "0o750"
    assert sorted(path.name for path in (tmp_path / "etc/apparmor.d").iterdir()) == ["licet"]
    shown = "\n".join(wanted.lines())
    assert "userns," in shown
    assert f"writes {launcher} (mode 750" in shown


def test_a_changed_launcher_is_written_anew(tmp_path: Path) -> None:
    wanted = of_ubuntu(tmp_path)
    apply(wanted)
    launcher = tmp_path / LAUNCHERS / str(OWN[0])
    launcher.chmod(0o755)
    assert not is_applied(wanted)
    apply(wanted)
    assert is_applied(wanted)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("kernel.unprivileged_userns_clone", "kernel.unprivileged_userns_clone = 1\n"),
        ("user.max_user_namespaces", "user.max_user_namespaces = 15000\n"),
    ],
)
def test_a_setting_is_kept_in_a_file(setting: str, line: str, tmp_path: Path) -> None:
    found = remedy(machine({setting: "0"}), *OWN, str(tmp_path))
    assert found is not None
    (change,) = found.changes
    assert change.text.endswith(line)
    assert found.command == ("sysctl", "--quiet", "--load", change.path)


def test_a_container_is_told_its_option(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    found = remedy(machine({}, filtered=True), *OWN, str(tmp_path))
    assert found is not None
    assert not found.changes
    assert "--cap-add SYS_PTRACE" in found.hint
    assert remedy(machine({}), *OWN, str(tmp_path)) is None


def test_the_launcher_runs_the_same_text(tmp_path: Path) -> None:
    apply(of_ubuntu(tmp_path))
    program = "import sys; print(sys.argv[1:], sys.flags.isolated, sys.flags.no_site, __name__)"
    command = by_launcher(own_interpreter(program), str(tmp_path), OWN[0])
    assert command[0] == str(tmp_path / LAUNCHERS / str(OWN[0]))
    said = [subprocess.run([*words, "a", "b"], capture_output=True, text=True, check=True).stdout
            for words in (own_interpreter(program), command)]  # fmt: skip
    assert said[0] == said[1] == "['a', 'b'] 1 1 __main__\n"


@pytest.mark.parametrize("change", ["owner", "mode", "text", "directory", "link", "missing"])
def test_a_launcher_that_somebody_else_could_change_is_not_used(change: str, tmp_path: Path) -> None:
    apply(of_ubuntu(tmp_path))
    launcher = tmp_path / LAUNCHERS / str(OWN[0])
    match change:
        case "mode":
            launcher.chmod(0o770)
        case "text":
            launcher.write_text(launcher_text() + "#")
        case "directory":
            launcher.parent.chmod(0o777)
        case "link":
            launcher.rename(tmp_path / "other")
            launcher.symlink_to(tmp_path / "other")
        case "missing":
            launcher.unlink()
    plain = own_interpreter("pass")
    owner = OWN[0] + 1 if change == "owner" else OWN[0]
    assert by_launcher(plain, str(tmp_path), owner) == plain
    assert plain[0] == sys.executable
