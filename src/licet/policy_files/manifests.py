"""Finds the manifests of agents in a directory, for commands that are given one."""

import os
from pathlib import Path

from licet.policy_files.load import is_agent_policy, read_policy
from licet.policy_files.policy_paths import POLICY_DIRECTORY, SUFFIXES, PolicyDetector


def manifests_in(directory: Path) -> tuple[Path, ...]:
    """The manifests in a directory and its `.licet`; `OSError` if one of the two cannot be read.

    A file that may be a manifest, but is broken, counts: whoever reviews it must be told.
    """
    detector, found = PolicyDetector(), []
    for folder in (directory, directory / POLICY_DIRECTORY):
        try:
            names = sorted(name for name in os.listdir(folder) if name.lower().endswith(SUFFIXES))
        except (FileNotFoundError, NotADirectoryError):
            continue
        paths = [folder / name for name in names]
        found += [path for path in paths if is_agent_policy(path) or _is_broken(path, detector)]
    return tuple(found)


def _is_broken(path: Path, detector: PolicyDetector) -> bool:
    policy = read_policy(path)
    return policy.kind == "manifest" and policy.manifest is None and detector.is_policy(str(path))
