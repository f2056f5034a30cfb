"""Files that a tool was not granted: read, write, remove, list, take a path around the walls."""

import ctypes
import os
import struct
from pathlib import Path

from attacks.behind_walls import Outside, raw, scratch
from licet import SyncContext


def below_a_held_directory(secret: str) -> str:
    """A tool takes hold of a directory without opening it, and opens what is below."""
    held = os.open(os.path.dirname(secret), os.O_PATH | os.O_DIRECTORY)
    return os.read(os.open(os.path.basename(secret), os.O_RDONLY, dir_fd=held), 100).decode()


def test_below_a_held_directory(outside: Outside) -> None:
    outside.shows(below_a_held_directory)


def beside_its_source() -> str:
    """A tool reads what lies beside its own source file: `.env`, policy, other tools."""
    with open(os.path.join(os.path.dirname(__file__), "nets.py"), encoding="utf-8") as file:
        return file.read()


def test_beside_its_source(outside: Outside) -> None:
    outside.shows(beside_its_source, lambda text: text and "import" in text)


def change_directory_and_read(secret: str) -> str:
    """A tool goes to a directory, which no wall forbids, and opens by a name alone."""
    os.chdir(os.path.dirname(secret))
    with open(os.path.basename(secret), encoding="utf-8") as file:
        return file.read()


def test_change_directory_and_read(outside: Outside) -> None:
    outside.shows(change_directory_and_read)


def delete_a_file(target: str) -> None:
    """A tool removes a file."""
    os.unlink(target)


def test_delete_a_file(outside: Outside) -> None:
    outside.shows(delete_a_file, lambda _: outside.changed)


def delete_what_may_be_written(granted: str) -> None:
    """A tool that may write to a directory, and not delete, deletes there."""
    os.unlink(f"{granted}/file")


def test_delete_what_may_be_written(outside: Outside) -> None:
    outside.shows(delete_what_may_be_written, lambda _: not os.path.exists(f"{outside.granted}/file"))


