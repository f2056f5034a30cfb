"""A tool has the libraries of the system resolve a name, which asks files and servers of the machine."""

import ctypes

from attacks.behind_walls import Outside


def attack() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    found = ctypes.c_void_p()
    wrong = libc.getaddrinfo(b"localhost", b"80", None, ctypes.byref(found))
    if wrong:
        raise OSError(f"no address: {wrong}")
    return "resolved"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "resolved", refused="no address", rare=True)
