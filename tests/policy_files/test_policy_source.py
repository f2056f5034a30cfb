"""Whether the files of a policy are as they were when it was loaded."""

import os
import time
from pathlib import Path

import pytest

from licet import load_manifest
from licet.policy_files.limits import SETTLED_SECONDS
from licet.policy_files.policy_source import PolicyRefused, PolicySource, SeenFiles, meaning
from pins import trust

POLICY = "agent: a\ncapabilities: {env: [A]}\n"


def old(path: Path, text: str = POLICY) -> Path:
    """A file that was written some time ago, as far as its inode says."""
    path.write_text(text)
    deadline = time.monotonic() + 30
    while not SeenFiles.of(path).is_settled and time.monotonic() < deadline:
        time.sleep(SETTLED_SECONDS / 4)
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return old(tmp_path / "agent.yaml")


def test_files_that_nobody_touched_are_the_same(policy: Path) -> None:
    seen = SeenFiles.of(policy)
    assert seen.are_same()
    assert seen.are_same()


@pytest.mark.parametrize("name", ["agent.yaml", "licet.yaml", "licet.lock"])
def test_each_file_that_decides_counts_also_one_that_was_not_there(policy: Path, name: str) -> None:
    seen = SeenFiles.of(policy)
    (policy.parent / name).write_text("agent: b\n")
    assert not seen.are_same()


def test_another_file_of_the_same_size_and_date_in_its_place_counts(policy: Path) -> None:
    seen, about = SeenFiles.of(policy), policy.stat()
    other = policy.with_name("other.yaml")
    other.write_text(POLICY.replace("A", "B"))
    os.utime(other, ns=(about.st_atime_ns, about.st_mtime_ns))
    other.replace(policy)
    assert not seen.are_same()


def test_a_change_of_the_same_size_with_the_date_put_back_counts(policy: Path) -> None:
    seen, about = SeenFiles.of(policy), policy.stat()
    policy.write_text(POLICY.replace("A", "B"))
    os.utime(policy, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert not seen.are_same()


def test_a_file_that_is_so_new_that_its_next_change_could_have_the_same_time_never_counts_as_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(POLICY)
    assert not SeenFiles.of(path).are_same()


def test_accepting_a_policy_is_a_change(policy: Path) -> None:
    seen, before = SeenFiles.of(policy), meaning(load_manifest(policy))
    trust(policy)
    assert not seen.are_same()
    assert meaning(load_manifest(policy)) != before  # it is pinned now


def test_comments_are_no_change_of_what_a_policy_means(policy: Path) -> None:
    before = meaning(load_manifest(policy))
    policy.write_text(f"# a comment\n{POLICY}")
    assert meaning(load_manifest(policy)) == before
    policy.write_text(POLICY.replace("A", "B"))
    assert meaning(load_manifest(policy)) != before


@pytest.mark.parametrize("text", ["", "{", "agent: a\nagent: b\n", "\0", "- 1\n", "x" * (2 << 20)])
def test_whatever_is_in_the_file_is_refused_with_one_line(policy: Path, text: str) -> None:
    source = PolicySource(policy, must_be_accepted=False)
    policy.write_text(text)
    with pytest.raises(PolicyRefused) as refused:
        source.load()
    assert "\n" not in str(refused.value)
    assert "licet check" in refused.value.fix


def test_a_policy_that_must_be_accepted_is_refused_until_it_is(policy: Path) -> None:
    source = PolicySource(policy, must_be_accepted=True)
    with pytest.raises(PolicyRefused, match="has not been accepted: review and accept it with `licet trust"):
        source.load()
    trust(policy)
    assert source.load().agent == "a"