def dotdot_from_a_granted_directory(secret: str, granted: str) -> str:
    """A tool climbs out of a directory that it was granted."""
    try:
        start = os.open(granted, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # at `restricted` there is scratch alone
        start = os.open(scratch(), os.O_RDONLY | os.O_DIRECTORY)
    return os.read(os.open("../" * 40 + secret[1:], os.O_RDONLY, dir_fd=start), 100).decode()


def test_dotdot_from_a_granted_directory(outside: Outside) -> None:
    outside.shows(dotdot_from_a_granted_directory)


def exchange_two_files(target: str) -> None:
    """A tool exchanges a file of its own with another (`RENAME_EXCHANGE`): neither is removed, neither is made."""
    with open(scratch("mine"), "w", encoding="utf-8") as file:
        file.write("after")
    raw("renameat2", -100, scratch("mine"), -100, target, 2)


def test_exchange_two_files(outside: Outside) -> None:
    outside.shows(exchange_two_files, lambda _: outside.changed, refused="PermissionError|cross-device link")


def file_handle(secret: str, place: str) -> str:
    """A tool opens a file by the kernel's number for it, past every directory on the way."""
    handle = ctypes.create_string_buffer((128).to_bytes(4, "little"), 136)
    raw("name_to_handle_at", -100, secret, handle, ctypes.create_string_buffer(8), 0)
    mount = os.open(place, os.O_RDONLY)
    return os.read(raw("open_by_handle_at", mount, handle, os.O_RDONLY), 100).decode()


def test_file_handle(outside: Outside) -> None:
    outside.shows(file_handle, root=True)


def list_a_directory(secret: str) -> list[str]:
    """A tool lists a directory."""
    return os.listdir(os.path.dirname(secret))


def test_list_a_directory(outside: Outside) -> None:
    outside.shows(list_a_directory, lambda names: names and "secret" in names)


def list_by_getdents() -> str:
    """A tool lists the root of the machine without a library: by a held directory and `getdents64`."""
    names = ctypes.create_string_buffer(65536)
    raw("getdents64", raw("openat", -100, "/", os.O_RDONLY | os.O_DIRECTORY, 0), names, 65536)
    return names.raw.decode("latin-1")


def test_list_by_getdents(outside: Outside) -> None:
    outside.shows(list_by_getdents, lambda names: names and "etc\0" in names)


def make_a_directory(target: str) -> None:
    """A tool makes a directory outside of its scratch directory."""
    os.mkdir(f"{target}.d")


def test_make_a_directory(outside: Outside) -> None:
    outside.shows(make_a_directory, lambda _: os.path.exists(f"{outside.target}.d"))


def make_a_file(target: str) -> None:
    """A tool leaves a new file outside of its scratch directory."""
    with open(f"{target}.new", "w", encoding="utf-8") as file:
        file.write("here")


def test_make_a_file(outside: Outside) -> None:
    outside.shows(make_a_file, lambda _: os.path.exists(f"{outside.target}.new"))


def openat2(secret: str) -> str:
    """A tool opens a file by the newest call for it, which older lists of calls leave out."""
    file = raw("openat2", -100, secret, struct.pack("=QQQ", os.O_RDONLY, 0, 0), 24)
    return os.read(file, 100).decode()


def test_openat2(outside: Outside) -> None:
    outside.shows(openat2, refused="not implemented")


def plant_a_link(target: str) -> None:
    """A tool plants a link where somebody else will write."""
    os.symlink("/etc/passwd", f"{target}.log")


def test_plant_a_link(outside: Outside) -> None:
    outside.shows(plant_a_link, lambda _: os.path.lexists(f"{outside.target}.log"))


def plant_a_pipe(granted: str) -> None:
    """A tool makes a pipe with a name where the host may come by, which then waits forever."""
    os.mkfifo(f"{granted}/pipe")


def test_plant_a_pipe(outside: Outside) -> None:
    outside.shows(plant_a_pipe, lambda _: os.path.exists(f"{outside.granted}/pipe"))


def read_a_file(secret: str) -> str:
    """A tool opens a file that nobody granted."""
    with open(secret, encoding="utf-8") as file:
        return file.read()


def test_read_a_file(outside: Outside) -> None:
    outside.shows(read_a_file)


def reopen_a_path(secret: str) -> str:
    """A tool takes hold of a file without opening it (`O_PATH`, which no wall forbids), and opens what it holds."""
    held = os.open(secret, os.O_PATH)
    with open(f"/proc/self/fd/{held}", encoding="utf-8") as file:
        return file.read()


def test_reopen_a_path(outside: Outside) -> None:
    outside.shows(reopen_a_path)


def replace_a_file(target: str) -> None:
    """A tool puts a file of its own in the place of another."""
    with open(scratch("mine"), "w", encoding="utf-8") as file:
        file.write("after")
    os.replace(scratch("mine"), target)


def test_replace_a_file(outside: Outside) -> None:
    outside.shows(replace_a_file, lambda _: outside.changed, refused="PermissionError|cross-device link")


def truncate_a_file(target: str) -> None:
    """A tool cuts a file to nothing without opening it."""
    os.truncate(target, 0)


def test_truncate_a_file(outside: Outside) -> None:
    outside.shows(truncate_a_file, lambda _: outside.changed)


def truncate_while_reading(path: str) -> None:
    """A tool cuts a file that it may read to nothing by opening it for reading (`O_TRUNC`)."""
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))


def test_truncate_while_reading(outside: Outside) -> None:
    path = Path(outside.place, "readable")
    path.write_text("before")
    outside.shows(
        truncate_while_reading, lambda _: path.read_text() != "before", needs=[f"fs:read:{path}"], path=str(path)
    )


def write_a_file(target: str) -> None:
    """A tool writes to a file that nobody granted."""
    with open(target, "a", encoding="utf-8") as file:
        file.write("after")


