"""A tool tries what older versions of Landlock do not see: on a machine that has no newer one, it is stopped too."""

from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest

from attacks.behind_walls import Outside
from licet.sandbox import landlock
from sandbox.levels import needs_walls

# Attacks that some version of Landlock stops by itself, and others not.
ATTACKS = (
    "truncate_a_file", "truncate_while_reading", "replace_a_file", "exchange_two_files", "tcp_to_a_service",
    "listen_for_connections", "type_into_a_terminal", "end_a_process", "signal_a_group", "signal_a_thread",
    "signal_with_a_value", "abstract_unix_socket",
)  # fmt: skip


@pytest.mark.parametrize("version", range(1, 8))
@pytest.mark.parametrize("name", ATTACKS)
def test_the_walls_of_every_version_stop_it(name: str, version: int, tmp_path: Path) -> None:
    needs_walls()
    if landlock.abi() < version:
        pytest.skip(f"Landlock {version} is not in this kernel")
    module = import_module(f"attacks.test_wall_{name}")
    with closing(Outside("isolated", tmp_path.resolve(), version)) as there:
        module.test_the_walls_stop_it(there)
