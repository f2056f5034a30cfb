"""Builds what would be published, installs it out of sight of the repository, and holds the locks to their word."""

import ast
import email.message
import email.parser
import fcntl
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import licet

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = licet.__version__
# The adapters that import an agent framework, with the distribution and its packages. Users install it, licet does not.
FRAMEWORKS = {
    "claude_agent_sdk.py": ("claude-agent-sdk", {"claude_agent_sdk"}),
    "langchain.py": ("langchain", {"langchain_core", "langgraph"}),
    "openai_agents.py": ("openai-agents", {"agents"}),
    "pydantic_ai.py": ("pydantic-ai-slim", {"pydantic_ai"}),
}
LOCKS = sorted(ROOT.glob("requirements*.lock"))


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment that holds the built wheel, and a folder from which nothing else of licet is visible."""

    wheel: Path
    sdist: Path
    bin: Path
    elsewhere: Path

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of the environment elsewhere and give back what it printed."""
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LICET"))}
        command = [str(self.bin / program), *arguments]
        done = subprocess.run(command, check=False, cwd=self.elsewhere, env=bare, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build and install once for all processes of pytest-xdist: the first to come does it, and the others wait."""
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "packaging"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "elsewhere").is_dir():
            build_and_install(folder)
    [wheel] = (folder / "dist").glob("*.whl")
    [sdist] = (folder / "dist").glob("*.tar.gz")
    return Installed(wheel, sdist, folder / "venv" / "bin", folder / "elsewhere")


def build_and_install(folder: Path) -> None:
    # `build` makes the wheel from the unpacked sdist, so a file that the sdist lacks is missed here.
    quietly(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT))
    [wheel] = (folder / "dist").glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    quietly(sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps", "--no-index", str(wheel))
    # The pinned dependencies, linked one by one: the editable licet of the development environment stays out.
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "licet" not in entry.name and entry.suffix != ".pth" and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    (folder / "elsewhere").mkdir()


def quietly(*command: str) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.parser.Parser().parsestr(archive.read(f"licet-{VERSION}.dist-info/METADATA").decode())


def test_the_installed_command_and_library_tell_the_version_of_the_project(installed: Installed) -> None:
    assert installed.run("licet", "--version").split()[-1] == VERSION
    assert installed.run("python", "-c", "import licet; print(licet.__version__)").strip() == VERSION


def test_the_library_that_answers_is_the_installed_one(installed: Installed) -> None:
    where = Path(installed.run("python", "-c", "import licet; print(licet.__file__)").strip())
    assert where.is_relative_to(installed.bin.parent)


def test_every_module_of_the_wheel_imports(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        modules = [name.removesuffix(".py").replace("/", ".") for name in archive.namelist() if name.endswith(".py")]
    names = [name.removesuffix(".__init__") for name in modules if not name.endswith("__main__")]
    assert "licet.core.algebra.scope" in names
    frameworks = {f"licet.adapters.{file.removesuffix('.py')}" for file in FRAMEWORKS}
    assert frameworks < set(names)
    guest = "licet.wasm.python.guest.component"  # runs in a component alone, and changes `open` where it runs
    names = [name for name in names if name not in {*frameworks, guest}]  # those import packages that are not installed
    installed.run("python", "-c", "import importlib, sys; [importlib.import_module(n) for n in sys.argv[1:]]", *names)


def test_the_wheel_holds_the_package_its_types_marker_and_its_licence_alone(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        names = set(archive.namelist())
    assert {"licet/__init__.py", "licet/py.typed", f"licet-{VERSION}.dist-info/licenses/LICENSE"} <= names
    assert "licet/wasm/python/runner.wit" in names
    assert {name.partition("/")[0] for name in names} == {"licet", f"licet-{VERSION}.dist-info"}
    assert [name for name in names if re.search(r"/(tests|__pycache__|conftest\.py|test_)", name)] == []


def test_the_wheel_describes_itself(installed: Installed) -> None:
    metadata = metadata_of(installed.wheel)
    assert metadata["Name"] == "licet"
    assert metadata["Version"] == VERSION
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    # The readme is the page people see first, wherever the wheel is published.
    assert str(metadata.get_payload()).strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()


def test_the_sdist_can_test_itself(installed: Installed) -> None:
    with tarfile.open(installed.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "Makefile", "README.md", "pyproject.toml", "requirements.lock", "scripts/environment.py"}
    assert wanted <= names
    assert "tests/test_packaging.py" in names
    assert [name for name in names if name.startswith((".venv", ".git/"))] == []


def test_each_adapter_imports_its_framework_which_an_extra_of_its_name_installs() -> None:
    extras = {
        name: [Requirement(line) for line in lines]
        for name, lines in PROJECT["project"]["optional-dependencies"].items()
    }
    names = {file: file.removesuffix(".py").replace("_", "-") for file in FRAMEWORKS}
    [every] = extras["adapters"]
    assert (every.name, every.extras) == ("licet", set(names.values()))
    for file, (distribution, packages) in FRAMEWORKS.items():
        assert [one.name for one in extras[names[file]]] == [distribution]
        source = (ROOT / "src" / "licet" / "adapters" / file).read_text("utf-8")
        known = {*sys.stdlib_module_names, "licet", "pydantic"}
        assert set(imported_packages(source)) - known == packages


def test_each_package_that_the_project_asks_for_is_imported_by_it() -> None:
    sources = (path.read_text("utf-8") for path in (ROOT / "src" / "licet").rglob("*.py"))
    imported = {package for source in sources for package in imported_packages(source)}
    asked = [canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]]
    modules = {name: {file.parts[0].partition(".")[0] for file in files(name) or ()} for name in asked}
    assert [name for name in asked if not modules[name] & imported] == []


def imported_packages(source: str) -> Iterator[str]:
    """Name the top-level packages that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]


def pins_of(lock: Path) -> list[str]:
    """List a lock's entries, each with its hashes on one line."""
    return lock.read_text(encoding="utf-8").replace("\\\n", "").strip().splitlines()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_pins_every_package_to_a_version_and_hashes_and_to_no_place(lock: Path) -> None:
    pins = pins_of(lock)
    assert pins
    assert [
        pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[^ ]+( ; [^-]+)?( +--hash=sha256:[0-9a-f]{64})+", pin)
    ] == []


def test_the_lock_satisfies_what_the_project_asks_for() -> None:
    pinned = {name: Version(version) for pin in pins_of(ROOT / "requirements.lock") for name, version in [split(pin)]}
    groups = PROJECT["dependency-groups"]
    asked = PROJECT["project"]["dependencies"] + groups["build"] + groups["test"] + groups["lint"]
    for requirement in map(Requirement, asked):
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def split(pin: str) -> tuple[str, str]:
    name, _, rest = pin.partition("==")
    return name, rest.split()[0]
