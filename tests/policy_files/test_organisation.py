"""An organisation above the project: where its file must be and whose, what it may say, and that it only narrows."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from licet import Manifest, ManifestError, load_manifest
from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Request
from licet.core.policy.manifest import COMMANDS, with_commands
from licet.policy_files import organisation
from licet.policy_files.load import read_policy
from licet.policy_files.organisation import Place, machine_organisation, under_organisation
from organisations import MANIFEST, WORKSPACE, put

SECOND_USE = "network:https:get@files.example.com"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A manifest with its workspace."""
    (tmp_path / "licet.yaml").write_text(WORKSPACE, encoding="utf-8")
    path = tmp_path / "agent.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    return path


def own(path: Path) -> Manifest:
    """The policy alone."""
    found = read_policy(path).manifest
    assert found is not None
    return found


def problem(path: Path) -> str:
    """The first thing that is wrong, when a policy is loaded."""
    with pytest.raises(ManifestError) as wrong:
        load_manifest(path)
    return str(wrong.value.problems[0])


# Whose file it is -----------------------------------------------------------------------------------------------------


def test_without_a_file_a_policy_is_as_it_was(policy: Path) -> None:
    assert machine_organisation() is None
    manifest = own(policy)
    assert under_organisation(manifest) is manifest
    assert load_manifest(policy).organisations == ()


def test_the_place_is_a_constant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, policy: Path) -> None:
    """No variable and no directory moves the file: it is where it is in the source, and belongs to root."""
    monkeypatch.undo()
    assert Place("/etc/licet/organisation.yaml", 0, "/") == organisation.MACHINE
    put(monkeypatch, tmp_path, "destinations: {allow: []}")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "etc/licet").mkdir(parents=True)
    for name in ("HOME", "XDG_CONFIG_HOME", "LICET_ORGANISATION", "LICET_CONFIG", "LICET_HOME", "PWD"):
        monkeypatch.setenv(name, str(elsewhere))
    monkeypatch.chdir(elsewhere)
    assert load_manifest(policy).organisations == (machine_organisation(),)


