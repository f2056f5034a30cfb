"""The count of what one call makes in directories, which several processes share without trusting the tool.

The kernel holds each call of a tool that may make an entry, and asks a process that the tool cannot touch. That process
counts the call and lets it go on, or refuses it. It reads nothing of the tool's memory, so nothing can be exchanged.
"""

import errno
import os

FULL = errno.EDQUOT  # what a call fails with after the limit


class EntryCount:
    """A count with a limit. Every process with its open file counts on from the same number.

    The number is the position in a file without a name: the kernel moves it in one step for all who share the file.
    """

    __slots__ = ("file", "most")

    def __init__(self, most: int, file: int | None = None) -> None:
        self.most = most
        self.file = os.memfd_create("entries") if file is None else file

    def begin(self, taken: int) -> None:
        """Count from a number on."""
        os.lseek(self.file, taken, os.SEEK_SET)

    def take(self) -> bool:
        """Count one entry before it is made; False if it is one too many."""
        return os.lseek(self.file, 1, os.SEEK_CUR) <= self.most

    @property
    def taken(self) -> int:
        """The number that was counted, with those that were refused."""
        return os.lseek(self.file, 0, os.SEEK_CUR)

    @property
    def is_exceeded(self) -> bool:
        """Whether an entry was refused."""
        return self.taken > self.most

    def copy(self) -> "EntryCount":
        """The same count, with an open file of its own."""
        return EntryCount(self.most, os.dup(self.file))

    def close(self) -> None:
        """Close the file of this copy. Nothing can be counted with it afterwards."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
