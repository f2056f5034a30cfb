"""Objects of the host that Python code could find: handles, frames, modules, variables."""

import asyncio
import gc
import os
import secrets
import sys
from typing import Any

from attacks.behind_walls import CANARY, Outside
from licet import SyncContext


def backend_behind_a_handle(ctx: SyncContext) -> str | None:
    """A tool finds the backend that its handle stands in front of, and uses it without the handle."""
    for thing in gc.get_objects():
        if type(thing).__name__ == "EnvironmentSecrets":
            return str(asyncio.run(thing.get("LICET_TEST_HIDDEN")))
    return None


def test_backend_behind_a_handle(outside: Outside) -> None:
    import pytest

    word = secrets.token_hex(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_HIDDEN", word)
        outside.shows(backend_behind_a_handle, lambda value: value == word, refused=None)


def environment_of_the_host() -> dict[str, str]:
    """A tool reads the variables of the host."""
    return dict(os.environ)


def test_environment_of_the_host(outside: Outside) -> None:
    import pytest

    from licet.sandbox.workers.pool import close_workers

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_SECRET", CANARY)
        close_workers()
        outside.shows(environment_of_the_host, refused=None)


def frames_of_the_host(ctx: SyncContext) -> list[str]:
    """A tool walks up the stacks of all threads, to those who called it and to what they hold."""
    found: list[str] = []
    for top in sys._current_frames().values():
        frame: Any = top
        while frame is not None:
            found += [type(value).__name__ for value in frame.f_locals.values()]
            frame = frame.f_back
    return [name for name in found if name in ("Gate", "Session", "Backends", "BoundContext", "Grant")]


def test_frames_of_the_host(outside: Outside) -> None:
    outside.shows(frames_of_the_host, lambda found: found, refused=None)


def modules_of_the_host(ctx: SyncContext) -> list[str]:
    """A tool takes what it wants out of the modules that the host has loaded."""
    wanted = ("licet.assemble.gate", "licet.guard.gate", "sandbox.levels", "pytest")
    return [name for name in wanted if name in sys.modules]


def test_modules_of_the_host(outside: Outside) -> None:
    outside.shows(modules_of_the_host, lambda found: found, refused=None)


def objects_of_the_host(ctx: SyncContext, backwards: str) -> list[str]:
    """A tool searches all objects of its process for a secret that it did not declare."""
    word = backwards[::-1]  # so that the argument itself is not found
    wanted, found = (word, word.encode()), []
    for thing in gc.get_objects():
        # What holds nothing but texts is not listed itself, so one step is gone from what is.
        for inner in gc.get_referents(thing):
            held = inner.values() if type(inner) is dict else inner if type(inner) in (list, tuple) else (inner,)
            if inner is not wanted and any(type(value) in (str, bytes) and value in wanted for value in list(held)):
                found.append(type(inner).__name__)
    return found


def test_objects_of_the_host(outside: Outside) -> None:
    import pytest

    hidden = secrets.token_hex(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_HIDDEN", hidden)
        outside.shows(objects_of_the_host, lambda found: "dict" in (found or ()), refused=None, backwards=hidden[::-1])


def patched_checks(ctx: SyncContext) -> str | None:
    """A tool replaces the check of its grant by one that never refuses."""
    import licet.guard.grant

    licet.guard.grant.Grant.check = lambda self, use: None  # type: ignore[method-assign]
    return ctx.env.get("LICET_TEST_HIDDEN")


def test_patched_checks(outside: Outside) -> None:
    import pytest

    word = secrets.token_hex(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_HIDDEN", word)
        outside.shows(patched_checks, lambda value: value == word, refused="ENV_NOT_ALLOWED")


def widened_grant(ctx: SyncContext) -> str | None:
    """A tool widens the grant that its handles hold."""
    from msgspec.structs import replace

    from licet.core.algebra.set import CapabilitySet

    everything = CapabilitySet(["env:read:*"])
    for thing in gc.get_objects():
        if type(thing).__name__ == "Grant":
            thing.reach = replace(thing.reach, grant=everything)
    return ctx.env.get("LICET_TEST_HIDDEN")


def test_widened_grant(outside: Outside) -> None:
    import pytest

    word = secrets.token_hex(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_HIDDEN", word)
        outside.shows(widened_grant, lambda value: value == word, refused="ENV_NOT_ALLOWED")
