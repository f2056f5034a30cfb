"""Mounts, roots and namespaces."""

import os
import socket

from attacks.behind_walls import Outside, raw


def another_root(granted: str) -> str:
    """A tool of root makes another directory its root, from which `..` leads anywhere."""
    os.chroot(granted)
    return str(os.listdir("/"))


def test_another_root(outside: Outside) -> None:
    outside.shows(another_root, lambda names: names and "file" in names, root=True, rare=True)


CLONE, RECURSIVE = 1, 0x8000


def copy_of_a_tree(secret: str) -> str:
    """A tool of root takes a detached copy of the whole tree of files, which no path leads to (`open_tree`)."""
    tree = raw("open_tree", -100, b"/", CLONE | RECURSIVE)
    return os.read(os.open(secret[1:], os.O_RDONLY, dir_fd=tree), 100).decode()


def test_copy_of_a_tree(outside: Outside) -> None:
    outside.shows(copy_of_a_tree, root=True, rare=True)


NEW_MOUNTS, PRIVATE, BIND, EXCHANGE_THE_ROOT_RECURSIVE = 0x20000, 1 << 18, 4096, 16384


def exchange_the_root(granted: str) -> int:
    """A tool of root exchanges the root of its mounts (`pivot_root`), in mounts of its own."""
    raw("unshare", NEW_MOUNTS)
    raw("mount", None, b"/", None, PRIVATE | EXCHANGE_THE_ROOT_RECURSIVE, None)
    raw("mount", granted, granted, None, BIND, None)
    return raw("pivot_root", granted, granted)


def test_exchange_the_root(outside: Outside) -> None:
    outside.shows(exchange_the_root, lambda done: done == 0, root=True, rare=True)


NETWORK = 0x40000000


def join_a_namespace(pid: int) -> int:
    """A tool of root joins the namespaces of another process, by a file that stands for it."""
    return raw("setns", raw("pidfd_open", pid, 0), NETWORK)


def test_join_a_namespace(outside: Outside) -> None:
    outside.shows(join_a_namespace, lambda done: done == 0, root=True, rare=True)


def mount(granted: str) -> int:
    """A tool of root mounts something over a directory."""
    done = raw("mount", b"none", granted, b"tmpfs", 0, None)
    raw("umount2", granted, 0)
    return done


def test_mount(outside: Outside) -> None:
    outside.shows(mount, lambda done: done == 0, root=True, rare=True)


CREATE = 6


def mount_the_new_way() -> int:
    """A tool of root makes a file system that is mounted nowhere, and works in it (`fsopen`)."""
    made = raw("fsopen", b"tmpfs", 0)
    raw("fsconfig", made, CREATE, None, None, 0)
    return raw("fsmount", made, 0, 0)


def test_mount_the_new_way(outside: Outside) -> None:
    outside.shows(mount_the_new_way, lambda file: file, root=True, rare=True)


NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000


def new_network_namespace() -> int:
    """A tool makes a thread in a network of its own, where sockets would be harmless, or so a filter might think."""
    return raw("unshare", NEW_USER | NEW_NETWORK)


def test_new_network_namespace(outside: Outside) -> None:
    outside.shows(new_network_namespace, lambda done: done == 0, rare=True)


NEW_USER_NAMESPACE_NEW_USER = 0x10000000


def new_user_namespace() -> int:
    """A tool makes a namespace in which it is root, and from there uses parts of the kernel that others may not."""
    return raw("unshare", NEW_USER_NAMESPACE_NEW_USER)


def test_new_user_namespace(outside: Outside) -> None:
    outside.shows(new_user_namespace, lambda done: done == 0, rare=True)


def name_of_the_machine() -> int:
    """A tool of root gives the machine another name."""
    name = socket.gethostname()  # the one it has, so that nothing happens where nothing stops it
    return raw("sethostname", name, len(name))


def test_name_of_the_machine(outside: Outside) -> None:
    outside.shows(name_of_the_machine, lambda done: done == 0, root=True, rare=True)
