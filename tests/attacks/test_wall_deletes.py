"""Programs that may remove and rename files, because `approvals.delete` says so, try it where they may not."""

import os
from pathlib import Path

import pytest

from attacks.walled_programs import CANARY, Programs, both_kinds, needs_namespaces

ATTACKS = {
    "a rename out of the tree": "mv {in}/file {out}/stolen",
    "a rename into the tree": "mv {out}/secret {in}/stolen",
    "a delete beside the tree": "rm -f {out}/secret",
    "a delete through a link": "rm -f {in}/link/secret",
    "a rename through a link": "mv {in}/link/secret {in}/stolen",
    "a delete through dots": "rm -f {in}/../out/secret",
    "a delete of the tree itself": "rm -rf {in}/sub/.. ; mv {in} {in}-away",
    "a rename over a policy file": "echo planted > {in}/sub/new && mv -f {in}/sub/new {in}/.licet/licet.yaml",
    "a rename over the policy directory": "mkdir {in}/f && mv -T {in}/.licet {in}/w && mv -T {in}/f {in}/.licet",
    "a delete of a policy file": "rm -f {in}/.licet/licet.yaml",
    "a delete of a denied file": "rm -f {in}/keep/denied",
    "a rename of a denied file": "mv {in}/keep/denied {in}/keep/moved",
    "a rename of a directory on the way to a denied file": "mv {in}/keep {in}/gone",
    "an exchange with a denied file": "echo planted > {in}/keep/x && mv --exchange {in}/keep/x {in}/keep/denied"
    " || mv -f {in}/keep/x {in}/keep/denied",
    "a hard link that is then renamed": "ln {out}/secret {in}/hard && mv {in}/hard {in}/stolen",
    "a link in the place of a directory": "rm -rf {in}/sub && ln -s {out} {in}/sub && rm -f {in}/sub/secret",
}


def world(where: Path) -> dict[str, Path]:
    """A tree in `fs_reach.write` with policy and a denied file, one that only `grants` allow, and one outside."""
    places = {"in": where / "in", "out": where / "out", "granted": where / "granted"}
    for name in ("in/sub", "in/keep", "in/.licet", "out", "granted"):
        (where / name).mkdir(parents=True)
    for name in ("in/file", "in/keep/denied", "in/.licet/licet.yaml", "granted/file"):
        (where / name).write_text("kept")
    (where / "out" / "secret").write_text(CANARY)
    (where / "in" / "link").symlink_to(where / "out")
    return places


def programs(walls: str, places: dict[str, Path], deletes: str) -> Programs:
    """The programs of a `full` call whose manifest allows `in` by `fs_reach.write`, and `granted` by `grants`."""
    own, other = places["in"], places["granted"]
    closed = (f"{own}/.licet", f"{own}/keep/denied")
    deny = [f"fs:{action}:{path}" for path in closed for action in ("write", "delete")]
    rules = [*(f"fs:{action}:{own}" for action in ("read", "write", "delete")), f"fs:*:{other}"]
    return Programs(walls, rules, deny=deny, effect="full", deletes=deletes)


def state(where: Path) -> dict[str, str]:
    """What must stay: everything that is closed, denied, or outside."""
    kept = ("in/.licet/licet.yaml", "in/keep/denied", "out/secret")
    found = {name: (where / name).read_text() if (where / name).is_file() else "gone" for name in kept}
    found["out"] = " ".join(sorted(os.listdir(where / "out")))
    found["in"] = str((where / "in").is_dir())
    stolen = where / "in" / "stolen"
    found["stolen"] = stolen.read_text() if stolen.is_file() else ""
    return found


@both_kinds
@pytest.mark.parametrize("deletes", ["session", "manifest"])
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.sampled(9)
def test_deletes_and_renames_stay_inside(kind: str, attack: str, deletes: str, tmp_path: Path) -> None:
    for walls in ("open", kind):
        where = tmp_path.resolve() / walls
        places = world(where)
        before = state(where)
        line = ATTACKS[attack].format(**places)
        programs(walls, places, deletes).run("sh", "-c", line, cwd=str(places["in"]))
        assert (state(where) == before) is (walls == kind), f"{walls}: {attack}"


WORK = "cd {at} && echo a > x && mv x y && echo b > z && mv -f z y && mkdir d && rmdir d && cat y"


@both_kinds
@pytest.mark.parametrize(("deletes", "works"), [("call", False), ("session", True), ("manifest", True)])
@pytest.mark.parametrize("by", ["fs_reach", "grants"])
def test_inside_a_program_removes_and_renames_if_that_was_approved(
    kind: str, deletes: str, works: bool, by: str, tmp_path: Path
) -> None:
    places = world(tmp_path.resolve() / "here")
    at = {"fs_reach": places["in"] / "sub", "grants": places["granted"]}[by]
    ended = programs(kind, places, deletes).run("sh", "-c", WORK.format(at=at))
    assert (ended.stdout_bytes == b"b\n") is works
    assert (b"ermission denied" in ended.stderr_bytes) is not works


@needs_namespaces
def test_a_rename_across_a_mount_does_not_leave_the_tree(tmp_path: Path) -> None:
    where = tmp_path.resolve() / "here"
    places = world(where)
    (where / "scratch").mkdir()
    # Without walls a directory on the same disk; behind them the scratch of the program, which is a mount of its own.
    for walls, target, said in (("open", f"'{where}/scratch'", "moved"), ("namespaces", "os.environ['TMPDIR']", "OSE")):
        (places["in"] / "file").write_text("kept")
        code = f"os.rename('{places['in']}/file', {target} + '/file'); print('moved')"
        assert programs(walls, places, "manifest").python(code).startswith(said)
    assert (places["in"] / "file").read_text() == "kept"
