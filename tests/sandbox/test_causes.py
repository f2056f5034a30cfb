"""What a machine without namespaces is told: each cause that /proc shows, and what helps."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from licet.sandbox.probe import Attempted, Machine, Support, causes

KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
FREE: dict[str, str] = {f"sys/user/max_{kind}_namespaces": "15000" for kind in KINDS} | {
    "sys/kernel/unprivileged_userns_clone": "1",
    "sys/kernel/apparmor_restrict_unprivileged_userns": "0",
    "self/status": "Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n",
    "self/mountinfo": "24 1 0:23 / / rw - ext4 /dev/x rw\n25 24 0:24 / /proc rw - proc proc rw\n",
    **{f"self/ns/{kind}": "" for kind in KINDS},
}
REFUSED = "namespaces: cannot be built: [Errno 1] unshare: Operation not permitted"


def machine(where: Path, files: dict[str, str | None], user: int = 1000) -> Machine:
    """A machine whose /proc has these files; None takes one away."""
    for name, text in {**FREE, **files}.items():
        if text is not None:
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            (where / name).write_text(text)
    return replace(Machine.here(str(where)), user=user)


def limited(kind: str) -> tuple[dict[str, str | None], list[str]]:
    setting = f"user.max_{kind}_namespaces"
    return {f"sys/{setting.replace('.', '/')}": "0\n"}, [f"{kind} namespaces are limited to none", f"sysctl {setting}="]


CASES: dict[str, tuple[dict[str, str | None], list[str]]] = {
    **{f"no {kind} namespaces allowed": limited(kind) for kind in KINDS},
    "no user namespaces for ordinary users": (
        {"sys/kernel/unprivileged_userns_clone": "0\n"},
        ["`kernel.unprivileged_userns_clone` is 0", "`sysctl kernel.unprivileged_userns_clone=1`"],
    ),
    "AppArmor": (
        {"sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
        ["AppArmor", "an AppArmor profile with `userns,`", "`sudo licet doctor --fix`"],
    ),
    "a container's filter": ({"self/status": "Seccomp:\t2\n"}, ["a seccomp filter is around", "`unshare`, `mount`"]),
    "a container that covers /proc": (
        {"self/mountinfo": f"{FREE['self/mountinfo']}26 25 0:25 / /proc/kcore rw - tmpfs tmpfs rw\n"},
        ["parts of /proc are covered here (/proc/kcore)", "unmask=ALL", "procMount: Unmasked"],
    ),
    "a chroot": ({"self/mountinfo": "25 24 0:24 / /proc rw - proc proc rw\n"}, ["in a chroot", "pivot_root"]),
    "a kernel without user namespaces": ({"self/ns/user": None}, ["no user namespaces: use one", "CONFIG_USER_NS"]),
    "a kernel without network namespaces": ({"self/ns/net": None}, ["no net namespaces", "CONFIG_NET_NS"]),
    "no /proc": (dict.fromkeys(FREE), ["/proc cannot be read here"]),
}


@pytest.mark.parametrize(("files", "said"), CASES.values(), ids=CASES.keys())
def test_each_cause_is_named_with_what_helps(tmp_path: Path, files: dict[str, str | None], said: list[str]) -> None:
    (line,) = causes(machine(tmp_path, files), [REFUSED])
    assert [text for text in said if text not in line] == []


def test_all_causes_are_named_at_once(tmp_path: Path) -> None:
    files: dict[str, str | None] = {}
    for name in CASES:
        files |= CASES[name][0] if name not in ("a chroot", "no /proc") and "a kernel" not in name else {}
    lines = causes(machine(tmp_path, files), [REFUSED])
    assert len(lines) == len(KINDS) + 4


def test_what_is_kept_from_ordinary_users_is_no_cause_for_root(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "sys/kernel/unprivileged_userns_clone": "0",
        "sys/kernel/apparmor_restrict_unprivileged_userns": "1",
    }
    (line,) = causes(machine(tmp_path, files, user=0), [REFUSED])
    assert "no setting explains it" in line


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (REFUSED, "no setting explains it"),
        ("cannot be built: [Errno 28] unshare: No space left on device", "as many namespaces as this user may have"),
        ("cannot be built: [Errno 38] mount_setattr: Function not implemented", "Linux 5.12"),
    ],
)
def test_where_no_setting_explains_it_the_kernel_s_answer_does(tmp_path: Path, outcome: str, said: str) -> None:
    (line,) = causes(machine(tmp_path, {}), [outcome])
    assert said in line


def test_a_machine_without_namespaces_says_what_was_tried_and_why_it_failed(tmp_path: Path) -> None:
    findings = (
        Attempted("namespaces", "reach the network of the host", "cannot be built: [Errno 1] unshare: not permitted"),
        Attempted("private root", "look at a file", "holds"),
    )
    found = Support(7, findings).without_namespaces(machine(tmp_path, {"self/status": "Seccomp:\t2\n"}))
    assert found[0].startswith("namespaces: cannot be built: [Errno 1] unshare: not permitted (tried to reach")
    assert [line.partition(",")[0] for line in found[1:]] == ["a seccomp filter is around this process"]


def test_a_machine_with_namespaces_has_nothing_to_say() -> None:
    findings = (Attempted("namespaces", "a", "holds"), Attempted("private root", "b", "holds"))
    assert Support(7, findings).without_namespaces() == ()


def test_this_machine_can_be_looked_at() -> None:
    here = Machine.here()
    assert (here.kinds >= {"user", "mnt"}, "/proc" in here.mounts) == (True, True)
