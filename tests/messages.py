"""Messages that tests expect, in one table for each surface: `messages.yaml` in its directory.

A sentence is written there once, so that its wording can change in one place. `{name}` in a sentence is filled in by
the test that expects it.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import yaml


def messages(folder: str) -> Callable[..., str]:
    """A function from a key such as `call.kept_elsewhere` to its sentence, with the given values filled in."""

    @cache
    def table() -> dict[str, dict[str, str]]:  # read when first asked: behind walls, a test module is loaded without it
        read: dict[str, dict[str, str]] = yaml.safe_load(
            (Path(__file__).parent / folder / "messages.yaml").read_text("utf-8")
        )
        return read

    def message(key: str, **given: object) -> str:
        group, _, name = key.partition(".")
        text: str = table()[group][name]
        for placeholder, value in given.items():
            assert f"{{{placeholder}}}" in text, f"{key} has no `{{{placeholder}}}`"
            text = text.replace(f"{{{placeholder}}}", str(value))
        return text

    return message
