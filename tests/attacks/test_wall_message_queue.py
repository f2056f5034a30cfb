"""A tool takes messages out of another's queue (System V)."""

import ctypes

from attacks.behind_walls import CANARY, Outside

CREATE, REMOVE, NO_WAIT = 0o1600, 0, 0o4000


class Message(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_long), ("text", ctypes.c_char * 64))


def attack(queue: int) -> str:
    message = Message()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.msgrcv(queue, ctypes.byref(message), ctypes.c_size_t(64), ctypes.c_long(0), NO_WAIT) < 0:
        raise OSError(ctypes.get_errno(), "msgrcv")
    return str(message.text.decode())


def test_the_walls_stop_it(outside: Outside) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    queue = libc.msgget(0, CREATE)
    try:
        libc.msgsnd(queue, ctypes.byref(Message(1, CANARY.encode())), ctypes.c_size_t(64), 0)
        outside.shows(attack, queue=queue)
    finally:
        libc.msgctl(queue, REMOVE, None)
