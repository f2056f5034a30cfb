"""The list of policies that this user has accepted: what is on it, and when it is not used at all."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from licet import load_manifest
from licet.policy_files.trust import (
    TrustListError,
    accept,
    acceptance,
    accepted,
    accepted_files,
    accepted_lock,
    forget,
    trusted_paths,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "licet"


def answer(path: Path, digest: str = ONE, lock: str | None = "") -> str:
    return acceptance(path, digest, lock).answer


def put(path: Path, digest: str = ONE) -> None:
    accept(path, digest, {path.name: "agent: a\n"}, NOW)


def test_a_policy_is_trusted_by_its_real_path_and_its_digest(tmp_path: Path) -> None:
    policy = tmp_path / "real" / "licet.yaml"
    policy.parent.mkdir()
    (tmp_path / "linked").symlink_to("real")
    assert answer(policy, ONE) != "accepted"
    put(policy)
    assert answer(policy, ONE) == "accepted"
    assert answer(tmp_path / "linked" / "licet.yaml", ONE) == "accepted"
    assert answer(policy, TWO) != "accepted"
    assert answer(tmp_path / "licet.yaml", ONE) != "accepted"
    assert trusted_paths() == (str(policy),)


@pytest.mark.parametrize(
    ("digest", "lock", "before", "expected"),
    [
        (ONE, TWO, TWO, ("accepted", "", "")),
        (ONE, None, TWO, ("accepted", "", "")),
        (TWO, TWO, TWO, ("changed", "p.yaml has changed since it was accepted", "the change")),
        (ONE, ONE, TWO, ("changed", "licet.lock has changed since it was accepted", "what it says now")),
        (ONE, ONE, "", ("changed", "licet.lock was not there when p.yaml was accepted", "what it says now")),
        (
            ONE,
            "",
            TWO,
            ("changed", "licet.lock was accepted together with p.yaml, and is not there any more", "what it says now"),
        ),
    ],
)
def test_whether_a_policy_is_accepted_has_three_answers(
    digest: str,
    lock: str | None,
    before: str,
    expected: tuple[str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    unknown = acceptance("p.yaml", digest, lock)
    assert (unknown.answer, unknown.why, unknown.to_review) == ("unknown", "p.yaml has not been accepted", "it")
    accept("p.yaml", ONE, {}, NOW, lock=before)
    found = acceptance("p.yaml", digest, lock)
    assert (found.answer, found.why, found.to_review) == expected


def test_an_acceptance_replaces_the_previous_one_of_the_same_path(tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path / name)
    put(tmp_path / "a", TWO)
    assert (answer(tmp_path / "a", ONE), answer(tmp_path / "a", TWO)) == ("changed", "accepted")
    assert answer(tmp_path / "b", ONE) == "accepted"
    assert forget(tmp_path / "a")
    assert not forget(tmp_path / "a")
    assert list(accepted()) == [str(tmp_path / "b")]


def test_a_copy_of_what_was_accepted_is_kept(tmp_path: Path) -> None:
    policy = tmp_path / "licet.yaml"
    assert accepted_files(policy) == {}
    accept(policy, ONE, {"licet.yaml": "agent: ä\n"}, NOW)
    assert accepted_files(policy) == {"licet.yaml": "agent: ä\n"}
    forget(policy)
    assert accepted_files(policy) == {}


def test_a_policy_is_trusted_with_the_lock_that_it_was_accepted_with(tmp_path: Path) -> None:
    policy = tmp_path / "licet.yaml"
    accept(policy, ONE, {}, NOW, lock=TWO, lock_text="{}\n")
    assert answer(policy, ONE, TWO) == "accepted"
    assert answer(policy, ONE, ONE) != "accepted"
    assert answer(policy, ONE) != "accepted"  # without a lock
    assert accepted_lock(policy) == "{}\n"
    accept(policy, ONE, {}, NOW)
    assert (answer(policy, ONE), answer(policy, ONE, TWO), accepted_lock(policy)) == ("accepted", "changed", "")


@pytest.mark.parametrize("lock", ["", ONE])
def test_an_entry_of_an_older_licet_trusts_nothing_and_stays_on_the_list(
    lock: str, tmp_path: Path, state: Path
) -> None:
    policy = tmp_path / "licet.yaml"
    put(tmp_path / "other")
    older = {"format": 1, "accepted": {str(policy): {"digest": ONE, "when": "2026-01-31T12:00:00+00:00"}}}
    (state / "trust").write_text(json.dumps(older))
    assert answer(policy, ONE, lock) != "accepted"
    assert accepted()[str(policy)].lock is None
    put(tmp_path / "other")
    assert answer(policy, ONE, lock) != "accepted"
    assert accepted()[str(policy)].lock is None  # also once the list is written in the new format
    accept(policy, ONE, {}, NOW, lock=lock)
    assert answer(policy, ONE, lock) == "accepted"


def test_the_files_are_canonical_json_and_private_to_the_user(tmp_path: Path, state: Path) -> None:
    os.umask(0o000)
    try:
        put(tmp_path / "b")
        put(tmp_path / "a")
    finally:
        os.umask(0o022)
    entry = {"digest": ONE, "lock": "", "when": "2026-01-31T12:00:00+00:00"}
    content = {"accepted": {str(tmp_path / name): entry for name in "ab"}, "format": 2}
    assert (state / "trust").read_text() == json.dumps(content, separators=(",", ":"))
    for path in (state, *state.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    assert not [path for path in state.rglob("*") if path.suffix not in (".json", ".lock", "")]  # no drafts


DAMAGED = {
    "empty": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"format": 1, "accepted": {"\xff": 1}}',
    "a list": b"[]",
    "no format": b'{"accepted": {}}',
    "another format": b'{"format": 3, "accepted": {}}',
    "a format that is no number": b'{"format": true, "accepted": {}}',
    "a lock that is no text": b'{"format": 2, "accepted": {"/a": {"digest": "sha256:1", "when": "", "lock": 1}}}',
    "no entries": b'{"format": 1}',
    "an entry that is none": b'{"format": 1, "accepted": {"/a": "sha256:1"}}',
    "an entry without a digest": b'{"format": 1, "accepted": {"/a": {"when": "now"}}}',
    "a digest that is no text": b'{"format": 1, "accepted": {"/a": {"digest": 1, "when": ""}}}',
    "a relative path": b'{"format": 1, "accepted": {"a": {"digest": "sha256:1", "when": ""}}}',
    "very deep": b"[" * 100_000,
    "very long": b" " * (17 << 20) + b"{}",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_list_is_an_error_and_trusts_nothing(content: bytes, tmp_path: Path, state: Path) -> None:
    put(tmp_path / "a")
    (state / "trust").write_bytes(content)
    for ask in (accepted, lambda: answer(tmp_path / "a", ONE), lambda: put(tmp_path / "b")):
        with pytest.raises(TrustListError, match=r"trust"):
            ask()
    assert trusted_paths() == ()
    assert (state / "trust").read_bytes() == content  # nobody writes over what they cannot read


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_list_that_others_can_write_is_not_used(mode: int, tmp_path: Path, state: Path) -> None:
    put(tmp_path / "a")
    (state / "trust").chmod(mode)
    with pytest.raises(TrustListError, match="can be changed by others: run `chmod 600"):
        answer(tmp_path / "a", ONE)


def test_a_list_in_a_world_writable_directory_is_not_used(tmp_path: Path, state: Path) -> None:
    put(tmp_path / "a")
    state.chmod(0o777)
    with pytest.raises(TrustListError, match="can be changed by others: run `chmod 700"):
        answer(tmp_path / "a", ONE)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_list_of_another_user_is_not_used(tmp_path: Path, state: Path) -> None:
    put(tmp_path / "a")
    os.chown(state / "trust", 12345, -1)
    with pytest.raises(TrustListError, match="can be changed by others"):
        answer(tmp_path / "a", ONE)


def test_a_list_that_is_a_link_or_a_pipe_is_not_used(tmp_path: Path, state: Path) -> None:
    put(tmp_path / "a")
    (state / "trust").rename(state / "elsewhere")
    (state / "trust").symlink_to("elsewhere")
    with pytest.raises(TrustListError, match="link"):
        answer(tmp_path / "a", ONE)
    (state / "trust").unlink()
    os.mkfifo(state / "trust")
    with pytest.raises(TrustListError, match="pipe"):
        answer(tmp_path / "a", ONE)


def test_a_replaced_copy_is_not_used(tmp_path: Path, state: Path) -> None:
    policy = tmp_path / "licet.yaml"
    put(policy)
    (copy,) = (state / "trusted").iterdir()
    copy.write_text(json.dumps({**json.loads(copy.read_text()), "digest": TWO}))
    assert accepted_files(policy) == {}


def test_concurrent_processes_lose_no_acceptance(tmp_path: Path) -> None:
    program = (
        "import sys; from datetime import UTC, datetime; from licet.policy_files.trust import accept\n"
        "for n in range(10): accept(f'{sys.argv[1]}/{n}', 'sha256:1', {}, datetime.now(UTC))"
    )
    started = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path / name)]) for name in "abcd"]
    assert [process.wait() for process in started] == [0] * 4
    assert len(accepted()) == 40


def test_without_a_home_there_is_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "")
    assert accepted() == {}
    assert answer(tmp_path, ONE) != "accepted"


def test_no_tool_of_any_manifest_may_write_a_trusted_policy(tmp_path: Path) -> None:
    other = tmp_path / "other" / ".licet" / "licet.yaml"
    put(other)
    other.parent.parent.mkdir()
    manifest = tmp_path / "one" / "m.yaml"
    manifest.parent.mkdir()
    manifest.write_text("agent: a\ncapabilities: {grants: ['fs:*:*'], max_side_effect_class: full}\n")
    ceiling = load_manifest(manifest).ceiling
    for path in (other, other.parent / "new.yaml", other.parent):
        assert not ceiling.has(f"fs:write:{path}")
    assert ceiling.has(f"fs:write:{other.parent.parent}/licet.yaml")
