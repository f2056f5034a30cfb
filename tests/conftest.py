"""How much the property tests try: little and repeatable by default, a lot and at random with LICET_LONG=1."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is not a failure: no deadlines, and no complaint about slow or wasteful data.
PATIENT = (HealthCheck.too_slow, HealthCheck.filter_too_much)

settings.register_profile(
    "short", max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=PATIENT
)
settings.register_profile(
    "long", max_examples=3000, database=None, deadline=None, print_blob=True, suppress_health_check=PATIENT
)
settings.load_profile("long" if os.environ.get("LICET_LONG") == "1" else "short")

# A shell that starts this in the background lets its children ignore interrupts, and theirs too: some tests send them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests away from the state of whoever runs them: policies that this user trusts would change results."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("user-state"))
