"""The pytest plugin: the fixture `gate`. A project turns it on with `pytest_plugins = ["licet.testing"]`.

Only pytest imports this module, so licet does not depend on pytest.
"""

from collections.abc import Callable, Iterator

import pytest

from licet.assemble.memory_gate import MemoryGate


@pytest.fixture
def gate() -> Iterator[Callable[..., MemoryGate]]:
    """Makes gates on memory backends, and closes them after the test: `gate(read_note, files={…})`."""
    made: list[MemoryGate] = []

    def make(*tools: object, **options: object) -> MemoryGate:
        made.append(MemoryGate(*tools, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()
