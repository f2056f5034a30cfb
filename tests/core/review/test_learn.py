"""`learn`: the rules that recordings need, and nothing beyond what is said about generalising."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from licet.core.algebra.rules import Use
from licet.core.algebra.set import CapabilitySet
from licet.core.review.recording_lines import BadRecording, Recorded, RecordingStart, Touch, use_of_text
from licet.core.review.sensitive import (
    GIT,
    GIT_LEADS,
    Whereabouts,
    above_each,
    is_wide_directory,
    why_path,
    why_sensitive,
)
from licet.learn.learn import Learned, Surroundings, learn

WORKDIR, HOME = "/home/me/w", "/home/me"
WHERE = Whereabouts(WORKDIR, HOME)
SUFFIXES = {"github.io", "co.uk"}


def recorded(touches: Iterable[Touch]) -> Recorded:
    found = Recorded()
    for one in touches:
        found.add(one)
    return found


def touches(*uses: str) -> list[Touch]:
    """Uses; `!` before one says that it was refused."""
    return [
        Touch(
            time=1,
            call="process 1",
            tool="make",
            use=use.lstrip("!"),
            outcome="refused" if use.startswith("!") else "used",
        )
        for use in uses
    ]


def learned(*uses: str, around: Surroundings | None = None) -> Learned:
    return learn(recorded(touches(*uses)), around or Surroundings(WHERE))


def rules(found: Learned, kind: str = "allow") -> list[str]:
    return [str(line.rule) for line in found.lines if line.kind == kind]


def reads(*paths: str) -> list[str]:
    return [f"fs:read:{path}" for path in paths]


# Generalising ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("used", "expected"), [
    ("/srv/d/a /srv/d/b", "/srv/d/a /srv/d/b"),
    ("/srv/d/a /srv/d/b /srv/d/c", "/srv/d"),
    ("/srv/a /srv/b /srv/c", "/srv/a /srv/b /srv/c"),  # never a top-level directory
    ("/a /b /c", ""),  # they may be top-level directories
    ("/home/me/a /home/me/b /home/me/c", "/home/me/a /home/me/b /home/me/c"),  # never the home
    # Outside of the working directory it does not repeat.
    ("/srv/d/1/a /srv/d/1/b /srv/d/1/c /srv/d/2/a /srv/d/2/b /srv/d/2/c /srv/d/3/a /srv/d/3/b /srv/d/3/c",
        "/srv/d/1 /srv/d/2 /srv/d/3"),
    # Inside it does, up to the working directory.
    (" ".join(f"{WORKDIR}/{one}/{other}" for one in "xyz" for other in "abc"), WORKDIR),
    (f"{WORKDIR}/x/a {WORKDIR}/y/a {WORKDIR}/z/a", f"{WORKDIR}/x/a {WORKDIR}/y/a {WORKDIR}/z/a"),
    # A directory that was listed is covered as a whole.
    ("/srv/d /srv/d/x/y", "/srv/d"),
    # No directory is made of the siblings of something sensitive.
    (f"{WORKDIR}/a {WORKDIR}/b {WORKDIR}/c {WORKDIR}/.env", f"{WORKDIR}/a {WORKDIR}/b {WORKDIR}/c"),
    (f"{WORKDIR}/x/a {WORKDIR}/x/b {WORKDIR}/x/c {WORKDIR}/x/y/id_rsa", " ".join(f"{WORKDIR}/x/{n}" for n in "abc")),
])  # fmt: skip
def test_siblings_become_their_directory(used: str, expected: str) -> None:
    assert rules(learned(*reads(*used.split()))) == reads(*expected.split())


def test_reads_and_writes_are_counted_apart() -> None:
    found = learned("fs:write:/srv/d/a", "fs:write:/srv/d/b", *reads("/srv/d/c", "/srv/d/d", "/srv/d/e"))
    assert rules(found) == ["fs:read:/srv/d", "fs:write:/srv/d/a", "fs:write:/srv/d/b"]


def test_a_file_that_is_gone_becomes_its_directory() -> None:
    created = frozenset({f"{WORKDIR}/out/tmp1", f"{WORKDIR}/keys/tmp2", "/home/me/tmp3"})
    around = Surroundings(WHERE, created=created)
    uses = [f"fs:{action}:{path}" for path in sorted(created) for action in ("read", "write")]
    found = learned(*uses, f"fs:read:{WORKDIR}/keys/id_rsa", around=around)
    assert [rule for rule in rules(found) if "write" in rule] == [
        f"fs:write:{path}" for path in ("/home/me/tmp3", f"{WORKDIR}/keys/tmp2", f"{WORKDIR}/out")
    ]
    assert f"fs:read:{WORKDIR}/out" in rules(found)  # it reads what it makes


W = WORKDIR
OBSERVED = Surroundings(WHERE, is_program=True, readable=("/usr",), repositories=(f"{W}/.git",))


@pytest.mark.parametrize(("made", "used", "expected", "denied"), [
    # A program that makes names needs the directory that is there before. It may read what it made.
    ((f"{W}/out.txt",), (f"fs:write:{W}/out.txt",), [f"fs:read:{W}/out.txt", f"fs:write:{W}"],
        [f"fs:write:{W}/.git"]),
    ((f"{W}/out/a",), (f"fs:write:{W}/out/a",), [f"fs:read:{W}/out/a", f"fs:write:{W}/out"], []),
    ((), (f"fs:write:{W}/out/a",), [f"fs:write:{W}/out/a"], []),
    # Not in the home, nor in the temporary directory of everybody.
    ((f"{HOME}/x",), (f"fs:write:{HOME}/x",), [f"fs:read:{HOME}/x", f"fs:write:{HOME}/x"], []),
    # Python does without its compiled files, so they open nothing else.
    ((f"{W}/m/__pycache__", f"{W}/m/__pycache__/m.cpython-311.pyc.281473"),
        (f"fs:write:{W}/m/__pycache__", f"fs:write:{W}/m/__pycache__/m.cpython-311.pyc.281473"),
        [f"fs:read:{W}/m/__pycache__", f"fs:write:{W}/m/__pycache__"], []),
    # What a program starts it must be able to read, and one line says what licet starts.
    ((), ("process:exec:/usr/bin/cc", f"process:exec:{W}/a.out"), [f"fs:read:{W}/a.out"], []),
    # Toolchains in the home are installed programs.
    ((), (f"process:exec:{HOME}/.pyenv/versions/3.12.1/bin/python", f"fs:read:{HOME}/.pyenv/versions/3.12.1/lib/a"),
        [f"fs:read:{HOME}/.pyenv/versions/3.12.1"], []),
])  # fmt: skip
def test_what_a_program_makes_and_starts(
    made: tuple[str, ...], used: tuple[str, ...], expected: list[str], denied: list[str]
) -> None:
    found = learned(*used, around=replace(OBSERVED, created=frozenset(made)))
    assert (rules(found), rules(found, "deny"), rules(found, "sensitive")) == (expected, denied, [])


@pytest.mark.parametrize(("made", "used", "expected"), [
    # Caches in the home become one comment.
    ((), (f"fs:read:{HOME}/.cache/pip/http/a/b/c", f"fs:read:{HOME}/.cache/pip/http/d/e"),
        [f"fs:read:{HOME}/.cache/pip"]),
    ((), (f"fs:write:{HOME}/.npm/_cacache/tmp/1a2b3c",), [f"fs:write:{HOME}/.npm/_cacache"]),
    # A file that is made, moved and deleted has another name each time: the comment is about its directory.
    ((f"{W}/sedAbCdEf",), (f"fs:delete:{W}/sedAbCdEf",), [f"fs:delete:{W}"]),
    ((), (f"fs:delete:{W}/out/tmp.q7XbT1b2zY",), [f"fs:delete:{W}/out"]),
    ((), (f"fs:delete:{W}/out/old",), [f"fs:delete:{W}/out/old"]),
    # A toolchain is read, not written; its neighbours may hold secrets.
    ((), (f"fs:write:{HOME}/.pyenv/versions/3.12.1/lib/a",), [f"fs:write:{HOME}/.pyenv/versions/3.12.1/lib/a"]),
    ((), (f"fs:read:{HOME}/.cargo/credentials.toml",), [f"fs:read:{HOME}/.cargo/credentials.toml"]),
])  # fmt: skip
def test_what_a_person_decides_is_one_comment_for_names_that_change(
    made: tuple[str, ...], used: tuple[str, ...], expected: list[str]
) -> None:
    found = learned(*used, around=replace(OBSERVED, created=frozenset(made)))
    assert (rules(found, "sensitive"), rules(found)) == (expected, [])


def test_no_directory_is_made_of_the_siblings_of_what_was_refused() -> None:
    found = learned(*reads("/srv/d/a", "/srv/d/b", "/srv/d/c"), "!fs:read:/srv/d/e")
    assert rules(found) == reads("/srv/d/a", "/srv/d/b", "/srv/d/c")
    assert found.refused == 1


def test_a_use_that_was_refused_once_and_happened_later_counts() -> None:
    assert rules(learned("!fs:read:/srv/d/a", "fs:read:/srv/d/a")) == ["fs:read:/srv/d/a"]


HOSTS = [f"network:https:get@{name}:443" for name in ("a.x.org", "b.x.org", "c.x.org")]


@pytest.mark.parametrize(("uses", "expected"), [
    (HOSTS, ["network:read:https://*.x.org:443"]),
    (HOSTS[:2], ["network:read:https://a.x.org:443", "network:read:https://b.x.org:443"]),
    ([*HOSTS, "!network:https:get@d.x.org:443"], [f"network:read:https://{n}.x.org:443" for n in "abc"]),
    ([use.replace("x.org", "github.io") for use in HOSTS], [f"network:read:https://{n}.github.io:443" for n in "abc"]),
    ([use.replace("x.org", "org") for use in HOSTS], [f"network:read:https://{n}.org:443" for n in "abc"]),
])  # fmt: skip
def test_host_names_are_generalised_only_on_demand(uses: list[str], expected: list[str]) -> None:
    assert "*" not in "".join(rules(learned(*uses)))
    assert rules(learned(*uses, around=Surroundings(WHERE, is_suffix=SUFFIXES.__contains__))) == expected


def test_methods_with_one_effect_are_one_rule() -> None:
    found = learned("network:https:get@x.org:443", "network:https:head@x.org:443", "network:https:put@x.org:443")
    assert rules(found) == ["network:read:https://x.org:443", "network:write:https://x.org:443"]
    assert found.effect == "write_limited"


# What a program makes -------------------------------------------------------------------------------------------------

BUILT = (f"fs:write:{W}/dist", f"fs:write:{W}/dist/a.js", f"fs:write:{W}/dist/deep", f"fs:write:{W}/dist/deep/b.js")
THERE = {W: ["package.json", "src", "node_modules", "dist"], f"{W}/node_modules": ["vite", ".cache"]}


def made(
    *names: str, directories: Iterable[str] = (), removed: Iterable[str] = (), names_in: Mapping[str, list[str]] = THERE
) -> Surroundings:
    """A project in which a program made some names; `directories` are those of them that are."""
    created = frozenset(f"{W}/{name}" for name in (*names, *directories))
    return replace(
        OBSERVED,
        repositories=(),
        created=created,
        directories=frozenset(f"{W}/{name}" for name in directories),
        removed=frozenset(f"{W}/{name}" for name in removed),
        names_in=lambda directory: names_in.get(directory, []),
    )


@pytest.mark.parametrize(("used", "around", "written", "denied", "commented"), [
    # A directory that it makes is one line, and nothing around it opens.
    (BUILT, made("dist/a.js", "dist/deep/b.js", directories=["dist", "dist/deep"]), ["dist"], [], ["delete dist"]),
    # So is one in a directory that was there.
    ((f"fs:write:{W}/node_modules/.vite", f"fs:write:{W}/node_modules/.vite/a"),
        made("node_modules/.vite/a", directories=["node_modules/.vite"]), ["node_modules/.vite"], [],
        ["delete node_modules/.vite"]),
    # Three of them do not become the directory that they are in.
    (tuple(f"fs:write:{W}/lib/{name}/x" for name in "abc"), made(directories=["lib/a", "lib/b", "lib/c"]),
        ["lib/a", "lib/b", "lib/c"], [], ["delete lib/a", "delete lib/b", "delete lib/c"]),
    # Nine do: their names may be others each time.
    (tuple(f"fs:write:{W}/lib/{name}/x" for name in "abcdefghi"), made(directories=[f"lib/{n}" for n in "abcdefghi"]),
        ["lib"], [], ["delete lib"]),
    # One that it removes, and makes again, is a name in the directory around it: the rest of that is closed.
    ((*BUILT, f"fs:delete:{W}/dist"), made("dist/a.js", directories=["dist", "dist/deep"], removed=["dist"]), [""],
        ["package.json", "src", "node_modules"], ["delete "]),
    # So is a new file at the top of the project.
    ((f"fs:write:{W}/a.o",), made("a.o"), [""], ["package.json", "src", "node_modules", "dist"], []),
    # What was written there stays open, alone: it may be replaced by a new file.
    ((f"fs:write:{W}/a.o", f"fs:write:{W}/package.json"), made("a.o"), [""], ["src", "node_modules", "dist"], []),
    ((f"fs:write:{W}/a.o", f"fs:write:{W}/node_modules/.cache/x"), made("a.o"), [""],
        ["package.json", "src", "node_modules/vite", "dist"], []),
    # Beside too much else it is left to a person.
    ((f"fs:write:{W}/a.o",), made("a.o", names_in={W: [f"f{number}" for number in range(101)]}), ["a.o"], [],
        ["write "]),
    # Single files that were there stay single, however many there are.
    (tuple(f"fs:write:{W}/{name}" for name in "abcd"), made(), ["a", "b", "c", "d"], [], []),
])  # fmt: skip
def test_a_program_may_write_where_it_made_something_and_nothing_else(
    used: Sequence[str],
    around: Surroundings,
    written: Sequence[str],
    denied: Sequence[str],
    commented: Sequence[str],
) -> None:
    found = learned(*used, around=around)

    def place(rule: str) -> str:
        return rule.partition(":/")[2].removeprefix(W[1:]).removeprefix("/")

    assert [place(rule) for rule in rules(found) if ":write:" in rule] == sorted(written)
    assert {place(rule) for rule in rules(found, "deny")} == set(denied)
    assert sorted(f"{rule.split(':')[1]} {place(rule)}" for rule in rules(found, "sensitive")) == sorted(commented)


def test_what_it_makes_may_be_read_in_the_next_run() -> None:
    around = made("a.o", "dist/a.js", directories=["dist", "dist/deep"], names_in={})
    assert "fs:read:/home/me/w/dist" in rules(learned(*BUILT, around=made("dist/a.js", directories=["dist"])))
    assert f"fs:read:{W}/a.o" in rules(learned(*BUILT, f"fs:write:{W}/a.o", around=around))


def test_what_it_makes_beside_a_secret_may_not_be_read_as_a_whole() -> None:
    found = learned(f"fs:write:{W}/a", f"fs:read:{W}/a/.env", around=made("a", names_in={}))
    assert not CapabilitySet(rules(found)).has(f"fs:read:{W}/a/.env")


def deleted(path: str, *, own: bool) -> Touch:
    return Touch(time=1, call="process 1", tool="make", use=f"fs:delete:{path}", made=own or UNSET)


@pytest.mark.parametrize("own", [True, False])
def test_a_delete_says_whether_the_same_run_had_made_it(own: bool) -> None:
    (line,) = learn(recorded([deleted(f"{W}/out/a", own=own)]), OBSERVED).lines
    assert line.why == ("a delete of what the same run had made" if own else "a delete")


def test_who_deletes_both_is_asked_once() -> None:
    around = made(directories=["out"])
    found = learn(recorded([deleted(f"{W}/out/a", own=True), deleted(f"{W}/out/b", own=False)]), around)
    assert [(str(line.rule), line.why) for line in found.lines] == [(f"fs:delete:{W}/out", "a delete")]


COMMAND = RecordingStart(source="program", started=1, command=("vite", "build"), workdir=W, home=HOME)


def runs(*recordings: Sequence[Touch], commands: Sequence[tuple[str, ...]] = ()) -> Recorded:
    """Recordings of one command, or of several."""
    found = Recorded()
    for number, lines in enumerate(recordings):
        found.begin(replace(COMMAND, command=commands[number]) if commands else COMMAND)
        for one in lines:
            found.add(one)
    return found


MAKES = [Touch(time=1, call="c", tool="t", use=f"fs:write:{W}/dist", made=True, directory=True)]
FINDS = touches(f"fs:write:{W}/dist/a.js")
REMAKES = [deleted(f"{W}/dist", own=False), *MAKES]


@pytest.mark.parametrize(("recordings", "commands", "once"), [
    ([MAKES], (), True),
    ([MAKES, MAKES], (), True),
    ([MAKES, FINDS], (), False),
    ([FINDS, MAKES], (), False),
    ([MAKES, REMAKES], (), False),
    ([REMAKES], (), False),
    ([MAKES, FINDS], (("vite", "build"), ("vite", "preview")), True),
    ([FINDS], (), False),
])  # fmt: skip
def test_a_directory_that_was_made_once_asks_for_a_second_recording(
    recordings: Sequence[Sequence[Touch]], commands: Sequence[tuple[str, ...]], once: bool
) -> None:
    assert runs(*recordings, commands=commands).made_once(f"{W}/dist") is once


def test_what_served_to_make_a_directory_is_not_needed_once_it_is_there() -> None:
    passing = f"{W}/pytest-cache-files-6fdmhwza"
    first = [
        Touch(time=1, call="c", tool="t", use=f"fs:write:{passing}", made=True, directory=True),
        deleted(passing, own=True),
        Touch(time=1, call="c", tool="t", use=f"fs:write:{W}/.pytest_cache", made=True, directory=True),
    ]
    around = made(directories=[".pytest_cache", passing.rpartition("/")[2]])
    alone, twice = (
        [rule for rule in rules(learn(found, around)) if ":write:" in rule]
        for found in (runs(first), runs(first, touches(f"fs:write:{W}/.pytest_cache/x")))
    )
    assert (alone, twice) == ([f"fs:write:{W}"], [f"fs:write:{W}/.pytest_cache"])


def test_compiled_files_of_an_environment_are_no_line() -> None:
    path = f"{W}/.venv/lib/m/__pycache__/m.cpython-311.pyc.281473"
    found = learned(f"fs:write:{path}", f"fs:delete:{path}", around=made(path.removeprefix(f"{W}/")))
    assert [line for line in found.lines if line.rule.domain == "fs"] == []
    assert [one.why for one in found.left_out] == ["Python does without them"]


# Files that git obeys -------------------------------------------------------------------------------------------------

GIT_FILES = [f"fs:write:{WORKDIR}/.git/{name}" for name in ("index", "HEAD", "ORIG_HEAD", "index.lock")]


def below(*places: str) -> Callable[[str], bool]:
    """Whether a path is one of some repositories, or above one."""
    return lambda path: any(place == path or place.startswith(f"{path}/") for place in places)


@pytest.mark.parametrize(("uses", "there", "allowed", "commented"), [
    # Files of git never become `.git`, also not as a comment, and are never allowed by themselves.
    (GIT_FILES, "", "", f"{WORKDIR}/.git/HEAD {WORKDIR}/.git/ORIG_HEAD {WORKDIR}/.git/index {WORKDIR}/.git/index.lock"),
    ([f"fs:write:{WORKDIR}/.git/objects/ab/{n}" for n in "123"], "", "", f"{WORKDIR}/.git/objects/ab"),
    # A directory above a repository that is there, or that was used.
    ([f"fs:write:{WORKDIR}/{n}" for n in "abc"], f"{WORKDIR}/.git", " ".join(f"{WORKDIR}/{n}" for n in "abc"), ""),
    ([f"fs:write:{WORKDIR}"], f"{WORKDIR}/.git", "", WORKDIR),
    ([f"fs:write:{WORKDIR}", f"fs:read:{WORKDIR}/x/.git/HEAD"], "", "", WORKDIR),
    ([f"fs:write:{WORKDIR}/x/gone"], f"{WORKDIR}/x/y/.git", f"{WORKDIR}/x/gone", f"{WORKDIR}/x"),
    ([f"fs:write:{WORKDIR}/x/gone"], "", f"{WORKDIR}/x", ""),
])  # fmt: skip
def test_no_draft_lets_a_program_write_what_git_runs(uses: list[str], there: str, allowed: str, commented: str) -> None:
    around = Surroundings(WHERE, created=frozenset({f"{WORKDIR}/x/gone"}), reaches_git=below(*there.split()))
    found = learned(*uses, around=around)
    assert [rule for rule in rules(found) if "write" in rule] == [f"fs:write:{path}" for path in allowed.split()]
    assert rules(found, "sensitive") == [f"fs:write:{path}" for path in commented.split()]
    assert {line.why for line in found.lines if line.kind == "sensitive"} <= {GIT}


def test_a_program_that_commits_may_still_read_its_project() -> None:
    found = learned(*GIT_FILES, *reads(*(f"{WORKDIR}/.git/{n}" for n in ("index", "HEAD", "config"))))
    assert rules(found) == [f"fs:read:{WORKDIR}/.git"]


@pytest.mark.parametrize(
    ("written", "closed"),
    [
        ((), GIT_LEADS),
        (("config", "config.lock", "hooks/x"), [one for one in GIT_LEADS if one not in ("config", "hooks")]),
    ],
)
def test_who_agrees_to_commits_opens_nothing_that_leads_git_to_programs(
    written: Sequence[str], closed: Sequence[str]
) -> None:
    lock = f"{WORKDIR}/.git/index.lock"
    used = [f"fs:write:{lock}", *(f"fs:write:{WORKDIR}/.git/{name}" for name in written)]
    found = learned(*used, around=Surroundings(WHERE, created=frozenset({lock})))
    assert f"fs:write:{WORKDIR}/.git" in rules(found, "sensitive")
    assert rules(found, "deny") == [f"fs:write:{WORKDIR}/.git/{name}" for name in sorted(closed)]
    made = Surroundings(WHERE, created=frozenset({lock, f"{WORKDIR}/.git"}))
    assert rules(learned(*used, around=made), "deny") == []  # it makes the repository itself


def test_a_line_that_was_taken_back_is_no_use() -> None:
    (one,) = touches("fs:read:/srv/d/a")
    assert not learn(recorded([replace(one, count=0)]), Surroundings(WHERE)).lines


# Sensitive uses, and those that need no line --------------------------------------------------------------------------


def test_a_sensitive_path_in_a_listed_directory_is_denied() -> None:
    found = learned(*reads(WORKDIR, f"{WORKDIR}/.env", f"{WORKDIR}/a"))
    assert rules(found) == [f"fs:read:{WORKDIR}"]
    assert rules(found, "sensitive") == [f"fs:read:{WORKDIR}/.env"]
    assert rules(found, "deny") == [f"fs:*:{WORKDIR}/.env"]


def test_what_may_not_be_written_may_still_be_read() -> None:
    found = learned(f"fs:write:{WORKDIR}/d", f"fs:write:{WORKDIR}/d/.vscode/tasks.json")
    assert rules(found) == [f"fs:write:{WORKDIR}/d"]
    assert rules(found, "deny") == [f"fs:write:{WORKDIR}/d/.vscode/tasks.json"]


def test_new_names_beside_what_others_trust_can_be_made_and_it_is_denied_whole() -> None:
    made = frozenset({f"{W}/.cache", f"{W}/.cache/x"})
    uses = (
        f"fs:write:{W}/.cache",
        f"fs:write:{W}/.cache/x",
        f"fs:write:{W}/.venv/lib/m.py",
        f"fs:write:{W}/.git/index",
    )
    around = replace(OBSERVED, created=made, trusted_files=frozenset({f"{W}/.venv"}))
    found = learned(*uses, around=around)
    assert [rule for rule in rules(found) if "write" in rule] == [f"fs:write:{W}"]
    assert rules(found, "deny") == [f"fs:write:{W}/.git", f"fs:write:{W}/.venv"]
    # What is not known to be there is not denied whole, so the directory that it is in stays closed.
    found = learned(*uses, around=replace(around, trusted_files=frozenset()))
    assert [rule for rule in rules(found) if "write" in rule] == [f"fs:write:{W}/.cache"]


def test_compiled_files_that_are_being_written_are_source_too() -> None:
    path = f"{W}/lib/__pycache__/token.cpython-311.pyc.281473234038704"
    assert (why_path(path, WHERE), bool(why_path(f"{W}/lib/token.281473234038704", WHERE))) == ("", True)


@pytest.mark.parametrize("home", [HOME, "/root", "/home/other"])
def test_a_toolchain_is_one_line_in_any_home(home: str) -> None:
    python = f"{home}/.pyenv/versions/3.11.7"
    found = learned(*reads(f"{python}/bin/python3.11", f"{python}/lib/libpython3.so", f"{home}/.pyenv/secrets"))
    assert rules(found) == [f"fs:read:{python}"]
    assert rules(found, "sensitive") == [f"fs:read:{home}/.pyenv/secrets"]


def test_deletes_are_left_to_a_person_and_make_no_class() -> None:
    found = learned(f"fs:delete:{WORKDIR}/x/a")
    assert (rules(found), rules(found, "sensitive")) == ([], [f"fs:delete:{WORKDIR}/x/a"])
    assert found.effect == "read_only"


PROGRAM = Surroundings(WHERE, readable=("/usr", "/proc", "/dev/null"), scratch=("/tmp", "/var/tmp"))


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (["fs:read:/usr/lib/x"], []),
        (["fs:write:/srv/lib/x"], ["fs:write:/srv/lib/x"]),
        (["fs:read:/tmp", "fs:write:/tmp/x", "fs:read:/tmp/x/y", "fs:delete:/tmp/x"], []),
        (["fs:read:/tmp/of/others"], ["fs:read:/tmp/of/others"]),
        (["storage:write:session"], []),
        (["storage:write:personality"], ["storage:write:personality"]),
    ],
)
def test_what_every_program_has_needs_no_line(uses: list[str], expected: list[str]) -> None:
    found = learned(*uses, around=PROGRAM)
    assert rules(found) == expected
    assert not rules(found, "sensitive")


def test_what_the_policy_denies_and_what_no_rule_can_name_is_left_out() -> None:
    around = Surroundings(WHERE, denied=CapabilitySet(("fs:*:/srv/d/a",)))
    uses = ("fs:read:/srv/d/a", "fs:read:/srv/d/b*", "fs:read:/srv/d/c", "fs:read:/srv/d/d[redacted TOKEN]")
    found = learned(*uses, around=around)
    assert rules(found) == ["fs:read:/srv/d/c"]
    assert [(one.what, one.why.partition(":")[0]) for one in found.left_out] == [
        ("fs:read:/srv/d/a", "the policy denies it"),
        ("fs:read:/srv/d/b*", "no rule can name it"),
        ("fs:read:/srv/d/d[redacted TOKEN]", "a secret was taken out of it"),
    ]


@pytest.mark.parametrize("use", ["", "fs", "fs:read:relative", "fs:eat:/x", "network:https:get@*:443", "tool:call:*"])
def test_a_line_without_a_use_is_refused(use: str) -> None:
    with pytest.raises(BadRecording, match="is no use"):
        recorded(touches(use))


# Calls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        ([("process 3", "git", 1)], "1 read by git, process 3"),
        ([("process 3", "git", 12)], "12 reads by git, process 3"),
        ([("process 3", "git", 2), ("process 2", "sh", 1)], "3 reads by git and 1 more, first process 3"),
        ([("process 3", "a\nb", 1)], "1 read by a\\u000ab, process 3"),
        ([("process 3", "x" * 99, 1)], f"1 read by {'x' * 60}…, process 3"),
    ],
)
def test_a_line_cites_its_calls(calls: list[tuple[str, str, int]], text: str) -> None:
    lines = [
        Touch(time=time, call=call, tool=tool, use="fs:read:/srv/d/a", count=count)
        for time, (call, tool, count) in enumerate(calls)
    ]
    for order in (lines, lines[::-1]):
        (line,) = learn(recorded(order), Surroundings(WHERE)).lines
        assert line.calls == text


# Properties -----------------------------------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d", ".env", ".ssh", ".config", "id_rsa"]
ROOTS = [WORKDIR, HOME, "/etc", "/srv/data", ""]
paths = st.builds(
    lambda root, parts: "/".join([root, *parts]) or "/",
    st.sampled_from(ROOTS),
    st.lists(st.sampled_from(NAMES), max_size=3),
)
hosts = st.sampled_from(
    ["a.x.org", "b.x.org", "c.x.org", "x.org", "a.github.io", "localhost", "10.0.0.1", "169.254.169.254"]
)
uses = st.one_of(
    st.builds("fs:{}:{}".format, st.sampled_from(["read", "read", "write", "delete"]), paths),
    st.builds("network:https:{}@{}:443".format, st.sampled_from(["get", "post", "delete", "other"]), hosts),
    st.builds("process:exec:{}".format, st.sampled_from(["/usr/bin/git", "git", "/srv/data/run"])),
)
lines = st.builds(
    Touch,
    time=st.integers(0, 9),
    call=st.sampled_from(["process 1", "process 2"]),
    tool=st.sampled_from(["make", "git"]),
    use=uses,
    outcome=st.sampled_from(["used", "used", "used", "refused"]),
    count=st.integers(1, 3),
)
recordings = st.lists(lines, max_size=30)


@given(recordings)
def test_every_ordinary_use_is_covered_and_nothing_sensitive(touched: list[Touch]) -> None:
    found = learn(recorded(touched), Surroundings(WHERE))
    used = {use_of_text(one.use) for one in touched if one.outcome == "used"}
    directories = above_each(use.target.rpartition("/")[0] for use in used if use.domain == "fs")
    sensitive = {use for use in used if why_sensitive(use, WHERE, directories)}
    held = CapabilitySet(rules(found), rules(found, "deny"))
    assert [str(use) for use in used - sensitive if not held.has(use)] == []
    assert [str(use) for use in sensitive if held.has(use)] == []
    assert set(found.wanted) == used - sensitive
    assert all(any(line.kind == "sensitive" and _covers(line.rule, use) for line in found.lines) for use in sensitive)


def _covers(rule: object, use: Use) -> bool:
    return CapabilitySet((str(rule),)).has(use)


@given(recordings)
def test_no_rule_covers_more_than_is_said_about_generalising(touched: list[Touch]) -> None:
    found = learn(recorded(touched), Surroundings(WHERE))
    used = {use_of_text(one.use) for one in touched if one.outcome == "used"}
    refused = {use_of_text(one.use) for one in touched if one.outcome == "refused"} - used
    directories = above_each(use.target.rpartition("/")[0] for use in used if use.domain == "fs")
    avoided = {
        use
        for use in used | refused
        if use.domain == "fs" and use.effect != "delete" and (use in refused or why_sensitive(use, WHERE, directories))
    }
    only_written = {use for use in used & avoided if use.action == "write" and not why_path(use.target, WHERE)}

    def is_fine(path: str, action: str) -> bool:
        closed = {use.target for use in (avoided if action == "write" else avoided - only_written)}
        mine = {use.target for use in used if use.domain == "fs" and use.action == action}
        if path in mine:
            return True
        below = {"/".join(one.split("/")[: path.count("/") + 2]) for one in mine if one.startswith(f"{path}/")}
        inner = path == WORKDIR or path.startswith(f"{WORKDIR}/")
        siblings = [one for one in below if one in mine or (inner and is_fine(one, action))]
        apart = any(one == path or one.startswith(f"{path}/") for one in closed)
        return len(siblings) >= 3 and not (apart or is_wide_directory(path, WHERE) or why_path(path, WHERE, {path}))

    for line in found.lines:
        if line.kind == "allow" and line.rule.domain == "fs":
            assert is_fine(line.rule.key, line.rule.action), str(line.rule)
            assert line.rule.action != "delete"
        elif line.kind == "allow" and line.rule.domain == "network":
            assert line.rule.key in {use.target for use in used if use.domain == "network"}
            assert line.rule.port == 443


@given(recordings, st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(touched: list[Touch], chance: random.Random) -> None:
    shuffled = list(touched)
    chance.shuffle(shuffled)
    around = Surroundings(WHERE, is_suffix=SUFFIXES.__contains__)
    assert learn(recorded(shuffled), around) == learn(recorded(touched), around)


@pytest.mark.parametrize(("uses", "allowed", "commented"), [
    (f"write:{WORKDIR}/out/pytest-cache-files-6fdmhwza", f"write:{WORKDIR}/out", ""),
    (f"write:{WORKDIR}/out/pytest-cache-files-6fdmhwza/CACHEDIR.TAG", f"write:{WORKDIR}/out", ""),
    (f"read:{WORKDIR}/logs/3f0c5b52-8d1f-4d41-9d8e-07a2c0d6f8ab.log", f"read:{WORKDIR}/logs", ""),
    (f"write:{WORKDIR}/c/{'9f86d081884c7d65' * 4}", f"write:{WORKDIR}/c", ""),
    (f"write:{WORKDIR}/c/tmpq7x_1b2z", f"write:{WORKDIR}/c", ""),
    (f"write:{WORKDIR}/c/run-1763456789123.json", f"write:{WORKDIR}/c", ""),
    # The directory holds something that a person must decide on.
    (f"write:{WORKDIR}/.envrc write:{WORKDIR}/pytest-cache-files-6fdmhwza", "",
        f"write:{WORKDIR}/.envrc write:{WORKDIR}/pytest-cache-files-6fdmhwza"),
    ("write:/home/me/tmpq7x_1b2z", "", "write:/home/me/tmpq7x_1b2z"),
    # One guess never opens the whole project, the home, or what all programs share.
    (f"write:{WORKDIR}/tmpq7x_1b2z", "", f"write:{WORKDIR}/tmpq7x_1b2z"),
    (f"read:{WORKDIR}/tmpq7x_1b2z/a read:{WORKDIR}/x", f"read:{WORKDIR}/x", f"read:{WORKDIR}/tmpq7x_1b2z/a"),
    ("write:/var/tmp/tmpq7x_1b2z", "", "write:/var/tmp/tmpq7x_1b2z"),
    # Other names have opened it already.
    (" ".join(f"write:{WORKDIR}/x/{name}" for name in ("a", "b", "c", "tmpq7x_1b2z")), f"write:{WORKDIR}/x", ""),
    # Names that mean something, and names of what is installed.
    (f"read:{WORKDIR}/sha256sums.txt", f"read:{WORKDIR}/sha256sums.txt", ""),
    (f"read:{WORKDIR}/report-20240101.csv", f"read:{WORKDIR}/report-20240101.csv", ""),
    (f"read:{WORKDIR}/manylinux2014_x86_64", f"read:{WORKDIR}/manylinux2014_x86_64", ""),
    (f"read:{WORKDIR}/tmp_results", f"read:{WORKDIR}/tmp_results", ""),
    ("read:/srv/store/9f86d081884c7d65-x/lib", "read:/srv/store/9f86d081884c7d65-x/lib", ""),
])  # fmt: skip
def test_a_name_that_is_different_each_time_becomes_its_directory_or_a_comment(
    uses: str, allowed: str, commented: str
) -> None:
    found = learned(*(f"fs:{use}" for use in uses.split()))
    assert rules(found) == sorted(f"fs:{use}" for use in allowed.split())
    assert [str(line.rule) for line in found.lines if line.kind == "sensitive"] == [
        f"fs:{use}" for use in sorted(commented.split())
    ]


def test_a_temporary_file_that_is_gone_opens_nothing_that_was_there() -> None:
    path = f"{WORKDIR}/tmpq7x_1b2z"
    around = Surroundings(WHERE, created=frozenset({path}), names_in={WORKDIR: ["a", "src"]}.__getitem__)
    found = learned(f"fs:write:{path}", around=around)
    assert rules(found) == [f"fs:write:{WORKDIR}"]
    assert rules(found, "deny") == [f"fs:write:{WORKDIR}/a", f"fs:write:{WORKDIR}/src"]


def test_random_names_in_the_path_of_the_working_directory_do_not_matter() -> None:
    where = Whereabouts("/builds/9f86d081884c7d65/w", "/home/me")
    found = learned("fs:read:/builds/9f86d081884c7d65/w/a", around=Surroundings(where))
    assert rules(found) == ["fs:read:/builds/9f86d081884c7d65/w/a"]
    temporary = Whereabouts("/var/tmp/9f86d081884c7d65/w", "/home/me")
    for path in (temporary.workdir, "/var/tmp/9f86d081884c7d65/other"):
        assert rules(learned(f"fs:read:{path}", around=Surroundings(temporary))) == [f"fs:read:{path}"]


def test_what_others_trust_is_denied_in_a_directory_that_may_be_written() -> None:
    trusted = frozenset({f"{WORKDIR}/.vscode", f"{WORKDIR}/x/.mcp.json"})
    around = Surroundings(WHERE, trusted_files=trusted, created=frozenset({f"{WORKDIR}/a"}))
    found = learned(f"fs:write:{WORKDIR}/a", around=around)
    assert [rule for rule in rules(found) if "write" in rule] == [f"fs:write:{WORKDIR}"]
    denied = [(str(line.rule), line.why) for line in found.lines if line.kind == "deny"]
    assert [rule for rule, _ in denied] == [f"fs:write:{path}" for path in sorted(trusted)]
    assert all(why for _, why in denied)
