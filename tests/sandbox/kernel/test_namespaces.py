"""What is there in namespaces of one's own, and what is not."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from licet.sandbox import probe
from sandbox.walled import run

pytestmark = pytest.mark.skipif(not probe.support().namespaces, reason="user namespaces are not to be had here")

BEGIN = "from licet.sandbox.kernel import namespaces\n"


def inside(code: str, given: Any = None) -> Any:
    """Run the body of a function in a child that is alone in new namespaces."""
    body = "\n".join(f"    {line}" for line in code.strip().splitlines())
    return run(f"{BEGIN}\ndef inner():\n{body}\nnamespaces.enter()\nanswer = apart(inner)", given=given)


def tree(where: Path) -> str:
    for name in ("granted/sub", "granted/hidden", "foreign", "written"):
        (where / name).mkdir(parents=True)
    for name in ("granted/file", "granted/sub/file", "granted/hidden/file", "granted/secret", "foreign/file"):
        (where / name).write_text(name)
    (where / "link").symlink_to(where / "granted")
    (where / "way").symlink_to("granted")
    return str(where)


ROOT = "d = spec['given']\nnamespaces.private_root({}, {}{})\n"


@pytest.mark.who
def test_it_is_the_same_user_who_is_alone() -> None:
    code = "return [os.getuid(), os.getgid(), os.getpid(), attempt(lambda: os.kill(2, 0)), os.getppid()]"
    assert inside(code) == [os.getuid(), os.getgid(), 1, "ESRCH", 0]


def test_only_its_own_loopback_is_there() -> None:
    code = """
def own():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]):
        return True
def host():
    socket.create_connection(("127.0.0.1", spec["given"]))
names = [name for _, name in socket.if_nameindex()]
return ["lo" in names, any(name.startswith("e") for name in names), attempt(own), attempt(host)]
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert inside(code, port) == [True, False, True, "ECONNREFUSED"]


def test_what_is_not_granted_is_not_there(tmp_path: Path) -> None:
    code = (
        ROOT.format("[d + '/granted']", "[]", "")
        + """
return [open(d + "/granted/sub/file").read(), sorted(os.listdir(d)), os.path.exists(d + "/foreign"),
        sorted(os.listdir("/")), attempt(lambda: os.stat("/etc/passwd"))]
"""
    )
    top = str(tmp_path).split("/")[1]
    assert inside(code, tree(tmp_path)) == ["granted/sub/file", ["granted"], False, sorted({top, "dev"}), "ENOENT"]


def test_nothing_is_written_but_where_it_is_granted(tmp_path: Path) -> None:
    code = (
        ROOT.format("[d + '/granted']", "[d + '/written', d + '/granted/sub']", "")
        + """
def write(path):
    return attempt(lambda: open(path, "w").write("x"))
return [write(d + "/granted/new"), write(d + "/written/new"), write(d + "/granted/sub/new"), write(d + "/new"),
        write("/new"), attempt(lambda: os.chmod(d + "/granted/file", 0o777))]
"""
    )
    assert inside(code, tree(tmp_path)) == ["EROFS", 1, 1, "EROFS", "EROFS", "EROFS"]
    assert (tmp_path / "written" / "new").read_text() == "x"


def test_a_part_that_is_only_read_lies_within_one_that_is_written(tmp_path: Path) -> None:
    code = (
        ROOT.format("[d + '/granted/sub']", "[d + '/granted']", "")
        + """
return [attempt(lambda n=n: open(d + n, "w").write("x")) for n in ("/granted/new", "/granted/sub/new")]
"""
    )
    assert inside(code, tree(tmp_path)) == [1, "EROFS"]


