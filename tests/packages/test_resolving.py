"""Versions of PyPI packages: chosen from the metadata of wheels, by the real pip, which never follows a requirement."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from licet.packages.clients import PackageError
from licet.packages.resolving import Pip, _wants, choose_wheels

from .made import Index, index, sdist, wheel


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    (tmp_path / "files").mkdir()
    with index(tmp_path / "files", monkeypatch) as made:
        yield made


def chosen(tmp_path: Path, *wanted: str, same: Mapping[str, str] | None = None) -> list[str]:
    directory = tmp_path / "new"
    directory.mkdir()
    return list(choose_wheels(wanted, Pip(directory), same or {}))


def refused(tmp_path: Path, *wanted: str) -> str:
    with pytest.raises(PackageError) as refusal:
        chosen(tmp_path, *wanted)
    return str(refusal.value)


# Requirements that are no names ---------------------------------------------------------------------------------------

ADDRESSES = {
    "source": "evil @ ORIGIN/evil-1.0.tar.gz",
    "wheel": "evil @ ORIGIN/evil-1.0-py3-none-any.whl",
    "fragment": "evil @ ORIGIN/x#egg=evil",
    "git": "evil @ git+ORIGIN/evil.git",
    "file": "evil @ file://PLACE/evil-1.0.tar.gz",
    "directory": "evil @ file://PLACE/project",
    "marker": "evil @ ORIGIN/evil-1.0.tar.gz ; python_version > '3'",
    "no spaces": "evil@ORIGIN/evil-1.0.tar.gz",
}


@pytest.mark.parametrize("requirement", ADDRESSES.values(), ids=ADDRESSES)
def test_an_address_is_refused_before_anything_is_fetched_from_it(
    served: Index, tmp_path: Path, requirement: str
) -> None:
    evidence, place = tmp_path / "ran", tmp_path / "place"
    source = sdist(place, "evil", evidence)
    served.elsewhere = {f"/{source.name}": source.read_bytes(), "/x": source.read_bytes()}
    text = requirement.replace("ORIGIN", served.origin).replace("PLACE", str(place))
    wheel(served.directory, "deep", requires=[text])
    wheel(served.directory, "front", requires=["deep"])
    assert refused(tmp_path, "front").startswith(f"deep 1.0 needs `{text}`, which is an address and no name")
    assert not [path for path in served.asked if not path.startswith(("/simple/", "/files/"))]
    assert not evidence.exists()


def test_pip_builds_what_an_address_names_even_if_it_is_told_to_take_wheels_only(served: Index, tmp_path: Path) -> None:
    """The attack: without our own resolver, the source's code runs."""
    evidence = tmp_path / "ran"
    source = sdist(tmp_path / "place", "evil", evidence)
    served.elsewhere = {f"/{source.name}": source.read_bytes()}
    wheel(served.directory, "front", requires=[f"evil @ {served.origin}/{source.name}"])
    pip = [sys.executable, "-I", "-m", "pip", "download", "--only-binary", ":all:", "--dest", str(tmp_path), "front"]
    subprocess.run(pip, check=False, capture_output=True)
    assert evidence.exists()


@pytest.mark.parametrize("line", ["front[net]", "front[NET]", "other"])
def test_an_address_of_an_extra_is_refused_where_the_extra_is_used(served: Index, tmp_path: Path, line: str) -> None:
    wheel(served.directory, "front", requires=[f"evil @ {served.origin}/evil.tar.gz ; extra == 'net'"])
    wheel(served.directory, "other", requires=["front[net]"])
    assert "front 1.0 needs `evil @" in refused(tmp_path, line)


def test_an_address_that_is_not_for_this_machine_is_no_matter(served: Index, tmp_path: Path) -> None:
    lines = ["extra == 'net'", "sys_platform == 'win32'", "python_version < '3'"]
    wheel(served.directory, "front", requires=[f"evil @ {served.origin}/evil.tar.gz ; {line}" for line in lines])
    assert chosen(tmp_path, "front") == ["front==1.0"]


UNREADABLE = ["./project", "-r other.txt", "evil; import os", "evil (>=1", "--index-url=http://host.test", "evil = 1"]


@pytest.mark.parametrize("line", UNREADABLE)
def test_a_line_that_is_no_requirement_is_refused(served: Index, tmp_path: Path, line: str) -> None:
    wheel(served.directory, "front", requires=[line])
    assert "front" in refused(tmp_path, "front")  # some versions of pip themselves refuse such a wheel
    with pytest.raises(PackageError, match=r"front 1 needs `.*`, which is no requirement"):
        list(_wants(line, "front 1", ""))


def test_a_name_without_a_wheel_is_refused_before_anything_of_it_is_fetched(served: Index, tmp_path: Path) -> None:
    evidence = tmp_path / "ran"
    source = sdist(served.directory, "evil", evidence)
    wheel(served.directory, "evil", "2.0", tag="cp27-none-win32")
    wheel(served.directory, "front", requires=["evil"])
    assert "front 1.0 needs `evil`, of which the index has no wheel that fits this machine" in refused(
        tmp_path, "front"
    )
    assert f"/files/{source.name}" not in served.asked
    assert not evidence.exists()


