"""Packages that a test makes itself: wheels, and an index and a registry of npm on a loopback address."""

import asyncio
import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from licet.backends.memory import Answer
from licet.guard.ports import Exchange
from licet.packages.server_packages import PackageError, Resolved, installed, launch_of, resolve
from loopback import serving, talking

needs_node = pytest.mark.skipif(not (shutil.which("npm") and shutil.which("node")), reason="there is no Node here")

GREET = "def main() -> None:\n    print('hello')\n"


def silent(_: str) -> None:
    """Print nothing of the progress."""


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write some files, all of which can be started, with the directories that they need."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    return root


def started(resolved: Resolved, store: Path, *words: str) -> str:
    """What a package of a store prints."""
    how = installed(resolved, store, verify=True)
    assert how is not None
    command = [*how.argv, *words]
    done = subprocess.run(command, env=how.environment, capture_output=True, text=True, check=True, cwd=store)
    return done.stdout.strip()


def refused(command: str, store: Path) -> str:
    """Why a package is not installed; nothing half made is left."""
    launch = launch_of(command.split())
    with pytest.raises(PackageError) as refusal:
        resolve(launch, store, progress=silent)
    assert {path.name for path in store.glob(f"{launch.kind}/*/*")} == {".lock"}
    return str(refusal.value)


def wheel(
    directory: Path,
    name: str,
    version: str = "1.0",
    *,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    python: str = "",
    scripts: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel. By default it has one module with a function `main`, and one console script with its own name."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    contents = {f"{module}.py": GREET} if files is None else dict(files)
    entries = {name: f"{module}:main"} if scripts is None else scripts
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    metadata += [f"Requires-Python: {python}"] if python else []
    contents |= {
        f"{info}/METADATA": "\n".join(("Metadata-Version: 2.1", *metadata, "")),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: made\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": "\n".join(("[console_scripts]", *(f"{k} = {v}" for k, v in entries.items()), "")),
    }
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*contents, f"{info}/RECORD"))
    directory.mkdir(exist_ok=True)
    path = directory / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in contents.items():
            member = zipfile.ZipInfo(file)
            member.external_attr = (0o100755 if "/scripts/" in file else 0o100644) << 16
            archive.writestr(member, text)
    return path


