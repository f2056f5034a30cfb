"""`ctx.process`: which program may start, with which environment, where, and never without walls."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.liars import Liar
from guard.grants import grant
from licet.backends.secrets import MemorySecrets
from licet.errors import Refused
from licet.guard.execution import Command, Finished, Layers, SandboxUnavailable
from licet.guard.grant import Grant
from licet.guard.handles.processes import ScopedProcesses
from licet.guard.handles.secrets_and_kv import ScopedSecrets
from licet.guard.ports import Unavailable
from licet.guard.redaction.redact import Redactor
from licet.sandbox.programs.function_programs import MemoryProcesses

REAL = {"git": "/usr/bin/git", "awk": "/usr/bin/mawk", "gone": "/nowhere/gone"}
ENVIRON = {"LANG": "C", "PATH": "/usr/bin", "AWS_SECRET": "no"}


class NoWalls:
    layers = Layers(("paper",), ("stone",))

    def around(self, command: Command) -> Command:
        return command


class Sandbox:
    """A sandbox that records for which grants it made walls."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def layers(self, level: str) -> tuple[str, ...]:
        return ()

    async def run(self, level: str, call: Any, context: Any) -> Any:
        raise NotImplementedError

    def walls(self, held: Any) -> NoWalls:
        self.held.append(held)
        return NoWalls()


class Bare(Sandbox):
    def walls(self, held: Any) -> NoWalls:
        raise SandboxUnavailable("this machine has no walls yet")


async def done(command: Command) -> Finished:
    return Finished(0, b"out", b"")


def spawn(
    held: Grant, name: Any, *args: Any, sandbox: Any = None, programs: Any = None, made: Any = None, **given: Any
) -> tuple[Finished, Command]:
    """Start a program, and return its result and its command."""
    known = dict.fromkeys(("/usr/bin/git", "/usr/bin/mawk", "/usr/bin/curl", "/opt/own"), done)
    processes = programs or MemoryProcesses(known, {**REAL, "curl": "/usr/bin/curl", "/opt/c": "/usr/bin/curl"})
    options = {"binaries": REAL, "environ": ENVIRON, "workdir": "/srv/work", **(made or {})}
    handle = ScopedProcesses(held, processes, sandbox or Sandbox(), **options)
    finished = asyncio.run(handle.spawn(name, *args, **given))
    return finished, processes.ran[-1]