def test_a_page_that_links_a_repository_is_not_followed(
    served: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, evidence = tmp_path / "programs", tmp_path / "ran"
    programs.mkdir()
    for name in ("git", "hg", "svn", "bzr"):
        (programs / name).write_text(f"#!/bin/sh\necho $0 >> {evidence}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for system in ("git", "hg", "svn", "bzr"):
        served.links["evil"] = f'<a href="{system}+{served.origin}/evil-1.0-py3-none-any.whl">evil</a>'
        with pytest.raises(PackageError):
            choose_wheels(["evil"], Pip(tmp_path / "programs"), {})
    assert not evidence.exists()


# The configuration of the user ----------------------------------------------------------------------------------------

SETTINGS = {
    "sources": "no-binary = :all:",
    "a source": "no-binary = evil",
    "requirements": "requirement = PLACE/more.txt",
    "constraints": "constraint = PLACE/more.txt",
    "a project": "editable = file://PLACE/project",
    "dependencies": "no-deps = true",
    "nothing said": "quiet = 3",
    "another resolver": "use-deprecated = legacy-resolver",
    "another platform": "platform = win_amd64",
}


@pytest.mark.parametrize("way", ["file", "section", "variable"])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.sampled(1)
def test_a_setting_of_pip_adds_no_source_and_no_package(
    served: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, way: str
) -> None:
    evidence = tmp_path / "ran"
    source = sdist(tmp_path, "evil", evidence)
    sdist(served.directory, "evil", evidence)
    (tmp_path / "more.txt").write_text(f"evil @ file://{source}\n")
    name, _, value = setting.replace("PLACE", str(tmp_path)).partition(" = ")
    if way == "variable":
        monkeypatch.setenv(f"PIP_{name.upper().replace('-', '_')}", value)
    else:
        # Where packages are is read from the same file.
        settings = (
            f"[{'global' if way == 'file' else 'download'}]\n{name} = {value}\nindex-url = {served.origin}/simple\n"
        )
        monkeypatch.delenv("PIP_INDEX_URL")
        (tmp_path / "pip.conf").write_text(settings)
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    wheel(served.directory, "evil", "0.5")
    wheel(served.directory, "front", requires=["evil"])
    assert chosen(tmp_path, "front") == ["evil==0.5", "front==1.0"]
    assert not evidence.exists()


# Versions -------------------------------------------------------------------------------------------------------------


def add(served: Index, *lines: str) -> None:
    """Add wheels: `name version: need, need`."""
    for line in lines:
        about, _, needs = line.partition(":")
        wheel(served.directory, *about.split(), requires=[need.strip() for need in needs.split("|") if need.strip()])


CHOICES = {
    "newest": (["a 1.0", "a 1.1", "a 2.0b1"], ["a"], ["a==1.1"]),
    "limits of several": (["a 1: c<3", "b 1: c>=2", "c 1", "c 2", "c 3"], ["a", "b"], ["a==1", "b==1", "c==2"]),
    "an older one": (["a 1: c<2", "a 2: c>=2", "b 1: c<2", "c 1", "c 2"], ["a", "b"], ["a==1", "b==1", "c==1"]),
    "the older ones": (
        ["a 1", "a 2: b==1", "a 3: b==1", "b 1: c==1", "b 2", "c 1", "c 2"],
        ["a", "c>1"],
        ["a==1", "c==2"],
    ),
    "a circle": (["a 1: b", "b 1: a"], ["a"], ["a==1", "b==1"]),
    "an extra": (["a 1: b ; extra == 'x' | c ; extra == 'y'", "b 1", "c 1"], ["a[X]"], ["a==1", "b==1"]),
    "extras of others": (["a 1: b[x,y]", "b 1: c ; extra == 'x' | d ; extra == 'y'", "c 1", "d 1"], ["a"],
                         ["a==1", "b==1", "c==1", "d==1"]),
    "an extra of an older one": (["a 1: b ; extra == 'x'", "a 2", "b 1", "d 1: a<2"], ["a[x]", "d"],
                                 ["a==1", "b==1", "d==1"]),
    "a marker": (["a 1: b ; sys_platform == 'win32' | c ; python_version > '3'", "c 1"], ["a"], ["a==1", "c==1"]),
    "a preview that is asked for": (["a 1: b>=2.0b1", "b 1", "b 2.0b1"], ["a"], ["a==1", "b==2.0b1"]),
    "names in other spellings": (["a-b 1: C.d_e", "c-d-e 1"], ["A_B"], ["a-b==1", "c-d-e==1"]),
}  # fmt: skip


@pytest.mark.parametrize(("published", "wanted", "expected"), CHOICES.values(), ids=CHOICES)
def test_versions_are_chosen_that_fit_together(
    served: Index, tmp_path: Path, published: list[str], wanted: list[str], expected: list[str]
) -> None:
    add(served, *published)
    assert chosen(tmp_path, *wanted) == expected


def test_versions_that_do_not_fit_together_are_named(served: Index, tmp_path: Path) -> None:
    add(served, "a 1: c<2", "b 1: c>=2", "c 1", "c 2")
    text = refused(tmp_path, "a", "b")
    assert text.startswith("no versions fit together: ")
    assert {"a 1 needs `c<2`", "b 1 needs `c>=2`"} <= {*text.partition(": ")[2].split("; ")}


def test_a_wheel_for_a_newer_python_or_one_that_was_withdrawn_is_not_taken(served: Index, tmp_path: Path) -> None:
    add(served, "a 1")
    wheel(served.directory, "a", "2", python=">=3.99")
    served.yanked.add(wheel(served.directory, "a", "1.5").name)
    assert chosen(tmp_path, "a") == ["a==1"]


def test_other_platforms_give_the_versions(served: Index, tmp_path: Path) -> None:
    add(served, "a 1: b", "b 1", "b 2")
    assert chosen(tmp_path, "a", same={"b": "1", "unused": "7"}) == ["a==1", "b==1"]


def test_a_wheel_whose_metadata_cannot_be_read_is_refused(served: Index, tmp_path: Path) -> None:
    made = wheel(served.directory, "front")
    made.write_bytes(made.read_bytes()[:-40])
    assert "front" in refused(tmp_path, "front")
