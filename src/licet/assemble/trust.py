"""Accepting a policy that commands may find by themselves: what is put on the list of this user, and what it replaces.

Who is asked, and what they are shown, is for the surfaces to say.
"""

import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from licet.assemble.review import Places
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.digest import document
from licet.core.policy.layer import meet_layers
from licet.core.policy.manifest import Manifest
from licet.errors import LicetError
from licet.policy_files.load import load_manifest
from licet.policy_files.syntax import MOST_BYTES
from licet.policy_files.trust_list import Accepted, accept, accepted, accepted_files
from licet.regular_files import read_regular

# Parts of the meaning of a policy that its files call otherwise.
_IN_FILES = {
    "layers": "what its `capabilities`, personality or workspace allow and deny",
    "tools": "the admitted tools, or the entries of `tools` and `bundles` about them",
    "declared": "what its tools declare",
    "sources": "`from` of its tools",
    "native": "the tools under `native`",
    "connectors": "the connectors that it allows and denies",
    "allow_degraded": "`allow_degraded`",
}


class PolicyMoved(LicetError):
    """A policy changed while it was read, or is not in one place."""


class Before(Struct, frozen=True):
    """What was accepted last at a path, and how the places in its files begin."""

    manifest: Manifest
    prefix: str


def accept_policy(path: Path, manifest: Manifest) -> Accepted:
    """Put a policy that was reviewed on the list; `PolicyMoved` if its files do not say the same any more."""
    texts = _texts(manifest)
    with tempfile.TemporaryDirectory() as folder:
        if _load(texts, path.name, folder).digest != manifest.digest:
            raise PolicyMoved(f"{path} changed while it was read: try again")
    return accept(path, manifest.digest, texts, datetime.now(UTC))


def accepted_before(path: Path, current: Manifest, places: Places) -> Before | None:
    """What this user accepted last at a path, with the tools as they are declared now; None if it was nothing."""
    entry, texts = accepted().get(os.path.realpath(path)), accepted_files(path)
    if entry is None or path.name not in texts:
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            manifest = _load(texts, path.name, folder)
            # A tool that came from other code is compared as the code of now: `further_changes` tells where it is from.
            declared = manifest.declare(spec for name, spec in current.tools.items() if name in manifest.sources)
            shown = declared.expand(places.workdir, places.home)
        except (LicetError, Malformed):  # another version of licet took it, or the home that it names is gone
            return None
    return Before(shown, f"{folder}/") if manifest.digest == entry.digest else None


def ceiling_of(manifest: Manifest) -> CapabilitySet:
    """All that a policy allows, whatever its tools declare now or later; what no grant may write is left out of it."""
    return meet_layers(layer for layer in manifest.layers if layer.kind != "policy files")


def further_changes(before: Manifest, after: Manifest) -> list[str]:
    """What `diff` does not tell of two policies and a digest does: ceilings that no tool needs, and other sources.

    Who accepts a policy accepts these too: the code of a tool may need more tomorrow.
    """
    told = []
    for sign, one, other in (("+", after, before), ("−", before, after)):
        told += [f"{sign} allowed in all: {piece}" for piece in ceiling_of(one) - ceiling_of(other)]
    for name in sorted(before.sources.keys() | after.sources.keys()):
        old, new = (one.sources.get(name, ("nothing",))[0] for one in (before, after))
        if old != new:
            told.append(f"~ {name}: from {old} → {new}")
    said, says = (document(one.loaded or one) for one in (before, after))
    differing = [key for key in sorted(said.keys() | says.keys()) if said.get(key) != says.get(key)]
    return [*told, f"~ differs in: {', '.join(_IN_FILES.get(key, f'`{key}`') for key in differing)}"]


def _texts(manifest: Manifest) -> dict[str, str]:
    directories = {os.path.dirname(file) for file in manifest.files}
    if len(directories) > 1:
        raise PolicyMoved(f"the files of a trusted policy lie in one directory; found {', '.join(manifest.files)}")
    try:
        return {os.path.basename(file): read_regular(file, MOST_BYTES).decode() for file in manifest.files}
    except (OSError, ValueError) as error:
        raise PolicyMoved(f"{', '.join(manifest.files)} cannot be read again: {error}") from None


def _load(texts: Mapping[str, str], name: str, folder: str) -> Manifest:
    for file, text in texts.items():
        Path(folder, os.path.basename(file)).write_bytes(text.encode())
    return load_manifest(Path(folder, name))