def refused(held: Grant, *args: Any, **given: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        spawn(held, *args, **given)
    return caught.value


def test_a_declared_program_runs_as_the_pinned_file_under_its_name() -> None:
    finished, command = spawn(grant(["process:exec:git"]), "git", ["status", "-s"], b"in", timeout=5)
    assert finished.stdout_bytes == b"out"
    assert command == Command("/usr/bin/git", ("git", "status", "-s"), {}, "/", b"in", 5.0, 1 << 20)


def test_stdin_may_be_text_and_a_timeout_is_cut_to_that_of_the_call() -> None:
    limits = {"seconds": 7.0, "output_bytes": 99}
    for asked, kept in ((None, 7.0), (3, 3.0), (0.5, 0.5), (100, 7.0), (10**400, 7.0)):
        _, command = spawn(grant(["process:exec:git"]), "git", stdin="é", timeout=asked, made=limits)
        assert (command.stdin, command.seconds, command.output_bytes) == ("é".encode(), kept, 99)


DECISIONS = [
    # needs, denies, asked for, the file that runs, or the reason
    (["git"], [], "git", "/usr/bin/git"),
    (["/usr/bin/git"], [], "git", "/usr/bin/git"),
    (["/usr/bin/git"], [], "/usr/bin/git", "/usr/bin/git"),
    (["/usr/bin/mawk"], [], "awk", "/usr/bin/mawk"),
    (["*"], [], "/opt/own", "/opt/own"),
    (["*"], [], "curl", "/usr/bin/curl"),
    (["git"], [], "curl", "BINARY_NOT_ALLOWED"),
    (["git"], [], "/usr/bin/git", "BINARY_NOT_ALLOWED"),
    (["git"], [], "/opt/git", "BINARY_NOT_ALLOWED"),
    (["git"], [], "Git", "BINARY_NOT_ALLOWED"),
    (["*"], ["git"], "git", "BINARY_NOT_ALLOWED"),
    (["*"], ["/usr/bin/git"], "git", "BINARY_NOT_ALLOWED"),
    (["*"], ["git"], "/usr/bin/git", "BINARY_NOT_ALLOWED"),
    (["git", "/usr/bin/git"], ["git"], "/usr/bin/git", "BINARY_NOT_ALLOWED"),
    (["*"], ["curl"], "/opt/c", "BINARY_NOT_ALLOWED"),
    (["*"], ["mawk"], "awk", "BINARY_NOT_ALLOWED"),
    (["gone"], [], "gone", "BACKEND_MISSING"),
    (["other"], [], "other", "BACKEND_MISSING"),
    (["git"], [], "other", "BINARY_NOT_ALLOWED"),
    (["*"], [], "*", "BINARY_NOT_ALLOWED"),
    (["*"], [], "", "BINARY_NOT_ALLOWED"),
    (["*"], [], "./git", "BINARY_NOT_ALLOWED"),
    (["*"], [], "~/git", "BINARY_NOT_ALLOWED"),
    (["*"], [], "git\0x", "BINARY_NOT_ALLOWED"),
    (["*"], [], None, "BACKEND_MISSING"),
]


@pytest.mark.parametrize(("needs", "denies", "asked", "expected"), DECISIONS)
def test_one_granted_name_of_a_program_is_enough_and_one_denied_name_refuses_it(
    needs: list[str], denies: list[str], asked: Any, expected: str
) -> None:
    held = grant([f"process:exec:{one}" for one in needs], deny=[f"process:exec:{one}" for one in denies])
    if expected.startswith("/"):
        assert spawn(held, asked)[1].binary == expected
    else:
        assert refused(held, asked).code == expected


def test_the_refusal_for_the_model_repeats_the_name_as_sent() -> None:
    assert str(refused(grant(["process:exec:git"]), "rm")) == (
        "BINARY_NOT_ALLOWED: rm is not in the declared allowedBinaries"
    )
    assert str(refused(grant(["process:exec:other"]), "other")) == (
        "BACKEND_MISSING: there is no program called other here"
    )


def test_a_str_subclass_is_run_as_the_name_that_was_checked() -> None:
    assert spawn(grant(["process:exec:git"]), Liar("curl", "git"))[1].binary == "/usr/bin/git"
    _, command = spawn(grant(["process:exec:git"]), "git", [Liar("--true", "--claimed")])
    assert command.argv == ("git", "--true")
    assert type(command.argv[1]) is str


@pytest.mark.parametrize("args", [["a\0b"], [b"bytes"], [1], [None]])
def test_arguments_are_text(args: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="expected text"):
        spawn(grant(["process:exec:git"]), "git", args)


ENVIRONMENTS: list[tuple[list[str], Mapping[str, str], Any]] = [
    ([], {}, {}),
    (["LANG"], {}, {"LANG": "C"}),
    (["LANG", "UNSET"], {}, {"LANG": "C"}),
    (["LANG"], {"LANG": "de"}, {"LANG": "de"}),
    (["UNSET"], {"UNSET": "x"}, {"UNSET": "x"}),
    (["*"], {}, {}),
    (["*"], {"LD_PRELOAD": "/tmp/x.so"}, "ENV_NOT_ALLOWED"),
    (["LANG"], {"LD_PRELOAD": "/tmp/x.so"}, "ENV_NOT_ALLOWED"),
    ([], {"PATH": "/tmp"}, "ENV_NOT_ALLOWED"),
    (["LANG"], {"A=B": "x"}, "ENV_NOT_ALLOWED"),
    (["LANG"], {"": "x"}, "ENV_NOT_ALLOWED"),
]


@pytest.mark.parametrize(("needs", "given", "expected"), ENVIRONMENTS)
def test_the_environment_holds_declared_names_alone(needs: list[str], given: Any, expected: Any) -> None:
    held = grant(["process:exec:git", *(f"env:read:{one}" for one in needs)])
    if isinstance(expected, dict):
        assert spawn(held, "git", env=given)[1].environment == expected
    else:
        assert refused(held, "git", env=given).code == expected


def test_a_denied_variable_stays_out() -> None:
    held = grant(["process:exec:git", "env:read:LANG", "env:read:PATH"], deny=["env:read:PATH"])
    assert spawn(held, "git")[1].environment == {"LANG": "C"}
    assert refused(held, "git", env={"PATH": "/tmp"}).code == "ENV_NOT_ALLOWED"


def test_a_secret_is_placed_in_the_environment_and_nowhere_else() -> None:
    redactor = Redactor()
    held = grant(["process:exec:git", "env:read:TOKEN", "secret:read:github/token"])
    secrets = ScopedSecrets(held, MemorySecrets({"github/token": "ghp_12345678"}), redactor)
    place = secrets.ref("github/token")
    _, command = spawn(
        held, "git", [place], place.encode(), env={"TOKEN": f"x-{place}"}, made={"placeholders": secrets}
    )
    assert command.environment == {"TOKEN": "x-ghp_12345678"}
    assert command.argv == ("git", place)
    assert command.stdin == place.encode()
    assert redactor.text("ghp_12345678") == "[redacted github/token]"


def test_the_child_starts_inside_what_the_call_may_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "deep").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "loop").symlink_to("deep")
    held = grant(["process:exec:git", f"fs:read:{inside}"], deny=[f"fs:read:{inside}/no"])
    made = {"workdir": str(inside)}
    for cwd, where in ((None, inside), ("deep", inside / "deep"), (inside / "loop", inside / "deep"), (".", inside)):
        assert spawn(held, "git", cwd=cwd, made=made)[1].directory == str(where)
    for cwd in (outside, "link", "..", "/", "deep/../../out", "no", "no/deeper", "a\0b"):
        assert refused(held, "git", cwd=cwd, made=made).code == "PATH_NOT_REACHABLE"
    for cwd in ("link", "..", "deep/../../out"):
        said = str(refused(held, "git", cwd=cwd, made=made))
        assert said == f"PATH_NOT_REACHABLE: read not permitted for {cwd}"
    assert spawn(grant(["process:exec:git"]), "git", made=made)[1].directory == "/"


