"""The pytest plugin: the fixture `gate`, and the examples of policies as tests.

A project turns it on with `pytest_plugins = ["licet.testing"]`. Only pytest imports this module, so licet does not
depend on pytest.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from licet.assemble import Places
from licet.assemble.policy_tests import cases_at
from licet.core.algebra.scope import visible
from licet.core.policy.manifest import Manifest
from licet.core.review.examples import Case, Outcome, Setting, run_case
from licet.core.values import Problem
from licet.policy_files.checks import argument_check
from licet.policy_files.policy_paths import SUFFIXES
from licet.testing import MemoryGate

_POLICIES = "licet_policies"


@pytest.fixture
def gate() -> Iterator[Callable[..., MemoryGate]]:
    """Makes gates on memory backends, and closes them after the test: `gate(read_note, files={…})`."""
    made: list[MemoryGate] = []

    def make(*tools: object, **options: object) -> MemoryGate:
        made.append(MemoryGate(*tools, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `licet_policies`."""
    text = "policy files or test files of licet; their examples run with the tests of the project"
    parser.addini(_POLICIES, text, type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Run the configured policies too, unless the command line names what to run."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args += [str(path) for path in config.getini(_POLICIES)]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not skip `.licet` on the way to a configured policy, as pytest does with directories whose name has a dot."""
    configured = config.getini(_POLICIES)
    return False if any(path.is_relative_to(collection_path) for path in configured) else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "PolicyFile | None":
    """Collect a policy or test file that is named on the command line or in `licet_policies`."""
    named = parent.session.isinitpath(file_path) or file_path in parent.config.getini(_POLICIES)
    return PolicyFile.from_parent(parent, path=file_path) if named and file_path.suffix in SUFFIXES else None


class PolicyFile(pytest.File):
    """A policy file with its test files, or one test file."""

    def collect(self) -> Iterable[pytest.Item]:
        """Make one test of each example."""
        problems: list[Problem] = []
        places = Places.here(self.config.rootpath)
        found = cases_at(_relative(self.path), places, problems)
        if problems:
            raise self.CollectError("\n".join(visible(str(problem)) for problem in problems))
        for one in found:
            for case in one.cases:
                written_in = Path(case.origin.file).name
                file = "" if written_in == self.path.name else f"{written_in} "
                name = f"{file}line {case.origin.line}: {visible(case.title)}"
                yield PolicyExample.from_parent(self, name=name, case=case, manifest=one.manifest, places=places)


class PolicyExample(pytest.Item):
    """One example. It fails with the line that `licet test` prints."""

    def __init__(self, *, case: Case, manifest: Manifest, places: Places, **given: Any) -> None:
        super().__init__(**given)
        self.case, self.manifest, self.places = case, manifest, places

    def runtest(self) -> None:
        """Decide the example."""
        setting = Setting(self.places.workdir, self.places.home, argument_check)
        found = run_case(self.case, self.manifest, setting)
        if isinstance(found, Problem) or not found.passed:
            raise ExampleFailed(found)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The line that `licet test` prints."""
        return str(excinfo.value) if isinstance(excinfo.value, ExampleFailed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The place of the example. pytest counts lines from 0."""
        origin = self.case.origin
        return Path(origin.file), origin.line - 1, f"{origin} {visible(self.case.title)}"


class ExampleFailed(Exception):
    """An example that a policy does not decide as it says, or that cannot be decided."""

    def __init__(self, found: Outcome | Problem) -> None:
        super().__init__(visible(str(found)))


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
