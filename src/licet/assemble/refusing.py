"""A gate for a command whose policy cannot be used: it refuses and records what the command would have called."""

from pathlib import Path

from licet.assemble.gate import CommandGate
from licet.core.policy.manifest import Manifest
from licet.errors import Refused
from licet.guard.ports import Ports
from licet.guard.registration import RegisteredTools


class RefusingGate(CommandGate):
    """The gate of a command whose policy cannot be used, such as one that differs from its lock.

    Every call is refused with the reasons that the policy was refused for, and recorded.
    """

    def __init__(self, refused: Refused, manifest: Manifest, backends: Ports, *, workdir: str | Path | None) -> None:
        self._grounds = refused.decision.rules
        super().__init__(manifest, (), backends, workdir=workdir)

    def _reload(self, manifest: Manifest) -> None:
        why = self._grounds[0].text
        self._policy = RegisteredTools(manifest, manifest.digest, {}, unusable=why, grounds=self._grounds)
        self.manifest = manifest