@pytest.mark.parametrize(
    ("held", "starts"),
    [
        ("fs:read:{at}/deep", True),  # the working directory is then there, as what is above it
        ("fs:write:{at}/deep", True),
        ("fs:read:{at}/nothing", False),
        ("fs:read:{at}/link", False),  # where it leads is somewhere else
        ("fs:read:{at}er/deep", False),
        ("fs:delete:{at}/deep", False),
    ],
)
def test_the_child_starts_in_the_working_directory_if_something_in_it_is_held(
    tmp_path: Path, held: str, starts: bool
) -> None:
    at = tmp_path / "work"
    for place in (at / "deep", tmp_path / "out", tmp_path / "worker" / "deep"):
        place.mkdir(parents=True)
    (at / "link").symlink_to(tmp_path / "out")
    started = spawn(grant(["process:exec:git", held.format(at=at)]), "git", made={"workdir": str(at)})
    assert started[1].directory == (str(at.resolve()) if starts else "/")


def test_without_walls_nothing_starts() -> None:
    held = grant(["process:exec:git"])
    error = refused(held, "git", sandbox=Bare())
    assert str(error) == "SANDBOX_UNAVAILABLE: git cannot be run: this machine has no walls yet"
    handle = ScopedProcesses(held, MemoryProcesses({}), None, binaries=REAL)
    with pytest.raises(Refused, match="SANDBOX_UNAVAILABLE"):
        asyncio.run(handle.spawn("git"))


def test_no_secret_is_fetched_for_a_child_that_will_not_run() -> None:
    asked: list[str] = []

    async def backend(reference: str) -> str:
        asked.append(reference)
        return "value"

    held = grant(["process:exec:git", "env:read:TOKEN", "secret:read:T"])
    secrets = ScopedSecrets(held, backend, Redactor())
    refused(held, "git", env={"TOKEN": secrets.ref("T")}, sandbox=Bare(), made={"placeholders": secrets})
    assert asked == []


def test_the_walls_are_made_for_this_call() -> None:
    sandbox, held = Sandbox(), grant(["process:exec:git"])
    spawn(held, "git", sandbox=sandbox)
    assert sandbox.held == [held]


class Failing(MemoryProcesses):
    def __init__(self, error: Exception) -> None:
        super().__init__({})
        self.error = error

    async def run(self, command: Command, walls: Any) -> Finished:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "/usr/bin/git"), "git could not be started: Permission denied"),
        (Unavailable("programs are run on Linux only"), "git could not be run here"),
    ],
)
def test_a_program_that_cannot_start_is_a_refusal_without_paths(error: Exception, said: str) -> None:
    found = refused(grant(["process:exec:git"]), "git", programs=Failing(error))
    assert str(found) == f"BACKEND_MISSING: {said}"


def test_every_check_is_an_event() -> None:
    seen: list[Any] = []
    spawn(grant(["process:exec:git", "env:read:LANG"], seen=seen), "git")
    assert [event.capability for event in seen] == ["process:exec:git", "env:read:LANG"]
    seen.clear()
    refused(grant(["process:exec:*"], deny=["process:exec:/usr/bin/git"], seen=seen), "git")
    assert [(type(event).__name__, event.capability) for event in seen] == [
        ("CapabilityDenied", "process:exec:/usr/bin/git")
    ]


def test_it_ends_with_its_call() -> None:
    held = grant(["process:exec:git"])
    held.over = True
    assert refused(held, "git").code == "SESSION_ENDED"
