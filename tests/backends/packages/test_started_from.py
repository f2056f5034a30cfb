"""Which paths decide what a command starts: each would change the server at its next start if it were written."""

import os
import sys
from pathlib import Path

import pytest

from licet.backends.packages import launch_of
from licet.backends.packages.started_from import StartedFrom, started_from

VENV_SITE = "venv/lib/python3.12/site-packages"


def write(place: Path, **files: str) -> None:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project with a server of each kind, and a home directory."""
    here = tmp_path.resolve()
    files = {
        "work/server.py": "",
        "work/a/main.js": "import x from './lib/x.js'\nconst y = require(`../y`)\n",
        "work/a/lib/x.js": "export * from '#inner'\n",
        "work/a/package.json": '{"imports": {"#inner": {"node": "./inner/z.js"}, "#all/*": "./all/*.js"}}',
        "linked/index.js": "require('./more')",
        f"work/{VENV_SITE}/a.pth": "# nothing\n../up\n/srv/editable\nimport other",
        "work/venv/pyvenv.cfg": "home = /opt/python/bin\ninclude-system-site-packages = false\n",
        "bin/demo": "#!/bin/sh\n",
        "bin/zsh": "\x7fELF",
        "bin/docker": "\x7fELF",
    }
    write(here, **files)
    (here / "work" / "node_modules" / "@s").mkdir(parents=True)
    (here / "work" / "node_modules" / "@s" / "linked").symlink_to(here / "linked")
    (here / "work" / "venv" / "bin").mkdir()
    (here / "work" / "venv" / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    return here


def of(place: Path, command: str, **environ: str) -> StartedFrom:
    return started_from(launch_of(command.split()), f"{place}/work", f"{place}/home", environ, f"{place}/home/store")


CASES = {
    "a script": ("python3 server.py", ["work/server.py"]),
    "an environment": (
        "venv/bin/python server.py",
        ["work/venv", "work/venv/bin/python", f"work/{VENV_SITE}", "work/venv/lib/python3.12/up", "/srv/editable"],
    ),
    "an environment that is not there yet": ("other/bin/python server.py", ["work/other", "work/other/bin/python"]),
    "a script for Node": (
        "node a/main.js",
        [
            *("work/a/main.js", "work/a/lib/x.js", "work/y", "work/y.js", "work/a/inner/z.js"),
            *("work/a/node_modules", "work/a/lib/node_modules", "work/node_modules", "node_modules", "/node_modules"),
            *("work/a/package.json", "work/a/lib/package.json", "home/.node_modules", "home/.node_libraries"),
        ],
    ),
    "a package that is only linked": ("node a/main.js", ["linked/node_modules", "linked/more", "linked/more.js"]),
    "a package of npm": ("npx left", ["home/store/node_modules", "home/node_modules", "/node_modules"]),
    "a shell that reads a file at home": ("zsh server.sh", ["work/server.sh", "home/.zshenv", "bin/zsh"]),
    "a program on PATH": ("demo", ["first/demo", "bin/demo"]),
    "`docker`": ("docker run img", ["first/docker", "bin/docker", "home/.docker"]),
    "a directory of compiled files": (f"{sys.executable} -X pycache_prefix=kept server.py", ["work/kept"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_command_is_started_from(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, expected = CASES[name]
    # What is found by a name on PATH is decided by every directory before it, too.
    monkeypatch.setenv("PATH", f"{place}/first:relative:{place}/bin:{os.environ['PATH']}")
    assert {os.path.join(place, path) for path in expected} <= set(of(place, command).own)


@pytest.mark.parametrize("folder", ["shims", "wrapped"])
def test_a_script_in_place_of_an_interpreter_closes_what_that_would_load(
    place: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    write(place, **{f"{folder}/node": "#!/bin/sh\n", f"{folder}/python3": "#!/bin/sh\n"})
    monkeypatch.setenv("PATH", f"{place}/{folder}")
    assert f"{place}/work/node_modules" in of(place, "node a/main.js").own
    assert f"{place}/{folder}/python3" in of(place, "python3 server.py").own


def test_a_script_in_the_project_closes_itself_and_not_the_project(place: Path) -> None:
    found = of(place, f"{sys.executable} server.py")
    assert not any(f"{place}/work/".startswith(f"{path}/") for path in (*found.own, *found.prefixes))


def test_an_environment_closes_the_python_that_it_was_made_from(place: Path) -> None:
    base = os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))
    assert set(of(place, "venv/bin/python server.py").prefixes) == {base, "/opt/python"}


@pytest.mark.parametrize(("flags", "closed"), [("", True), ("-u ", True), ("-s ", False), ("-I ", False)])
def test_packages_of_the_user_are_imported_unless_a_flag_says_otherwise(place: Path, flags: str, closed: bool) -> None:
    real = os.path.realpath(sys.executable)
    site = f"{place}/home/.local/lib/python3.{sys.version_info.minor}/site-packages"
    assert (site in of(place, f"{real} {flags}server.py").own) == closed


VARIABLES = {
    "PYTHONPATH": ("/srv/a:lib:", ["/srv/a", "work/lib", "work"]),
    "PYTHONUSERBASE": ("/srv/u", ["/srv/u"]),
    "NODE_PATH": ("/srv/n", ["/srv/n"]),
    "NODE_OPTIONS": ("--max-old-space-size=4 --require=/srv/r.js --import /srv/i.js", ["/srv/r.js", "/srv/i.js"]),
    "LD_PRELOAD": ("/srv/x.so /srv/y.so", ["/srv/x.so", "/srv/y.so"]),
    "BASH_ENV": ("/srv/rc", ["/srv/rc"]),
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_places_that_a_variable_of_the_server_names(place: Path, variable: str) -> None:
    value, expected = VARIABLES[variable]
    own = of(place, "python3 server.py", **{variable: value}).own
    assert {os.path.join(place, path) for path in expected} <= set(own)
    assert not any("max-old" in path for path in own)


def test_files_that_never_end_or_never_open_hold_nothing_up(place: Path) -> None:
    os.mkfifo(place / "work" / "a" / "lib" / "pipe.js")
    os.mkfifo(place / "work" / VENV_SITE / "b.pth")
    (place / "work" / "a" / "main.js").write_text(
        "require('./lib/pipe.js'); require('./main.js'); require('/dev/zero')"
    )
    (place / "work" / "a" / "package.json").unlink()
    (place / "work" / "a" / "package.json").symlink_to("/dev/zero")
    assert of(place, "node a/main.js").own
    assert of(place, "venv/bin/python server.py").own
    assert of(place, "./a/lib/pipe.js").own
    assert of(place, "/dev/zero").own
