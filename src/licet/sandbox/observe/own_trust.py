"""How does a command of `licet observe --inspect` come to trust the authority of its run?

There is no private root here, so the files of the system stay as they are. Variables lead clients to the real roots and
the authority, in a directory for this user alone that lasts as long as the command. A client that reads the bundle of
the system and no variable sees an error of TLS, as one that pins certificates does.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from licet.core.algebra.scope import inside
from licet.core.policy.inspection import Inspection
from licet.own_files import create_file
from licet.sandbox import scratch as scratches
from licet.sandbox.inspection.authority import Authority
from licet.sandbox.inspection.client_trust import trust_in
from licet.sandbox.inspection.inspected import Inspecting
from licet.sandbox.inspection.stand_ins import StandIns

EVERY_HOST = Inspection(("*",))  # at the port of HTTPS; connections to other ports stay tunnels


class OwnTrust(NamedTuple):
    """What looks into the HTTPS of one command, and what makes the command trust it."""

    inspecting: Inspecting
    variables: Mapping[str, str]
    folder: str  # of the files that the variables name


@contextmanager
def own_trust(environment: Mapping[str, str], directory: str) -> Iterator[OwnTrust]:
    """The trust of one command with this environment and working directory. Its files are removed at the end.

    Raises `OSError`, and `ValueError` for a bundle of the operator that is too large.
    """
    folder = scratches.new()
    try:
        authority = Authority(EVERY_HOST.inspect)
        trust = trust_in(
            *(authority.certificate, authority.subject_hash, environment, directory), hashed=(), folder=folder
        )
        for path, content in trust.files.items():
            if inside(path, (folder,)):  # the others are files of the system
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                create_file(path, content)
        yield OwnTrust(Inspecting(EVERY_HOST, authority, StandIns((), {})), trust.variables, folder)
    finally:
        scratches.remove(folder)
