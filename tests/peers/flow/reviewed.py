"""What does a manifest say that a person wrote and reviewed for the tools of the public suite?

One file for each suite, `reviewed/NAME.yaml`, with the keys `flow` and `tools` of a manifest. A suite without a file is
not measured with this policy.
"""

from pathlib import Path

import yaml

from .replay import Policy, Suite

FOLDER = Path(__file__).parent / "reviewed"


def reviewed(suite: Suite) -> Policy | None:
    """The reviewed policy of a suite; None if nobody wrote one."""
    file = FOLDER / f"{suite.name}.yaml"
    if not file.exists():
        return None
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    return Policy("reviewed", data["flow"], data.get("tools") or {})
