"""Which paths decide what a command starts: each would change the server at its next start if it were written."""

import os
import sys
from pathlib import Path

import pytest

from licet.packages.server_packages import launch_of
from licet.packages.started_from import StartedFrom, started_from

from .made import write

VENV_SITE = "venv/lib/python3.12/site-packages"


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
    write(here, files)
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
    write(place, {f"{folder}/node": "#!/bin/sh\n", f"{folder}/python3": "#!/bin/sh\n"})
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
    "LD_PRELOAD": ("/srv/x.so /srv/y.so lib/z.so", ["/srv/x.so", "/srv/y.so", "work/lib/z.so"]),
    "BASH_ENV": ("/srv/rc", ["/srv/rc"]),
    "BASH_ENV from here": ("rc", ["work/rc"]),
    "RUBYOPT": ("-w -r./hook", ["work/hook"]),
    "NODE_OPTIONS that require": ("--require ./a/main.js", ["work/a/main.js", "work/a/lib/x.js", "work/y.js"]),
    "NODE_OPTIONS that require a name without its ending": ("-r ./hook", ["work/hook", "work/hook.js"]),
    "NODE_OPTIONS that require a package": ("--require=dotenv/config", ["work/node_modules", "node_modules"]),
    "NODE_OPTIONS that import": ("--max-old-space-size=4 --import=../hook.mjs", ["hook.mjs"]),
    "NODE_OPTIONS that import an address": ("--import file:///srv/a%20b.mjs", ["/srv/a b.mjs"]),
    "NODE_OPTIONS that name a loader": ('--experimental-loader "./a hook.mjs"', ["work/a hook.mjs"]),
    "NODE_OPTIONS that name variables": ("--env_file=.env --env-file-if-exists more", ["work/.env", "work/more"]),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_places_that_a_variable_of_the_server_names(place: Path, case: str) -> None:
    variable, (value, expected) = case.partition(" ")[0], VARIABLES[case]
    own = of(place, "python3 server.py", **{variable: value}).own
    assert {os.path.join(place, path) for path in expected} <= set(own)
    assert not any("max-old" in path for path in own)


EXPORTS = {
    "all files": ('{"name": "self", "exports": {"./*": "./*.js"}}', "require('self/lib/own')", ["lib/own.js"]),
    "a directory": ('{"name": "self", "exports": {"./*": ["./lib/*"]}}', "import('self/' + name); 'self/x'", ["lib"]),
    "its main file": (
        '{"name": "self", "exports": "./lib/own.js", "main": "m"}',
        "from 'self'",
        ["lib/own.js", "m.js"],
    ),
}


@pytest.mark.parametrize("case", EXPORTS)
def test_a_package_that_imports_itself_closes_what_it_exports_and_not_the_project(place: Path, case: str) -> None:
    described, text, expected = EXPORTS[case]
    write(place, {"work/package.json": described, "work/main.js": text})
    own = of(place, "node main.js").own
    assert {f"{place}/work/{path}" for path in expected} <= set(own)
    assert f"{place}/work" not in own


def test_a_project_that_is_linked_into_its_own_packages_is_not_closed(place: Path) -> None:
    write(place, {"work/main.js": "require('work')"})
    (place / "work" / "node_modules" / "work").symlink_to("..")
    assert f"{place}/work" not in of(place, "node main.js").own


# What licet runs itself -----------------------------------------------------------------------------------------------

PREFIX = "home/.versions/node"
INSTALLERS = {
    "npm": ("npx left", {}, [f"{PREFIX}/bin/npm", f"{PREFIX}/lib/node_modules/npm", f"{PREFIX}/etc/npmrc"]),
    "the settings of npm": ("npx left", {}, ["home/.npmrc", "home/.global/etc/npmrc", "home/.node_modules"]),
    "settings of npm that variables name": (
        "npx left",
        {"npm_config_userconfig": "PLACE/rc", "NPM_CONFIG_GLOBALCONFIG": "PLACE/all", "npm_config_prefix": "PLACE/p"},
        ["rc", "all", "p/etc/npmrc"],
    ),
    "the settings of pip": (
        "uvx left",
        {"PIP_CONFIG_FILE": "PLACE/pip.conf", "XDG_CONFIG_HOME": "PLACE/xdg"},
        ["home/.pip", "home/.config/pip", "pip.conf", "xdg/pip"],
    ),
    "settings of pip for `pipx`": ("pipx run left", {}, ["home/.pip", "home/.config/pip"]),
    "a version manager": ("managed server.py", {}, ["home/.manager", "home/.tool-versions", "bin/manager"]),
    "a version manager by a path": ("PLACE/home/.manager/shims/managed x", {}, ["home/.manager"]),
    "a version manager with its code elsewhere": ("managed x", {"ASDF_DIR": "PLACE/code"}, ["home/.manager", "code"]),
    "a manager whose shims are links": ("linked x", {}, ["home/.links", "home/.links/bin/volta-shim"]),
    "a manager without shims": ("npx left", {"NVM_DIR": "PLACE/home/.versions"}, ["home/.versions"]),
}


@pytest.mark.parametrize("name", INSTALLERS)
def test_what_licet_runs_outside_of_walls_is_closed(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, variables, expected = INSTALLERS[name]
    files = {
        f"{PREFIX}/lib/node_modules/npm/bin/npm-cli.js": "#!/usr/bin/env node\n",
        f"{PREFIX}/lib/node_modules/npm/package.json": "{}",
        f"{PREFIX}/bin/node": "\x7fELF",
        "home/.npmrc": "; mine\nprefix = ${HOME}/.global\n",
        "home/.manager/shims/managed": '#!/bin/sh\nexec manager exec "managed" "$@"\n',
        "bin/manager": "#!/bin/sh\n",
        "home/.links/bin/volta-shim": "\x7fELF",
    }
    write(place, files)
    (place / PREFIX / "bin" / "npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    (place / "home" / ".links" / "bin" / "linked").symlink_to("volta-shim")
    for variable in ("NPM_CONFIG_USERCONFIG", "npm_config_userconfig", "PIP_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value.replace("PLACE", str(place)))
    places = (f"{PREFIX}/bin", "home/.manager/shims", "home/.links/bin", "bin")
    monkeypatch.setenv("PATH", ":".join(f"{place}/{folder}" for folder in places))
    own = of(place, command.replace("PLACE", str(place))).own
    assert {f"{place}/{path}" for path in expected} <= set(own)
    assert not any(f"{place}/home/".startswith(f"{path}/") for path in own)


def test_shims_in_the_home_directory_itself_do_not_close_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place, {"home/shims/managed": "#!/bin/sh\n"})
    monkeypatch.setenv("PATH", f"{place}/home/shims")
    monkeypatch.setenv("PYENV_ROOT", "/")
    own = of(place, "managed").own
    assert f"{place}/home/shims/managed" in own
    assert not {f"{place}/home", "/"} & {*own}


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