def sdist(directory: Path, name: str, evidence: Path) -> Path:
    """Write a source distribution whose build would leave a file behind."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}-1.0.tar.gz"
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {"pyproject.toml": project, "backend.py": f"open({str(evidence)!r}, 'w').close()\n"}
    path.write_bytes(archived(files | {"PKG-INFO": f"Name: {name}\nVersion: 1.0\n"}, f"{name}-1.0"))
    return path


class Index:
    """Serves the files of a directory as an index of PyPI does, and others only to who asks for them by address."""

    def __init__(self, directory: Path) -> None:
        self.origin = ""
        self.directory = directory
        self.elsewhere: dict[str, bytes] = {}
        self.links: dict[str, str] = {}  # name -> further text of its page
        self.yanked: set[str] = set()  # names of files
        self.asked: list[str] = []

    def answer(self, exchange: Exchange) -> Answer:
        path = unquote(urlsplit(exchange.url).path)
        self.asked.append(path)
        if path in self.elsewhere:
            return Answer(body=self.elsewhere[path])
        if path.startswith("/files/") and (file := self.directory / path.removeprefix("/files/")).is_file():
            return Answer(body=file.read_bytes())
        name = path.removeprefix("/simple/").rstrip("/")
        own = [one.name for one in self.directory.iterdir() if one.name.startswith(f"{name.replace('-', '_')}-")]
        if not own and name not in self.links:
            return Answer.text("not found", status=404)
        yanked = {one: ' data-yanked=""' if one in self.yanked else "" for one in own}
        lines = (f'<a href="/files/{one}"{yanked[one]}>{one}</a>' for one in own)
        page = f"<!DOCTYPE html><html><body>{''.join(lines)}{self.links.get(name, '')}</body></html>"
        return Answer(headers=(("content-type", "text/html"),), body=page.encode())


@contextmanager
def index(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Run an index of the wheels in a directory, and let pip ask it alone."""
    made = Index(directory)
    with serving(made.answer) as server:
        made.origin = f"http://{server.host}:{server.port}"
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        monkeypatch.delenv("PIP_NO_INDEX", raising=False)
        monkeypatch.setenv("PIP_INDEX_URL", f"{made.origin}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        yield made


def archived(files: Mapping[str, str], root: str) -> bytes:
    """A compressed tar archive with all files in one directory."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size = len(text.encode())
            member.mode = 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


class Silent:
    """An index and a registry that takes connections, and never says anything."""

    def __init__(self) -> None:
        self.origin = ""
        self.opened, self.ended = Event(), Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened.set()
        while await reader.read(4096):
            pass
        self.ended.set()


@contextmanager
def silent_registry(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    """Run a silent registry, and let pip and npm ask it alone. They would wait for a minute."""
    made = Silent()
    with talking(made.talk) as server:
        made.origin = f"http://{server.host}:{server.port}"
        for name, value in {
            "PIP_INDEX_URL": f"{made.origin}/simple",
            "PIP_TIMEOUT": "60",
            "PIP_DEFAULT_TIMEOUT": "60",
            "PIP_CONFIG_FILE": "/dev/null",
            "NPM_CONFIG_REGISTRY": f"{made.origin}/",
            "NPM_CONFIG_FETCH_TIMEOUT": "60000",
            "NPM_CONFIG_USERCONFIG": str(directory / "none"),
            "NPM_CONFIG_GLOBALCONFIG": str(directory / "none either"),
            "NPM_CONFIG_CACHE": str(directory / "cache"),
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        yield made


class Registry:
    """Packages of npm by name and version, as a registry describes them."""

    def __init__(self) -> None:
        self.origin = ""
        self.tarballs: dict[str, bytes] = {}
        self.described: dict[str, dict[str, dict[str, Any]]] = {}
        self.places: dict[str, str] = {}  # names whose archives are said to be elsewhere
        self.asked: list[str] = []

    def add(self, name: str, version: str = "1.0.0", files: Mapping[str, str] | None = None, **described: Any) -> None:
        """Publish a package. By default it has one program that says hello."""
        hidden = described.pop("hide_scripts", False)
        if files is None:
            files = {"index.js": "#!/usr/bin/env node\nconsole.log('hello')\n"}
            described = {"bin": {name.rpartition("/")[2]: "index.js"}} | described
        package = {"name": name, "version": version, **described}
        tarball = archived({"package.json": json.dumps(package), **files}, "package")
        place = f"/{name}/-/{version}.tgz"
        self.tarballs[place] = tarball
        integrity = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
        package["dist"] = {"tarball": place, "integrity": f"sha512-{integrity}"}
        if hidden:
            package.pop("scripts")
        elif package.get("scripts", {}).keys() & {"preinstall", "install", "postinstall"}:
            package["hasInstallScript"] = True
        self.described.setdefault(name, {})[version] = package

    def answer(self, exchange: Exchange) -> Answer:
        path = unquote(urlsplit(exchange.url).path)
        self.asked.append(path)
        if path in self.tarballs:
            return Answer(body=self.tarballs[path])
        versions = self.described.get(path.removeprefix("/"))
        if versions is None:
            return Answer.json({"error": "not found"}, status=404)
        place = self.places.get(path[1:])
        whole = {
            version: {**one, "dist": {**one["dist"], "tarball": place or self.origin + one["dist"]["tarball"]}}
            for version, one in versions.items()
        }
        latest = list(versions)[-1]
        return Answer.json({"name": path[1:], "dist-tags": {"latest": latest}, "versions": whole})


@contextmanager
def registry(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Run a registry, and let npm ask it alone; the cache and the configuration of the user are left alone."""
    made = Registry()
    with serving(made.answer) as server:
        made.origin = f"http://{server.host}:{server.port}"
        empty = directory / "npmrc"
        empty.write_text(f"registry={made.origin}/\nignore-scripts=false\nfetch-retries=0\n", encoding="utf-8")
        monkeypatch.setenv("NPM_CONFIG_USERCONFIG", str(empty))
        monkeypatch.setenv("NPM_CONFIG_GLOBALCONFIG", str(directory / "none"))
        monkeypatch.setenv("NPM_CONFIG_CACHE", str(directory / "cache"))
        yield made