def test_write_a_file(outside: Outside) -> None:
    outside.shows(write_a_file, lambda _: outside.changed)


def write_what_may_be_read(path: str) -> None:
    """A tool writes to a file that it may only read, by opening again what it has open."""
    reading = os.open(path, os.O_RDONLY)
    os.write(os.open(f"/proc/self/fd/{reading}", os.O_RDWR), b"after")


def test_write_what_may_be_read(outside: Outside) -> None:
    path = Path(outside.place, "readable")
    path.write_text("before")
    outside.shows(
        write_what_may_be_read, lambda _: path.read_text() != "before", needs=[f"fs:read:{path}"], path=str(path)
    )


def link_in_a_granted_directory(ctx: SyncContext, secret: str, granted: str) -> str:
    """A tool leads out of what it was granted with a link that it makes there, which the host follows for it."""
    try:
        os.symlink(secret, f"{granted}/link")
    except PermissionError:  # at `restricted` it can be made in scratch alone
        os.symlink(secret, scratch("link"))
        return str(ctx.fs.read(scratch("link")))
    try:
        return str(ctx.fs.read(f"{granted}/link"))
    except Exception:
        with open(f"{granted}/link", encoding="utf-8") as file:
            return file.read()


def test_link_in_a_granted_directory(outside: Outside) -> None:
    outside.shows(link_in_a_granted_directory, refused="PermissionError|PATH_NOT_REACHABLE")


FOLLOW = 0x400


def name_for_a_nameless_file(target: str) -> None:
    """A tool makes a file without a name in its scratch directory, and gives it a name elsewhere."""
    nameless = os.open(scratch(), os.O_TMPFILE | os.O_WRONLY)
    raw("linkat", -100, f"/proc/self/fd/{nameless}", -100, f"{target}.new", FOLLOW)


def test_name_for_a_nameless_file(outside: Outside) -> None:
    refused = "PermissionError|cross-device link|not supported"
    outside.shows(
        name_for_a_nameless_file, lambda _: os.path.exists(f"{outside.target}.new"), refused=refused, rare=True
    )


def users_of_the_machine() -> str:
    """A tool reads who the users of the machine are."""
    with open("/etc/passwd", encoding="utf-8") as file:
        return file.read()


def test_users_of_the_machine(outside: Outside) -> None:
    outside.shows(users_of_the_machine, lambda text: text and "root:" in text)


def root_of_itself(secret: str) -> str:
    """A tool reads through `/proc/self/root`, where everything has a second path."""
    with open(f"/proc/self/root{secret}", encoding="utf-8") as file:
        return file.read()


def test_root_of_itself(outside: Outside) -> None:
    outside.shows(root_of_itself)


def inherited_files(number: int) -> str:
    """A tool uses a file that the host has open and did not close for whom it starts."""
    return os.pread(number, 100, 0).decode()


def test_inherited_files(outside: Outside) -> None:
    from licet.sandbox.workers.pool import close_workers

    number = os.open(outside.secret, os.O_RDONLY)
    try:
        os.set_inheritable(number, True)
        close_workers()  # so that what workers come from is started with the file open
        outside.shows(inherited_files, refused="Bad file descriptor", at_start=True, number=number)
    finally:
        os.close(number)


def io_uring() -> int:
    """A tool has the kernel open a file or a socket for it by a ring, which no filter sees into."""
    return raw("io_uring_setup", 4, ctypes.create_string_buffer(120))


def test_io_uring(outside: Outside) -> None:
    outside.shows(io_uring, lambda ring: ring, rare=True)


def older_asynchronous_files() -> int:
    """A tool uses the older way to let the kernel read and write on its own (`io_setup`)."""
    return raw("io_setup", 4, ctypes.create_string_buffer(8))


def test_older_asynchronous_files(outside: Outside) -> None:
    outside.shows(older_asynchronous_files, lambda done: done == 0, rare=True)
