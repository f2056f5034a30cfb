"""The same walls, built and attacked by an ordinary user: a sample of the other files, run as one."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

NOBODY = 65534
HERE = Path(__file__).resolve()
SAMPLE = (
    "attacks/test_wall_program_limits.py::test_a_fork_bomb",
    "attacks/test_wall_program_limits.py::test_memory",
    "attacks/test_wall_program_files.py::test_what_is_denied_inside_a_granted_tree",
    "attacks/test_wall_program_files.py::test_a_denied_name_that_is_not_there_yet_cannot_be_made",
    "attacks/test_wall_program_network.py::test_unix_sockets_of_the_host",
    "attacks/test_wall_program_processes.py::test_ending_another_process",
    "attacks/test_wall_program_kernel.py::test_privileges_do_not_come_back",
    "sandbox/test_launcher.py::test_a_program_ends_by_its_own_signal",
    "sandbox/test_launcher.py::test_one_http_request_of_a_program",
)


def interpreter() -> str | None:
    """A Python of this version that everybody may run."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (os.path.realpath(sys.executable), f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            subprocess.run([candidate, "-c", ""], user=NOBODY, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    return None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else; here all tests run as a user anyway")
def test_an_ordinary_user_has_the_same_walls(tmp_path: Path) -> None:
    python = interpreter()
    if python is None:
        pytest.skip("there is no Python here that another user can run")
    project = Path("/tmp") / f"licet-{tmp_path.name}-{os.getpid()}"  # where others can get to, unlike pytest's own
    try:
        for name in ("src", "tests"):
            shutil.copytree(HERE.parents[2] / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(HERE.parents[2] / "pyproject.toml", project)
        site = sysconfig.get_paths()["purelib"]
        shutil.copytree(site, project / "site", ignore=shutil.ignore_patterns("__pycache__", "mypy*", "ruff*", "*.pth"))
        (project / "home").mkdir()
        for path in (project, *project.rglob("*")):
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644, follow_symlinks=True)
        os.chown(project / "home", NOBODY, NOBODY)
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(project / "home"),
            "PYTHONPATH": os.pathsep.join(str(project / name) for name in ("src", "tests", "site")),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        base = f"--basetemp={project}/home/t"
        ended = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", base, *(f"tests/{one}" for one in SAMPLE)],
            cwd=project, env=environment, user=NOBODY, group=NOBODY, extra_groups=[],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(project, ignore_errors=True)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    assert ended.stdout.partition(" ")[0].count(".") >= len(SAMPLE), ended.stdout  # and they were not skipped
