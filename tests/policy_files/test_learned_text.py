"""Lines that are put into a policy file: where they go, and that nothing that a person wrote is lost."""

import pytest

from licet.policy_files.additions import Entry, NotKept, commented_out, with_entries
from licet.policy_files.draft import empty_text

READ, GRANTS = ("fs_reach", "read"), ("grants",)
A = Entry(READ, "${workdir}/a", "1 read")
KEY = Entry(GRANTS, "fs:read:~/.ssh", "1 read: keys", off=True)
HOST = Entry(GRANTS, "network:read:https://x.org:443", "1 request")

CASES: dict[str, tuple[str, list[Entry], str]] = {
    "a new file": (
        empty_text("git", ["Drafted."]),
        [A, Entry(READ, "/srv/b", "2 reads"), KEY],
        """\
# Drafted.
agent: git
capabilities:
  fs_reach:
    read:
      - "${workdir}/a"  # learned: 1 read
      - /srv/b  # learned: 2 reads
  # grants:
    # - "fs:read:~/.ssh"  # learned: 1 read: keys
""",
    ),
    "a list is there": (
        "agent: x\ncapabilities:\n  fs_reach:\n    read:\n    - /b  # mine\n    # why\n\n    write: []\n# end\n",
        [A],
        (
            "agent: x\ncapabilities:\n  fs_reach:\n    read:\n    - /b  # mine\n"
            '    - "${workdir}/a"  # learned: 1 read\n    # why\n\n    write: []\n# end\n'
        ),
    ),
    "a list on one line": (
        'agent: x\ncapabilities:\n  fs_reach: {read: ["/b"]} # mine\n  env: [A]\n',
        [A],
        (
            'agent: x\ncapabilities:\n  fs_reach:                # mine\n    read:\n      - "/b"\n'
            '      - "${workdir}/a"  # learned: 1 read\n  env: [A]\n'
        ),
    ),
    "an empty list": (
        "agent: x\ncapabilities:\n  fs_reach:\n    read: []  # none yet\n",
        [A],
        'agent: x\ncapabilities:\n  fs_reach:\n    read:  # none yet\n      - "${workdir}/a"  # learned: 1 read\n',
    ),
    "no capabilities": (
        "agent: x\nversion: '1'",
        [A],
        "agent: x\nversion: '1'\ncapabilities:\n  fs_reach:\n    read:\n      - \"${workdir}/a\"  # learned: 1 read\n",
    ),
    "empty capabilities": (
        "agent: x\ncapabilities:\nbundles: {}\n",
        [A],
        'agent: x\ncapabilities:\n  fs_reach:\n    read:\n      - "${workdir}/a"  # learned: 1 read\nbundles: {}\n',
    ),
    "a comment in a list": (
        "agent: x\ncapabilities:\n  grants:\n    - env:read:A\n",
        [HOST, KEY],
        (
            "agent: x\ncapabilities:\n  grants:\n    - env:read:A\n"
            '    - "network:read:https://x.org:443"  # learned: 1 request\n'
            '    # - "fs:read:~/.ssh"  # learned: 1 read: keys\n'
        ),
    ),
    "a mapping of tools": (
        "agent: x\ncapabilities:\n  tools:\n    a: {sandbox: native}\n",
        [Entry(("tools",), "b", "1 call"), Entry(("tools",), "c", "1 call: its class is full", off=True)],
        (
            "agent: x\ncapabilities:\n  tools:\n    a: {sandbox: native}\n    b: {}  # learned: 1 call\n"
            "    # c: {}  # learned: 1 call: its class is full\n"
        ),
    ),
    "texts that are not plain": (
        "agent: x\ncapabilities: {}\n",
        [Entry(("env",), name, "why") for name in ("PATH", "no", "1", 'a"b\\')],
        (
            'agent: x\ncapabilities:\n  env:\n    - PATH  # learned: why\n    - "no"  # learned: why\n'
            '    - "1"  # learned: why\n    - "a\\"b\\\\"  # learned: why\n'
        ),
    ),
}


@pytest.mark.parametrize(("before", "entries", "after"), CASES.values(), ids=CASES)
def test_entries_are_added(before: str, entries: list[Entry], after: str) -> None:
    assert with_entries(before, entries) == after


def test_a_commented_key_stays_after_what_is_added_later() -> None:
    first = with_entries(empty_text("x", []), [A, KEY])
    second = with_entries(first, [HOST, Entry(READ, "/srv/b", "2 reads")])
    assert second.index("/srv/b") < second.index("  grants:\n") < second.index("  # grants:\n")


@pytest.mark.parametrize("case", CASES)
def test_comments_are_recognised_again(case: str) -> None:
    before, entries, after = CASES[case]
    assert {entry.text for entry in entries if entry.off} <= commented_out(after)
    assert not commented_out(before) & {entry.text for entry in entries}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("agent: x\ncapabilities: {}\n", "agent: x\ncapabilities:\n  max_side_effect_class: full  # learned: why\n"),
        (
            "agent: x\ncapabilities:\n  max_side_effect_class: read_only  # learned: before\n",
            "agent: x\ncapabilities:\n  max_side_effect_class: full  # learned: why\n",
        ),
        (
            "agent: x\ncapabilities:\n  max_side_effect_class: read_only  # mine\n",
            "agent: x\ncapabilities:\n  max_side_effect_class: read_only  # mine\n",
        ),
    ],
)
def test_only_a_learned_class_is_raised(before: str, after: str) -> None:
    assert with_entries(before, [], "full", "why") == after


@pytest.mark.parametrize("fs_reach", ["all", "[/a]"])
def test_another_kind_of_value_is_left_alone(fs_reach: str) -> None:
    with pytest.raises(NotKept):
        with_entries(f"agent: x\ncapabilities:\n  fs_reach: {fs_reach}\n", [A])