def test_what_is_hidden_looks_empty(tmp_path: Path) -> None:
    # A link and what it leads to are hidden once.
    hide = ", hide=[d + '/granted/hidden', d + '/granted/secret', d + '/granted/to-secret', d + '/granted/missing']"
    code = (
        ROOT.format("[]", "[d + '/granted']", hide)
        + """
hardening.drop_capabilities()
return [attempt(lambda: open(d + "/granted/secret").read()), attempt(lambda: open(d + "/granted/hidden/file").read()),
        attempt(lambda: open(d + "/granted/secret", "w")), attempt(lambda: os.unlink(d + "/granted/secret")),
        attempt(lambda: os.rename(d + "/granted/hidden", d + "/granted/shown")), open(d + "/granted/file").read()]
"""
    )
    where = tree(tmp_path)
    (tmp_path / "granted" / "to-secret").symlink_to("secret")
    found = inside(code, where)
    assert found == ["EACCES", "EACCES", "EROFS", "EBUSY", "EBUSY", "granted/file"]


@pytest.mark.parametrize("name", ["link", "way"])
def test_links_lead_where_they_led(tmp_path: Path, name: str) -> None:
    code = (
        ROOT.format(f"[d + '/{name}/sub']", "[]", "")
        + f"""
return [open(d + "/{name}/sub/file").read(), os.path.islink(d + "/{name}"), os.path.exists(d + "/granted/file")]
"""
    )
    assert inside(code, tree(tmp_path)) == ["granted/sub/file", True, False]


def test_a_link_that_leads_in_circles_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    code = "return attempt(lambda: namespaces.private_root([spec['given'] + '/loop'], []))"
    assert inside(code, str(tmp_path)) == "ELOOP"


def test_scratch_is_bounded_and_disappears(tmp_path: Path) -> None:
    code = (
        ROOT.format("[]", "[]", ", scratch=(['/tmp'], 1 << 20)")
        + """
def fill():
    with open("/tmp/full", "wb", 0) as file:
        for _ in range(100):
            file.write(bytes(1 << 16))
return [open("/tmp/file", "w").write("x"), attempt(fill)]
"""
    )
    assert inside(code, tree(tmp_path)) == [1, "ENOSPC"]
    assert not Path("/tmp/full").exists()


def test_a_relative_path_is_refused() -> None:
    assert inside("return attempt(lambda: namespaces.private_root(['usr'], []))") == "EINVAL"


def test_the_old_root_cannot_be_reached_from_the_new_one(tmp_path: Path) -> None:
    code = (
        ROOT.format("[d + '/granted']", "[]", ", proc=True")
        + """
os.chdir("../../../../../..")
mounts = [line.split()[1] for line in open("/proc/self/mounts")]
return [sorted(os.listdir(".")) == sorted(os.listdir("/")), "/etc" in mounts, mounts.count("/"),
        os.path.exists("/proc/1/root/etc")]
"""
    )
    assert inside(code, tree(tmp_path)) == [True, False, 1, False]


def test_devices_that_programs_expect_are_there_and_no_others(tmp_path: Path) -> None:
    code = (
        ROOT.format("[]", "[]", "")
        + """
return [sorted(os.listdir("/dev")), open("/dev/null", "w").write("x"), len(open("/dev/urandom", "rb", 0).read(4))]
"""
    )
    assert inside(code, tree(tmp_path)) == [["full", "null", "random", "tty", "urandom", "zero"], 1, 4]


@pytest.mark.parametrize("name", ["granted", "granted/file"])
@pytest.mark.parametrize("becomes", ["itself", "another file", "a link", "nothing"])
@pytest.mark.sampled(4)
def test_what_was_found_is_what_is_there_or_there_is_no_root(tmp_path: Path, name: str, becomes: str) -> None:
    where = tree(tmp_path)
    seen = (tmp_path / name).stat()
    if becomes != "itself":
        (tmp_path / name).rename(tmp_path / "moved")
    if becomes == "another file":
        (tmp_path / name).mkdir()
    elif becomes == "a link":
        (tmp_path / name).symlink_to(tmp_path / "foreign")
    code = """
d, name, device, number = spec["given"]
path = os.path.join(d, name)
made = attempt(lambda: (namespaces.private_root([], [], found={path: (device, number)}), None)[1])
return made or os.path.exists(path)
"""
    expected = {"itself": True, "nothing": "ENOENT"}.get(becomes, "ESTALE")
    assert inside(code, [where, name, seen.st_dev, seen.st_ino]) == expected
