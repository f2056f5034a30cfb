"""Packages of npm: installed by the real npm from a registry on a loopback address, if Node is here."""

import json
import os
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from licet.errors import LicetError
from licet.packages.npm import install_npm, run_npm
from licet.packages.server_packages import PackageError, Resolved, install, installed, launch_of, resolve

from .made import Registry, needs_node, refused, registry, silent, started

pytestmark = needs_node

INDEX = """#!/usr/bin/env node
console.log(require('left').version, require('right').left, process.argv.slice(2).join(' '))
"""
VERSION = "exports.version = require('./package.json').version\n"
RIGHT = "exports.left = require('left').version\n"


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with registry(tmp_path, monkeypatch) as made:
        yield made


def add_demo(npm: Registry) -> None:
    """A package with two versions of one other, an alias, and optional packages for platforms and with scripts."""
    npm.add("left", "1.0.0", {"index.js": VERSION}, main="index.js")
    npm.add("left", "2.0.0", {"index.js": VERSION}, main="index.js")
    npm.add("right", "1.0.0", {"index.js": RIGHT}, main="index.js", dependencies={"left": "^1.0.0"})
    npm.add("@native/linux", "1.0.0", os=["linux"])
    npm.add("@native/darwin", "1.0.0", os=["darwin"], dependencies={"only-darwin": "1.0.0"})
    npm.add("only-darwin", "1.0.0")
    npm.add("watcher", "1.0.0", scripts={"install": "touch $EVIDENCE"})
    npm.add("wants-watcher", "1.0.0", dependencies={"watcher": "1.0.0", "lonely": "1.0.0"})
    npm.add("lonely", "1.0.0")
    optional = {"@native/linux": "1.0.0", "@native/darwin": "1.0.0", "wants-watcher": "1.0.0"}
    needed = {"left": "^2.0.0", "right": "*", "other-name": "npm:left@2.0.0"}
    bins = {"demo": "index.js", "second": "index.js"}
    npm.add("demo", "1.1.0", {"index.js": INDEX}, bin=bins)
    npm.add("demo", "1.2.0", {"index.js": INDEX}, bin=bins, dependencies=needed, optionalDependencies=optional)


def test_a_tree_is_pinned_installed_and_started(npm: Registry, tmp_path: Path) -> None:
    add_demo(npm)
    said: list[str] = []
    launch, store = launch_of(["npx", "-y", "demo@^1.0"]), tmp_path / "store"
    resolved = resolve(launch, store, progress=said.append)
    assert (resolved.name, resolved.version, resolved.program) == ("demo", "1.2.0", "demo")
    pinned = {platform: sorted(pins) for platform, pins in resolved.integrity.items()}
    assert pinned["any"] == [
        "demo@1.2.0", "left@2.0.0", "only-darwin@1.0.0", "other-name=left@2.0.0", "right > left@1.0.0", "right@1.0.0",
    ]  # fmt: skip
    assert pinned["linux"] == ["@native/linux@1.0.0"]
    assert pinned["darwin"] == ["@native/darwin@1.0.0"]
    sums = {npm.described["left"]["1.0.0"]["dist"]["integrity"], npm.described["left"]["2.0.0"]["dist"]["integrity"]}
    assert {resolved.integrity["any"][key] for key in ("left@2.0.0", "right > left@1.0.0")} == sums
    assert [text for text in said if text.startswith("left out")] == [
        "left out watcher 1.0.0: it is optional, and its install script would run code"
    ]
    assert started(resolved, store, "a", "-b") == "2.0.0 1.0.0 a -b"
    how = installed(replace(resolved, program="second"), store)
    assert how is not None
    package, node = how.readable
    assert Path(package).parent == store / "npm" / "demo"
    assert Path(node).is_file()
    # Asked again without a lock, it chooses the versions again, and installs nothing that is there.
    again: list[str] = []
    assert resolve(launch, store, progress=again.append) == resolved
    assert again[-1] == "demo 1.2.0 is installed already"
    assert not [text for text in again if text.startswith("installing")]
    # The lock alone gives the same tree, although newer versions are out and nothing of the machine is known.
    npm.add("left", "2.0.1", {"index.js": VERSION}, main="index.js")
    npm.add("demo", "1.3.0", {"index.js": INDEX})
    elsewhere = tmp_path / "elsewhere"
    assert install(launch, resolved, elsewhere, progress=silent) == resolved
    assert started(resolved, elsewhere) == "2.0.0 1.0.0"
    assert list_of(elsewhere) == list_of(store)
    changes(resolved, store, Path(how.argv[1]))


