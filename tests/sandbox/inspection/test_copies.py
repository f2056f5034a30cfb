"""Files that a program sees with other contents than the host has: they are read-only, and the host stays as it is."""

from pathlib import Path
from typing import Any

import pytest

from licet.sandbox import probe
from sandbox.kernel.test_namespaces import inside, tree

pytestmark = pytest.mark.skipif(not probe.support().namespaces, reason="user namespaces are not to be had here")

BEGIN = """
d = spec["given"]
Copy = namespaces.Copy
def read(path):
    return attempt(lambda: open(path).read())
def changes(path):
    # every way to change a file that a program could try
    def linked():
        os.link(path, os.path.dirname(path) + "/linked")
    return [attempt(lambda: open(path, "w")), attempt(lambda: os.chmod(path, 0o777)), attempt(lambda: os.unlink(path)),
            attempt(lambda: os.rename(path, path + "-moved")), attempt(linked)]
"""


def seen(where: Path, root: str, code: str, given: Any = None) -> Any:
    return inside(f"{BEGIN}\nnamespaces.private_root({root})\nhardening.drop_capabilities()\n{code}", tree(where))


@pytest.mark.who
def test_a_copy_is_in_place_of_a_file_that_may_be_written(tmp_path: Path) -> None:
    root = "[], [d + '/granted'], copies=[Copy(d + '/granted/secret', b'stand-in', 0o400)]"
    found = seen(tmp_path, root, "p = d + '/granted/secret'\nreturn [read(p), oct(os.stat(p).st_mode), *changes(p)]")
    assert found[:2] == ["stand-in", "0o100400"]
    assert set(found[2:]) <= {"EROFS", "EACCES", "EBUSY", "EXDEV"}
    assert (tmp_path / "granted/secret").read_text() == "granted/secret"
    assert sorted(path.name for path in (tmp_path / "granted").iterdir()) == ["file", "hidden", "secret", "sub"]


def test_a_copy_is_there_where_nothing_of_the_host_is_shown(tmp_path: Path) -> None:
    root = "[d + '/granted'], [], copies=[Copy(d + '/foreign/file', b'stand-in')]"
    found = seen(tmp_path, root, "p = d + '/foreign/file'\nreturn [read(p), os.listdir(d + '/foreign'), *changes(p)]")
    assert found[:2] == ["stand-in", ["file"]]
    assert set(found[2:]) <= {"EROFS", "EBUSY", "EXDEV", "EACCES"}


@pytest.mark.parametrize(
    "hide", ["/granted/hidden/file", "/granted/hidden", "/granted", "/granted', d + '/granted/hidden"]
)
def test_a_copy_is_all_that_is_shown_of_a_closed_place(tmp_path: Path, hide: str) -> None:
    root = f"[], [d + '/granted'], hide=[d + '{hide}'], copies=[Copy(d + '/granted/hidden/file', b'stand-in')]"
    code = "p = d + '/granted/hidden/file'\nreturn [read(p), read(d + '/granted/secret'), *changes(p)]"
    found = seen(tmp_path, root, code)
    shown = hide.startswith("/granted/hidden")
    assert found[:2] == ["stand-in", "granted/secret" if shown else "ENOENT"]
    assert set(found[2:]) <= {"EROFS", "EBUSY", "EXDEV", "EACCES"}


def test_a_new_name_comes_to_a_directory_that_is_only_read(tmp_path: Path) -> None:
    (tmp_path / "granted").mkdir()
    (tmp_path / "granted" / "relative").symlink_to("sub/../file")
    root = "[d + '/granted'], [], copies=[Copy(d + '/granted/new', b'n'), Copy(d + '/granted/file', b'f')]"
    root += ", hide=[d + '/granted/secret']"
    code = """
p = d + "/granted"
return [sorted(os.listdir(p)), read(p + "/new"), read(p + "/file"), read(p + "/relative"), read(p + "/sub/file"),
        read(p + "/secret"), attempt(lambda: open(p + "/other", "w")), *changes(p + "/new")]
"""
    (tmp_path / "written").mkdir()
    for name in ("sub", "hidden"):
        (tmp_path / "granted" / name).mkdir()
    for name in ("file", "sub/file", "hidden/file", "secret"):
        (tmp_path / "granted" / name).write_text(f"granted/{name}")
    found = inside(f"{BEGIN}\nnamespaces.private_root({root})\nhardening.drop_capabilities()\n{code}", str(tmp_path))
    assert found[0] == ["file", "hidden", "new", "relative", "secret", "sub"]
    assert found[1:6] == ["n", "f", "f", "granted/sub/file", "EACCES"]
    assert set(found[6:]) <= {"EROFS", "EBUSY", "EXDEV", "EACCES"}
    assert not (tmp_path / "granted" / "new").exists()


def test_no_name_is_made_on_the_host(tmp_path: Path) -> None:
    code = (
        "return attempt(lambda: namespaces.private_root([], [d + '/granted'], copies=[Copy(d + '/granted/new', b'')]))"
    )
    assert inside(f"{BEGIN}\n{code}", tree(tmp_path)) == "ENOENT"
    assert not (tmp_path / "granted" / "new").exists()


def test_links_to_a_copy_are_kept(tmp_path: Path) -> None:
    root = "[], [], copies=[Copy(d + '/granted/secret', b'stand-in')], names=[d + '/link/secret', d + '/way/secret']"
    code = "return [read(d + n + '/secret') for n in ('/link', '/way', '/granted')]"
    assert seen(tmp_path, root, code) == ["stand-in"] * 3
