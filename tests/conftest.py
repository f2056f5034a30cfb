"""How much the property tests try: little and repeatable by default, a lot and at random with LICET_LONG=1."""

import os

from hypothesis import HealthCheck, settings

# No deadlines: a slow machine is not a failure.
settings.register_profile("short", max_examples=60, derandomize=True, database=None, deadline=None)
settings.register_profile(
    "long",
    max_examples=2000,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("long" if os.environ.get("LICET_LONG") == "1" else "short")
