"""Time zones from one packed file that is read at build time, because the component has no files."""

import io
import json
import os
import zoneinfo
import zoneinfo._common
from typing import Any

_PACKED = os.path.join(os.path.dirname(__file__), "zones")


def install() -> None:
    """Let `zoneinfo` find its data in memory."""
    with open(_PACKED, "rb") as packed:
        places, data = json.loads(packed.readline()), packed.read()

    def load_tzdata(key: str) -> Any:
        if key not in places:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        begin, end = places[key]
        return io.BytesIO(data[begin:end])

    zoneinfo.reset_tzpath(to=[])
    zoneinfo._common.load_tzdata = load_tzdata
    zoneinfo.available_timezones = lambda: {*places}
