"""Finds the examples and test files of policies, and runs them as `licet test` and the pytest plugin do.

Nothing is imported or run: tools are read from source. A policy counts as accepted here, so that the outcome does not
depend on the trust list of the user, or on a lock that is written after the tests have passed.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.never_writable import closed_to_grants
from licet.assemble.review import Places, review
from licet.core.decision.decision import Decision
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import APPROVED_IN_REVIEW
from licet.core.review.examples import (
    Case,
    Outcome,
    Setting,
    WrittenRule,
    cases_of,
    exercised_rules,
    run_case,
    written_rules,
)
from licet.core.values import Origin, Problem
from licet.errors import ManifestError
from licet.policy_files.checks import argument_check
from licet.policy_files.load import case_files, is_case_file, manifests_in, policy_of, read_case_file
from licet.policy_files.manifest_reader import a_kind
from licet.policy_files.policy_paths import SUFFIXES

_PIN = "a test"  # the text for what pinned the policy; tests write no receipts


class PolicyCases(Struct, frozen=True):
    """A reviewed policy, and the cases that are run on it."""

    manifest: Manifest
    cases: tuple[Case, ...]

    def outcomes(self, places: Places) -> tuple[tuple[Outcome, ...], tuple[Problem, ...]]:
        """Run every case; the problems are about cases that cannot be decided."""
        setting = Setting(places.workdir, places.home, argument_check)
        found = [run_case(case, self.manifest, setting) for case in self.cases]
        outcomes = tuple(one for one in found if isinstance(one, Outcome))
        return outcomes, tuple(one for one in found if isinstance(one, Problem))


class Report(Struct, frozen=True):
    """The outcomes of all cases, the problems that kept some from running, and the coverage of rules."""

    outcomes: tuple[Outcome, ...] = ()
    problems: tuple[Problem, ...] = ()
    rules: frozenset[WrittenRule] = frozenset()
    exercised: frozenset[WrittenRule] = frozenset()

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The outcomes that are not as their case says."""
        return tuple(outcome for outcome in self.outcomes if not outcome.passed)

    @property
    def covered(self) -> float:
        """The percentage of rules that a case exercised; 0 if there is no rule."""
        return 100 * len(self.exercised) / len(self.rules) if self.rules else 0.0


def run_examples(
    paths: Iterable[Path],
    places: Places,
    workspace: Path | None = None,
    personality: Path | None = None,
    organisation: Path | None = None,
) -> Report:
    """Run the examples of policies, as they hold under the organisation of this machine and a second file.

    A path is a policy file, a test file, or the directory of a project.
    """
    problems: list[Problem] = []
    outcomes: list[Outcome] = []
    rules: set[WrittenRule] = set()
    exercised: set[WrittenRule] = set()
    for path in paths:
        for one in cases_at(path, places, problems, workspace, personality, organisation, alone=False):
            ran, wrong = one.outcomes(places)
            outcomes += ran
            problems += wrong
            rules |= written_rules(one.manifest)
            exercised |= exercised_rules(ran, one.manifest)
    return Report(tuple(outcomes), tuple(dict.fromkeys(problems)), frozenset(rules), frozenset(exercised))


def cases_at(
    path: Path,
    places: Places,
    problems: list[Problem],
    workspace: Path | None = None,
    personality: Path | None = None,
    organisation: Path | None = None,
    *,
    alone: bool = True,
) -> list[PolicyCases]:
    """The policies that a path names, each with its cases. See `run_examples` for what a path may be.

    Those that are `alone` do not depend on the organisation of this machine, as the tests of a project must not.
    """
    if path.is_dir():
        policies = _policies_in(path, problems)
    elif path.suffix in SUFFIXES and is_case_file(path):
        read = read_case_file(path, problems)
        more = (None, None, organisation)
        policy = None if read is None else _reviewed(read.policy, places, problems, *more, alone=alone)
        return [] if read is None or policy is None else [PolicyCases(policy, read.cases)]
    else:
        policies = [path]
    found = []
    for one in policies:
        manifest = _reviewed(one, places, problems, workspace, personality, organisation, alone=alone)
        cases = _written_for(one, problems)
        if manifest is not None:
            found.append(PolicyCases(manifest, (*cases_of(manifest), *cases)))
    return found


def decision(
    policy: str | os.PathLike[str],
    tool: str,
    use: str = "",
    *,
    args: Mapping[str, Any] | None = None,
    workdir: str | os.PathLike[str] | None = None,
) -> Decision:
    """What a policy says to one use of a tool, or to a call with these arguments; nothing is imported or run.

        assert decision(".licet/licet.yaml", "read_note", "fs:read:${workdir}/notes/oslo.md").verdict == "allow"

    The result has a `verdict`, the `rules` that decided and, if it is a `Deny`, a `reason`. `ManifestError` if the
    policy has errors, `ValueError` if the question cannot be decided, such as one about an unknown tool. The answer is
    about the policy alone, without the organisation of this machine.
    """
    problems: list[Problem] = []
    places = Places.here(Path(workdir) if workdir is not None else None)
    manifest = _reviewed(Path(policy), places, problems)
    if manifest is None:
        raise ManifestError(problems)
    case = Case(Origin("the question", 0, 0), tool, (), use, args)
    found = run_case(case, manifest, Setting(places.workdir, places.home, argument_check))
    if isinstance(found, Outcome):
        return found.decision
    raise ValueError(str(found).removeprefix(f"{found.origin.full}: {found.severity}: "))


def _reviewed(
    path: Path,
    places: Places,
    problems: list[Problem],
    workspace: Path | None = None,
    personality: Path | None = None,
    organisation: Path | None = None,
    *,
    alone: bool = True,
) -> Manifest | None:
    policy = review(path, workspace, personality, places, organisation=organisation, alone=alone)
    if policy.sound and policy.manifest is not None:
        accepted = replace(policy.manifest, pinned=_PIN, standing=APPROVED_IN_REVIEW, lock_problem=None)
        return closed_to_grants(accepted, places.workdir)
    wrong = [problem for problem in policy.problems if problem.severity == "error"]
    other = Problem(Origin(str(path), 1, 1), a_kind(policy.kind), "a manifest or a personality", "name the manifest")
    problems += wrong or [other]
    return None


def _written_for(policy: Path, problems: list[Problem]) -> list[Case]:
    """The cases of the test files that are about a policy; a file that cannot be read is a problem."""
    cases: list[Case] = []
    for path in case_files(policy):
        read = read_case_file(path, problems)
        if read is not None and os.path.realpath(read.policy) == os.path.realpath(policy):
            cases += read.cases
    return cases


def _policies_in(directory: Path, problems: list[Problem]) -> list[Path]:
    """The manifests of a project; its workspace if that has none, and a problem if there is no policy at all."""
    try:
        found = list(manifests_in(directory))
    except OSError as wrong:
        problems.append(Problem(Origin(str(directory), 1, 1), f"an error: {wrong.strerror}", "a directory"))
        return []
    workspace = policy_of(directory)
    if not found and workspace is None:
        expected = "the directory of a project: .licet/licet.yaml, or licet.yaml"
        problems.append(Problem(Origin(str(directory), 1, 1), "a directory without a policy", expected))
    return found or ([workspace] if workspace is not None else [])
