"""A tool tries what older versions of Landlock do not see: on a machine that has no newer one, it is stopped too."""

from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest

from attacks.behind_walls import Outside
from licet.sandbox.kernel import landlock
from sandbox.levels import needs_walls

# Attacks that some version of Landlock stops by itself, and others not.
ATTACKS = (
    *("files.truncate_a_file", "files.truncate_while_reading", "files.replace_a_file", "files.exchange_two_files"),
    *("sockets.tcp_to_a_service", "sockets.listen_for_connections", "sockets.abstract_unix_socket"),
    *("signals.end_a_process", "signals.signal_a_group", "signals.signal_a_thread", "signals.signal_with_a_value"),
    "devices.type_into_a_terminal",
)


@pytest.mark.parametrize("version", range(1, 8))
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.sampled(9)
def test_the_walls_of_every_version_stop_it(name: str, version: int, tmp_path: Path) -> None:
    needs_walls()
    if landlock.abi() < version:
        pytest.skip(f"Landlock {version} is not in this kernel")
    theme, _, attack = name.partition(".")
    with closing(Outside("isolated", tmp_path.resolve(), version)) as there:
        getattr(import_module(f"attacks.test_wall_{theme}"), f"test_{attack}")(there)
