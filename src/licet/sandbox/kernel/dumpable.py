"""Lets a program believe that it is closed to debuggers: the judge of `prctl(PR_SET_DUMPABLE, 0)`.

Its supervisor could not look into a process that really is, and so make no call for it. Processes outside of the run
that are this user's may look into it, as into most others; those of the run may anyway.
"""

from typing import Final

from licet.sandbox.kernel.notifications import Notice, answer
from licet.sandbox.kernel.supervised_calls import SupervisedCalls


class Dumpable:
    """The judge; the filter lets no other option ask."""

    names: Final = frozenset({"prctl"})
    is_quick = True

    def judge(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        """Answer that it was done."""
        answer(calls.listener, notice, 0)
