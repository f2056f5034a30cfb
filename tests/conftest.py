"""What all tests share: how many examples and cases they try, and where their stores lie."""

import asyncio
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from effort import EXAMPLES, LONG
from organisations import hidden, nowhere
from sampled_files import MOST_OF_FILE

# A slow machine is not a failure: no deadlines, and no complaint about slow or wasteful data.
PATIENT = (HealthCheck.too_slow, HealthCheck.filter_too_much)

settings.register_profile(
    "short", max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=PATIENT
)
settings.register_profile(
    "long", max_examples=EXAMPLES, database=None, deadline=None, print_blob=True, suppress_health_check=PATIENT
)
settings.load_profile("long" if LONG else "short")

# A shell that starts this in the background lets its children ignore these, and theirs too: some tests send them.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


# Processes that tests start read the organisation file of the machine, like any process: hide it from all of them.
hidden()


@pytest.fixture(autouse=True)
def no_organisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, a machine without an organisation file."""
    nowhere(monkeypatch)


@pytest.fixture
def postgres() -> Iterator[str]:
    """The address of a new database of a real server, with the tables of licet."""
    from postgres_server import fresh, give_back

    url = fresh()
    yield url
    give_back(url)
    if (states := sys.modules.get("licet.assemble.states")) is not None:
        states.close_databases()


@pytest.fixture(scope="session")
def runner() -> str:
    """A user of the server who may do what processes need, and nothing else."""
    from postgres_server import NoServer, server

    try:
        there = server()
    except NoServer as why:
        pytest.skip(str(why))
    asyncio.run(there.sql("CREATE ROLE runner LOGIN", "GRANT licet_runtime TO runner", "SELECT 1"))
    return "runner"


@pytest.fixture
def pooled(postgres: str) -> Iterator[str]:
    """The address of the same database by way of a transaction pooler."""
    from postgres_server import NoServer, Pooler, server

    try:
        pooler = Pooler(server())
    except NoServer as why:
        pytest.skip(str(why))
    yield pooler.url(urlsplit(postgres).path.removeprefix("/"))
    pooler.stop()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than processors, since some tests wait."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return usable + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage, and never look for it in what was collected: all of it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# Sampling -------------------------------------------------------------------------------------------------------------

TESTS = Path(__file__).parent
SAMPLED = pytest.StashKey[dict[str, tuple[int, int]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SAMPLED] = {}
    about = "run at most so many cases of this test, or of all tests with the same `of`, unless LICET_LONG=1"
    config.addinivalue_line("markers", f"sampled(most, of=''): {about}")
    config.addinivalue_line("markers", "who: what comes of it depends on the user, so root runs it as another user too")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep some cases of each test that is marked as sampled: the first, the last, and an even spread between."""
    cases = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sampled")
        file = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        if LONG:
            continue
        if mark is not None:
            cases[mark.kwargs.get("of") or item.nodeid.partition("[")[0], mark.args[0]].append(item)
        elif file in MOST_OF_FILE:
            cases[file, MOST_OF_FILE[file]].append(item)
    left_out = set()
    for (test, most), found in cases.items():
        if len(found) > most:
            kept = {found[number * (len(found) - 1) // max(1, most - 1)] for number in range(most)}
            left_out |= set(found) - kept
            config.stash[SAMPLED][test] = (len(kept), len(found))
    items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workeroutput"):
        config.workeroutput["sampled"] = config.stash[SAMPLED]


@pytest.fixture
def report_sample(request: pytest.FixtureRequest) -> Callable[[int, int], None]:
    """A function with which a test reports how many of the cases that it knows it has tried."""

    def report(tried: int, known: int) -> None:
        if tried < known:
            request.config.stash[SAMPLED][request.node.nodeid] = (tried, known)

    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of pytest-xdist has sampled."""
    sampled = getattr(node, "workeroutput", {}).get("sampled", {})
    node.config.stash[SAMPLED].update({test: tuple(counts) for test, counts in sampled.items()})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    sampled = config.stash[SAMPLED]
    if sampled:
        kept, known = (sum(counts[side] for counts in sampled.values()) for side in (0, 1))
        terminalreporter.write_line(f"sampled: {kept} of {known} cases of {len(sampled)} tests; all: LICET_LONG=1")
        for test, counts in sorted(sampled.items()):
            terminalreporter.write_line(f"  {counts[0]:4} of {counts[1]:4}  {test}")


# Places ---------------------------------------------------------------------------------------------------------------

TMPFS = "/dev/shm"


@pytest.fixture(scope="session")
def store_root() -> Iterator[Path]:
    """A directory in memory where the machine has one: SQLite asks the disk for each commit, and waits for it.

    No grant reaches below `/dev`, so this is for stores and not for files of tools.
    """
    place = Path(tempfile.mkdtemp(prefix="licet-tests-", dir=TMPFS if os.access(TMPFS, os.W_OK) else None)).resolve()
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def store_path(store_root: Path) -> Iterator[Path]:
    """A directory of its own for the stores of one test."""
    place = Path(tempfile.mkdtemp(dir=store_root))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def own_state(store_root: Path) -> None:
    """Keep tests away from the state of the user who runs them: policies that this user trusts would change results."""
    os.environ["XDG_STATE_HOME"] = str(store_root / "user-state")
    os.environ.pop("LICET_STATE", None)


@pytest.fixture(scope="session", autouse=True)
def residents_are_ended(tmp_path_factory: pytest.TempPathFactory, own_state: None, store_root: Path) -> Iterator[None]:
    """No test leaves a resident running: the path of its home says which test it was."""
    yield
    if sys.platform.startswith("linux"):
        from hooks.residents import ended, living_below

        left = living_below(tmp_path_factory.getbasetemp(), store_root)
        ended(left)
        assert not left, "residents of tests still ran"