def list_of(store: Path) -> Mapping[str, str]:
    """The hashes of all files of the one package in a store."""
    (listing,) = store.glob("npm/demo/*/files.json")
    return {name: file[3] for name, file in json.loads(listing.read_bytes())["files"].items()}


def changes(resolved: Resolved, store: Path, script: Path) -> None:
    """A changed script is not started, and another lock does not find this package."""
    script.chmod(0o644)
    script.write_text("#!/usr/bin/env node\nconsole.log('evil')\n")
    with pytest.raises(PackageError, match=r"index\.js` is different"):
        installed(resolved, store)
    other = {**resolved.integrity, "any": {**resolved.integrity["any"], "demo@1.2.0": f"sha512-{'A' * 86}=="}}
    assert installed(replace(resolved, integrity=other), store) is None


def test_a_registry_that_changed_a_version_is_noticed(npm: Registry, tmp_path: Path) -> None:
    npm.add("demo")
    launch = launch_of(["npx", "demo"])
    resolved = resolve(launch, tmp_path / "store", progress=silent)
    npm.add("demo", files={"index.js": "#!/usr/bin/env node\nconsole.log('evil')\n"}, bin="index.js")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "another cache"))
        with pytest.raises(PackageError, match=r"has another demo@1\.0\.0 than the lock pins"):
            install(launch, resolved, tmp_path / "elsewhere", progress=silent)


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["preinstall", "install", "postinstall"])
@pytest.mark.sampled(2, of="installs of npm")
def test_an_install_script_is_not_run(
    npm: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setenv("EVIDENCE", str(tmp_path / "ran"))
    npm.add("inner", scripts={script: "touch $EVIDENCE"})
    npm.add("demo", dependencies={"inner": "1.0.0"})
    text = refused("npx demo", tmp_path / "store")
    assert "inner 1.0.0 has an install script; licet runs none" in text
    # A registry that hides the script: nothing runs either, and the file says what the registry did not.
    npm.add("inner", "1.0.1", scripts={script: "touch $EVIDENCE"}, hide_scripts=True)
    npm.add("demo", "1.0.1", dependencies={"inner": "1.0.1"})
    text = refused("npx demo", tmp_path / "store")
    assert f"inner@1.0.1 has `{script}`, which would run code" in text
    assert not (tmp_path / "ran").exists()


def test_an_install_script_runs_with_plain_npm_only(
    npm: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVIDENCE", str(tmp_path / "ran"))
    npm.add("demo", scripts={"postinstall": "touch $EVIDENCE"})
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.mkdir()
    ours.mkdir()
    run_npm(ours, ["install", "demo"], "installing")
    assert (ours / "node_modules" / "demo").is_dir()
    assert not (tmp_path / "ran").exists()
    subprocess.run(["npm", "install", "--prefix", ".", "demo"], cwd=plain, check=True, capture_output=True)
    assert (tmp_path / "ran").exists()


UNPINNED = {
    "git": "git+https://127.0.0.1:1/x.git",
    "git file": "git+file://PROJECT",
    "GitHub": "someone/inner",
    "file": "file:../../..",
    "directory": "file:PROJECT",
    "link": "link:PROJECT",
    "path": "PROJECT",
    "workspace": "workspace:*",
    "URL": "ORIGIN/inner/-/1.0.0.tgz",
    "alias of a URL": "npm:inner@ORIGIN/inner/-/1.0.0.tgz",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository on this machine whose scripts leave a file, and programs for repositories that do."""
    made, programs, evidence = tmp_path / "project", tmp_path / "programs", tmp_path / "ran"
    made.mkdir()
    programs.mkdir()
    described = {"name": "inner", "version": "1.0.0", "scripts": dict.fromkeys(SCRIPTS, f"touch {evidence}")}
    (made / "package.json").write_text(json.dumps(described))
    (made / "binding.gyp").write_text("{}")
    subprocess.run(["git", "init", "-q", str(made)], check=True)
    for name in ("git", "ssh", "node-gyp", "make", "python", "python3"):
        (programs / name).write_text(f"#!/bin/sh\ntouch {evidence}\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return made


SCRIPTS = ("preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare", "prepack")


@pytest.mark.parametrize("kind", ["dependencies", "optionalDependencies", "peerDependencies"])
@pytest.mark.parametrize("source", UNPINNED.values(), ids=UNPINNED)
@pytest.mark.sampled(2, of="installs of npm")
def test_a_dependency_that_is_not_in_the_registry_runs_nothing_and_is_not_installed(
    npm: Registry, tmp_path: Path, project: Path, source: str, kind: str
) -> None:
    npm.add("inner", scripts={"install": f"touch {tmp_path / 'ran'}"}, hide_scripts=True)
    needs: dict[str, Any] = {kind: {"inner": source.replace("ORIGIN", npm.origin).replace("PROJECT", str(project))}}
    npm.add("demo", **needs)
    store = tmp_path / "store"
    try:
        resolved = resolve(launch_of(["npx", "demo"]), store, progress=silent)
    except PackageError:
        assert {path.name for path in store.glob("npm/*/*")} == {".lock"}
    else:  # npm left it out: it is optional
        assert kind == "optionalDependencies"
        assert list(resolved.integrity["any"]) == ["demo@1.0.0"]
        assert not [*store.rglob("inner")]
    assert not (tmp_path / "ran").exists()
    assert "/inner/-/1.0.0.tgz" not in npm.asked  # nobody is told of it


@pytest.mark.parametrize("place", ["git+file://PROJECT", "file:PROJECT", "PROJECT", "github:someone/inner"])
@pytest.mark.sampled(2, of="installs of npm")
def test_a_registry_that_names_another_place_for_an_archive_runs_nothing(
    npm: Registry, tmp_path: Path, project: Path, place: str
) -> None:
    npm.add("demo")
    npm.places["demo"] = place.replace("PROJECT", str(project))
    refused("npx demo", tmp_path / "store")
    assert not (tmp_path / "ran").exists()


def test_what_node_gyp_would_build_is_not_built(npm: Registry, tmp_path: Path, project: Path) -> None:
    files = {"index.js": "#!/usr/bin/env node\n", "binding.gyp": "{}"}
    npm.add("demo", files=files, bin="index.js")
    assert "demo@1.0.0 has `binding.gyp`, which would run code" in refused("npx demo", tmp_path / "store")
    assert not (tmp_path / "ran").exists()


def test_scripts_of_what_is_inside_of_an_archive_do_not_run(npm: Registry, tmp_path: Path, project: Path) -> None:
    inside = (project / "package.json").read_text()
    files = {
        "index.js": "#!/usr/bin/env node\nconsole.log('hello')\n",
        "node_modules/inner/package.json": inside,
        "node_modules/inner/binding.gyp": "{}",
        "node_modules/stray/package.json": inside,
    }
    scripts = dict.fromkeys(("prepare", "prepack", "postpack", "test"), f"touch {tmp_path / 'ran'}")
    npm.add(
        "demo", files=files, bin="index.js", scripts=scripts, dependencies={"inner": "*"}, bundleDependencies=["inner"]
    )
    assert "inner 1.0.0 have install scripts; licet runs none" in refused("npx demo", tmp_path / "store")
    # A lock that somebody wrote does not run them either.
    pins = {"demo@1.0.0": npm.described["demo"]["1.0.0"]["dist"]["integrity"]}
    resolved = Resolved("npm", "demo", "1.0.0", "demo", {"any": pins})
    install(launch_of(["npx", "demo"]), resolved, tmp_path / "elsewhere", progress=silent)
    assert started(resolved, tmp_path / "elsewhere") == "hello"
    assert not (tmp_path / "ran").exists()


def test_a_small_archive_of_much_is_not_unpacked(npm: Registry, tmp_path: Path) -> None:
    some = random.Random(1).randbytes(40_000).hex()
    files = {f"{number}.txt": f"{number}{some}{' ' * (10 << 20)}" for number in range(8)}
    npm.add("demo", files={"index.js": "#!/usr/bin/env node\n", **files}, bin="index.js")
    assert "unpacks to far more than its own size" in refused("npx demo", tmp_path / "store")


def test_two_packages_with_the_same_name_for_their_archives_are_both_installed(npm: Registry, tmp_path: Path) -> None:
    npm.add("@a/b", files={"index.js": "exports.name = 'scoped'\n"})
    npm.add("a-b", files={"index.js": "exports.name = 'plain'\n"})
    script = "#!/usr/bin/env node\nconsole.log(require('@a/b').name, require('a-b').name)\n"
    npm.add("demo", files={"index.js": script}, bin="index.js", dependencies={"@a/b": "*", "a-b": "*"})
    resolved = resolve(launch_of(["npx", "demo"]), tmp_path / "store", progress=silent)
    assert started(resolved, tmp_path / "store") == "scoped plain"


PROGRAMS = [
    ({"bin": {"one": "index.js", "two": "other.js"}}, "has no program `demo`: it has `one`, `two`"),
    ({"bin": {"demo": "../../outside.js"}}, "has no program `demo`: it has none"),
    ({"bin": {"demo": "absent.js"}}, "has no program `demo`: it has none"),
    ({"bin": {"demo": "shell"}}, "is no script for Node: it begins with `#!/bin/sh`"),
    ({}, "has no program `demo`: it has none"),
]


@pytest.mark.parametrize(("described", "reason"), PROGRAMS)
@pytest.mark.sampled(2, of="installs of npm")
def test_a_program_that_node_cannot_start_is_refused(
    npm: Registry, tmp_path: Path, described: dict[str, Any], reason: str
) -> None:
    files = {"index.js": "#!/usr/bin/env node\n", "other.js": "#!/usr/bin/env node\n", "shell": "#!/bin/sh\n"}
    npm.add("demo", files=files, **described)
    assert reason in refused("npx demo", tmp_path / "store")


def test_a_package_that_is_not_there_is_refused(npm: Registry, tmp_path: Path) -> None:
    assert "404" in refused("npx absent", tmp_path / "store")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("demo@file:../x", f"sha512-{'A' * 86}=="),
        ("demo@latest", f"sha512-{'A' * 86}=="),
        ("../x@1.0.0", f"sha512-{'A' * 86}=="),
        ("demo > ../../x@1.0.0", f"sha512-{'A' * 86}=="),
        ("../x=demo@1.0.0", f"sha512-{'A' * 86}=="),
        ("demo@1.0.0", "sha1-AAAA"),
        ("demo@1.0.0", ""),
    ],
)
def test_a_lock_cannot_give_npm_other_sources(npm: Registry, tmp_path: Path, key: str, value: str) -> None:
    good = {"demo@1.0.0": f"sha512-{'B' * 86}=="}  # otherwise the lock would not be about the command
    resolved = Resolved("npm", "demo", "1.0.0", "demo", {"any": {**good, key: value}})
    with pytest.raises(LicetError, match=r"is no package of npm|licet\.lock says npm demo 1\.0\.0 with the files of"):
        install(launch_of(["npx", "demo"]), resolved, tmp_path / "store", progress=silent)
    assert npm.asked == []


LIARS: dict[str, tuple[dict[str, Any], str]] = {
    "another package": ({"name": "evil", "version": "1.0.0"}, "evil 1.0.0"),
    "another version": ({"name": "demo", "version": "0.9.0"}, "demo 0.9.0"),
    "no name": ({"version": "1.0.0"}, "None 1.0.0"),
    "no version": ({"name": "demo"}, "demo None"),
}


@pytest.mark.parametrize(("described", "says"), LIARS.values(), ids=LIARS)
@pytest.mark.sampled(2, of="installs of npm")
def test_an_archive_of_another_package_is_not_installed(
    npm: Registry, tmp_path: Path, described: dict[str, Any], says: str
) -> None:
    program = "#!/usr/bin/env node\nconsole.log('hello')\n"
    npm.add("demo", files={"package.json": json.dumps({**described, "bin": "index.js"}), "index.js": program})
    text = refused("npx demo", tmp_path / "store")
    assert f"the archive of demo@1.0.0 is not it: its package.json says {says}" in text
    npm.add("fine", files={"package.json": '{"name":"fine","version":"v1.0.0+2","bin":"a.js"}', "a.js": program})
    assert (
        started(resolve(launch_of(["npx", "fine"]), tmp_path / "fine", progress=silent), tmp_path / "fine") == "hello"
    )


@pytest.mark.parametrize("named", ["dependency", "shrinkwrap"])
def test_an_address_that_a_package_with_a_bundle_names_is_not_asked(npm: Registry, tmp_path: Path, named: str) -> None:
    """To see what it bundles, npm opens its archive, and that of each package in there that bundles others."""
    npm.add("inner")
    address = f"{npm.origin}/inner/-/1.0.0.tgz"
    files = {"index.js": "#!/usr/bin/env node\n", "node_modules/in/package.json": '{"name":"in","version":"1.0.0"}'}
    more: dict[str, Any] = {"dependencies": {"in": "1.0.0", "inner": address if named == "dependency" else "1.0.0"}}
    if named == "shrinkwrap":
        entry = {"version": "1.0.0", "resolved": address, "hasShrinkwrap": True, "bundleDependencies": ["x"]}
        tree = {"": {"name": "demo", "version": "1.0.0", **more}, "node_modules/inner": entry}
        files["npm-shrinkwrap.json"] = json.dumps({"name": "demo", "lockfileVersion": 3, "packages": tree})
        more["_hasShrinkwrap"] = True
    npm.add("demo", files=files, bin="index.js", bundleDependencies=["in"], **more)
    refused("npx demo", tmp_path / "store")
    assert "/demo/-/1.0.0.tgz" in npm.asked or named == "dependency"
    assert "/inner/-/1.0.0.tgz" not in npm.asked


def test_one_hash_does_not_stand_for_two_versions(npm: Registry, tmp_path: Path) -> None:
    npm.add("demo", "1.0.0")
    npm.add("demo", "2.0.0", files={"index.js": "#!/usr/bin/env node\nconsole.log('new')\n"}, bin="index.js")
    old = npm.described["demo"]["1.0.0"]["dist"]["integrity"]
    lying = Resolved("npm", "demo", "2.0.0", "demo", {"any": {"demo@2.0.0": old, "zz=demo@1.0.0": old}})
    with pytest.raises(PackageError, match=r"with one hash for demo@2\.0\.0 and demo@1\.0\.0"):
        install(launch_of(["npx", "demo@2"]), lying, tmp_path / "store", progress=silent)
    with pytest.raises(PackageError, match=r"the archive of demo@2\.0\.0 is not it"):  # the files say it too
        install_npm(launch_of(["npx", "demo@2"]), lying, tmp_path / "store", silent)


def test_a_bundled_dependency_comes_with_the_package_that_bundles_it(npm: Registry, tmp_path: Path) -> None:
    files = {
        "index.js": "#!/usr/bin/env node\nconsole.log(require('inside').version)\n",
        "node_modules/inside/package.json": '{"name": "inside", "version": "7.0.0"}',
        "node_modules/inside/index.js": VERSION,
    }
    needed = {"inside": "7.0.0"}
    npm.add("demo", files=files, bin="index.js", dependencies=needed, bundleDependencies=["inside"])
    resolved = resolve(launch_of(["npx", "-p", "demo", "demo"]), tmp_path / "store", progress=silent)
    assert list(resolved.integrity["any"]) == ["demo@1.0.0"]
    assert started(resolved, tmp_path / "store") == "7.0.0"
