"""Directories under `fs_reach.output` are made before a program starts: inside of its grant, and through no link."""

from pathlib import Path

import pytest

from licet import load_manifest
from licet.core.decision.reach import Reach, reach_of
from licet.core.policy.manifest import COMMANDS, with_commands
from licet.sandbox.programs.output_directories import make_output_directories

POLICY = "agent: x\ncapabilities:\n  max_side_effect_class: {effect}\n  {keys}\n"


def reach(folder: Path, keys: str, effect: str = "write_limited") -> Reach:
    file = folder / "policy.yaml"
    file.write_text(POLICY.format(keys=keys.replace("$W", "${workdir}"), effect=effect))
    found = reach_of(with_commands(load_manifest(file).expand(str(folder), str(folder / "home"))), COMMANDS)
    assert found is not None
    return found


@pytest.mark.parametrize(("keys", "made"), [
    ('fs_reach: {output: ["$W/dist"]}', True),
    ('fs_reach: {output: ["$W/dist/"]}', True),
    # Nobody says that these are directories.
    ('fs_reach: {write: ["$W/dist"]}', False),
    ('grants: ["fs:write:$W/dist"]', False),
    # A deny wins.
    ('fs_reach: {output: ["$W/dist"]}\\n  deny: ["fs:write:$W/dist"]', False),
    ('fs_reach: {output: ["$W/dist"]}\\n  deny: ["fs:*:$W"]', False),
    # Only the last name is made: the directory around it is no part of the grant.
    ('fs_reach: {output: ["$W/gone/dist"]}', False),
])  # fmt: skip
def test_a_missing_directory_is_made_where_the_policy_says_so(tmp_path: Path, keys: str, made: bool) -> None:
    make_output_directories(reach(tmp_path, keys.replace("\\n", "\n")))
    assert (tmp_path / "dist").is_dir() is made
    assert not (tmp_path / "gone").exists()


def test_a_policy_that_only_reads_makes_nothing(tmp_path: Path) -> None:
    make_output_directories(reach(tmp_path, 'fs_reach: {output: ["$W/dist"]}', effect="read_only"))
    assert not (tmp_path / "dist").exists()


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    make_output_directories(reach(tmp_path, 'fs_reach: {output: ["$W/file", "$W/dangling"]}'))
    assert (tmp_path / "file").read_text() == "kept"
    assert not (tmp_path / "absent").exists()


def test_no_directory_is_made_through_a_link_that_a_program_left(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "build").symlink_to(elsewhere)
    (project / "build" / "dist").mkdir()  # so it would be made
    assert (elsewhere / "dist").is_dir()
    (elsewhere / "dist").rmdir()
    make_output_directories(reach(project, 'fs_reach: {output: ["$W/build/dist"]}'))
    assert not (elsewhere / "dist").exists()


def test_output_may_be_written_and_not_deleted(tmp_path: Path) -> None:
    grant = reach(
        tmp_path, 'fs_reach: {output: ["$W/dist"]}\n  budget: {max_calls_per_session: 1}', effect="full"
    ).grant
    assert grant.has(f"fs:write:{tmp_path}/dist/a")
    assert not grant.has(f"fs:delete:{tmp_path}/dist/a")
