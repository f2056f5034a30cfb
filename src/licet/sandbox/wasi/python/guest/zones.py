"""Time zones from one packed file that is read at build time, because the component has no files."""

import io
import json
import os
import zoneinfo
import zoneinfo._common
import zoneinfo._tzpath
from base64 import b64decode
from typing import Any

_PACKED = os.path.join(os.path.dirname(__file__), "zones.json")


def install() -> None:
    """Let `zoneinfo` find its data in memory."""
    try:
        with open(_PACKED, encoding="ascii") as packed:
            held = {name: b64decode(text) for name, text in json.load(packed).items()}
    except FileNotFoundError:
        held = {}

    def load_tzdata(key: str) -> Any:
        if key not in held:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        return io.BytesIO(held[key])

    zoneinfo.reset_tzpath(to=[])
    zoneinfo._common.load_tzdata = load_tzdata  # type: ignore[assignment]
    zoneinfo.available_timezones = lambda: set(held)
