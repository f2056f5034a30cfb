"""Reads what programs wrote to a terminal of a test."""

import os


def read_all(terminal: int) -> str:
    """Everything that was written to a pseudo terminal; its other side must be closed."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(terminal, 1 << 16)  # one read gives a part, however much there is
        except OSError:  # EIO: all was read, and nobody is left who writes
            piece = b""
        if not piece:
            return b"".join(pieces).decode()
        pieces.append(piece)