def test_one_look_is_all_that_a_machine_without_the_file_pays(monkeypatch: pytest.MonkeyPatch, policy: Path) -> None:
    looked: list[str] = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def look(path: Any, *more: Any, **given: Any) -> Any:
            looked.append(str(path))
            return real(path, *more, **given)

        return look

    for name in ("lstat", "stat", "open", "readlink"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    assert machine_organisation() is None
    assert looked == [os.path.dirname(organisation.MACHINE.file)]


def _link(path: Path, target: Path) -> None:
    path.rename(path.with_name("real.yaml"))
    path.symlink_to(target)


def _instead(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


UNSAFE: dict[str, tuple[Callable[[Path], object], str]] = {
    "others may write it": (lambda file: file.chmod(0o646), "may write (mode 646)"),
    "a group may write it": (lambda file: file.chmod(0o664), "may write (mode 664)"),
    "others may write its directory": (lambda file: file.parent.chmod(0o1777), "may write (mode 1777)"),
    "a group may write its directory": (lambda file: file.parent.chmod(0o775), "may write (mode 775)"),
    "it is a directory": (lambda file: _instead(file, os.mkdir), "a directory, not a regular file"),
    "it is a pipe": (lambda file: _instead(file, os.mkfifo), "not a regular file"),
    "it is a link to nothing": (lambda file: _link(file, file.with_name("missing")), "a link that leads nowhere"),
    "it is a link in circles": (lambda file: _link(file, file), "too many links"),
    "it is no YAML": (lambda file: file.write_text("a: [", encoding="utf-8"), "expected"),
    "it is empty": (lambda file: file.write_text("", encoding="utf-8"), "expected"),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_a_file_that_cannot_be_used_refuses_everything(
    case: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(monkeypatch, tmp_path, "destinations: {allow: [api.example.com]}\n")
    assert load_manifest(policy).organisations
    change, expected = UNSAFE[case]
    change(file)
    found = problem(policy)
    assert found.startswith(str(file)), found
    assert expected in found


@pytest.mark.who
def test_it_must_belong_to_its_owner(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(monkeypatch, tmp_path, "destinations: {allow: []}\n")
    monkeypatch.setattr(organisation, "MACHINE", Place(str(file), os.getuid() + 1, str(file.parent)))
    assert f"{file.parent}, which belongs to user {os.getuid()}" in problem(policy)


def test_the_way_to_a_linked_file_counts_too(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is followed, and whoever could change a directory on the way could change the file."""
    file = put(monkeypatch, tmp_path, "destinations: {allow: []}\n")
    open_to_all = file.parent / "shared"
    open_to_all.mkdir()
    (open_to_all / "hop").symlink_to("../real.yaml")
    _link(file, Path("shared/hop"))
    open_to_all.chmod(0o755)
    assert load_manifest(policy).organisations[0].origin.file == str(file)
    open_to_all.chmod(0o777)
    assert f"{open_to_all}, which others" in problem(policy)


@pytest.mark.who
@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_refuses_everything(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(monkeypatch, tmp_path, "destinations: {allow: []}\n")
    file.chmod(0)
    assert "cannot be read (permission denied)" in problem(policy)
    file.chmod(0o644)
    file.parent.chmod(0)
    try:
        assert "permission denied" in problem(policy)
    finally:
        file.parent.chmod(0o755)


# What it may say ------------------------------------------------------------------------------------------------------

WRONG = {
    "a tool": ("tools: {a: {needs: []}}", "1:1: error: found the key `tools`"),
    "a grant": ("grants: ['fs:read:/']", "1:1: error: found the key `grants`"),
    "an agent": ("destinations: {}\nagent: me\n", "2:1: error: found the key `agent`"),
    "capabilities": ("capabilities: {destinations: {allow: []}}", "1:1: error: found the key `capabilities`"),
    "limits": ("limits: {wall_seconds: 3}", "1:1: error: found the key `limits`"),
    "a definition": ("connectors:\n  definitions: {}\n", "2:3: error: found the key `definitions`"),
    "a class": ("max_side_effect_class: writes\n", "1:24: error: found `writes`"),
    "a key twice": ("budget: {}\nbudget: {}\n", "2:1: error: found the key `budget` a second time"),
    "a default": ("destinations: {default: deny}\n", "`default: deny` without an `allow` list"),
    "another default": ("destinations: {allow: [], default: allow}\n", "error: found `allow`"),
    "a public suffix": ("destinations: {allow: ['*.com']}\n", "error: found `*.com`"),
    "a newer format": ("licet: 2\ndestinations: {}\n", "found format 2"),
    "a list": ("- destinations\n", "1:1: error: found a list"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_it_may_not_say_is_an_error(
    case: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = WRONG[case]
    file = put(monkeypatch, tmp_path, text)
    for found in (problem(policy), str(read_policy(file).problems[0])):
        assert found.startswith(f"{file}:")
        assert expected in found


# Beside the policy ----------------------------------------------------------------------------------------------------


def test_an_edit_of_it_changes_no_digest(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests, above = {own(policy).digest}, set()
    for text in ("destinations: {allow: []}", "max_side_effect_class: read_only", "approvals: {write: call}"):
        put(monkeypatch, tmp_path, text)
        manifest = load_manifest(policy)
        digests |= {manifest.digest, manifest.expand("/w", "/h").declare(()).digest}
        digests.add(with_commands(manifest).digest)
        above |= {one.digest for one in manifest.organisations}
    assert len(digests) == 1
    assert len(above) == 3


def test_a_second_file_narrows_further(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, tmp_path, "destinations: {allow: [api.example.com]}\n")
    second = tmp_path / "second.yaml"
    second.write_text("destinations: {allow: [files.example.com]}\nmax_side_effect_class: full\n", encoding="utf-8")
    manifest = load_manifest(policy, organisation=second).expand("/w", "/h")
    assert [Path(one.origin.file).name for one in manifest.organisations] == ["organisation.yaml", "second.yaml"]
    for host in ("api", "files"):
        assert isinstance(decide(Request("fetch", (Use(f"network:https:get@{host}.example.com"),)), manifest), Deny)
    assert under_organisation(manifest, second) is manifest


def test_no_grant_writes_it(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(monkeypatch, tmp_path, "budget: {max_calls_per_session: 5}\n")
    wide = tmp_path / "wide.yaml"
    wide.write_text(
        f"agent: wide\ncapabilities:\n  max_side_effect_class: full\n  budget: {{max_calls_per_session: 5}}\n"
        f"  fs_reach: {{read: [{tmp_path}], write: [{tmp_path}]}}\n  process: {{allowed_binaries: [sh]}}\n",
        encoding="utf-8",
    )
    reach = reach_of(with_commands(load_manifest(wide).expand("/w", "/h")), COMMANDS)
    assert reach is not None
    for path in (file, file.parent / "new", file.parent):
        assert not reach.grant.has(f"fs:write:{path}")
        assert not reach.grant.has(f"fs:delete:{path}")
    assert reach.grant.has(f"fs:write:{tmp_path}/free")


def test_a_quorum_that_nobody_can_meet_is_reported(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from licet.assemble import review

    file = put(monkeypatch, tmp_path, "approvals:\n  quorum: 2\n")
    found = [one for one in review(policy).problems if one.origin.file == str(file)]
    assert [(one.origin.line, one.severity) for one in found] == [(2, "warning")]
