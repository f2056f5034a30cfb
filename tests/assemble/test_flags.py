"""The flags of `licet run` as a manifest: what each value means, what cannot be said, and what flags do to a policy."""

import asyncio
import os
from pathlib import Path

import pytest

from licet import Manifest
from licet.assemble.program import (
    AGENT,
    BY,
    BadFlag,
    Flags,
    TypedApproval,
    made_manifest,
    manifest_text,
    narrowed,
    saved_text,
    understood,
)
from licet.assemble.review import Places
from licet.core.algebra.rules import Use
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.request import Approval
from licet.core.policy.layer import meet_written_layers
from licet.core.policy.tool import ToolSpec
from licet.guard.ports import Answered, Question
from licet.policy_files.load import load_manifest

WORK, HOME = "/srv/work", "/home/ada"
PLACES = Places(WORK, HOME)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(flags: Flags, program: str = "make", places: Places = PLACES) -> Manifest:
    return made_manifest(manifest_text(understood(flags, places), program, places))


def reached(flags: Flags, places: Places = PLACES) -> CapabilitySet:
    """What flags allow, with directories filled in, the program and the tool's own storage left out."""
    ceiling = meet_written_layers(made(flags, places=places).expand(places.workdir, places.home).layers)
    assert ceiling.has(Use("env:read:PATH"))  # always: programs find others by it
    told = [rule for rule in ceiling.allow if rule.domain in ("fs", "network", "env")]
    return CapabilitySet([rule for rule in told if str(rule) != "env:read:PATH"])


MEANS = {
    "a path": (Flags(read=("/srv/data",)), ["fs:read:/srv/data"]),
    "a path below the working directory": (Flags(read=(f"{WORK}/src",)), [f"fs:read:{WORK}/src"]),
    "the working directory": (Flags(read=(WORK,)), [f"fs:read:{WORK}"]),
    "a neighbour with the same beginning": (Flags(read=(f"{WORK}-2",)), [f"fs:read:{WORK}-2"]),
    "the home": (Flags(read=("~",)), [f"fs:read:{HOME}"]),
    "a path in the home": (Flags(read=("~/notes",)), [f"fs:read:{HOME}/notes"]),
    "a path that folds": (Flags(read=("/srv//data/./a/",)), ["fs:read:/srv/data/a"]),
    "every file": (Flags(read=("/",)), ["fs:read:*"]),
    "every file, as a star": (Flags(read=("*",)), ["fs:read:*"]),
    "a space": (Flags(read=("/srv/my data",)), ["fs:read:/srv/my data"]),
    "a comma, a quote, a colon and a hash": (
        Flags(read=("""/srv/a,b"c': #d""",)),
        ["""fs:read:/srv/a,b"c': #d"""],
    ),
    "a tilde inside": (Flags(read=("/srv/~/a~",)), ["fs:read:/srv/~/a~"]),
    "a dollar": (Flags(read=("/srv/$HOME",)), ["fs:read:/srv/$HOME"]),
    "other letters": (Flags(read=("/srv/übung",)), ["fs:read:/srv/übung"]),
    "writing": (Flags(write=("/srv/out",)), ["fs:delete:/srv/out", "fs:write:/srv/out"]),
    "two of a kind": (Flags(read=("/a", "/b", "/a")), ["fs:read:/a", "fs:read:/b"]),
    "a host": (Flags(net=("api.example.com",)), ["network:tcp:api.example.com:443"]),
    "a host in capitals": (Flags(net=("API.Example.com",)), ["network:tcp:api.example.com:443"]),
    "a port": (Flags(net=("example.com:80",)), ["network:tcp:example.com:80"]),
    "names below": (Flags(net=("*.example.com",)), ["network:tcp:*.example.com:443"]),
    "every host": (Flags(net=("*",)), ["network:tcp:*"]),
    "one port of every host": (Flags(net=("*:22",)), ["network:tcp:*:22"]),
    "an address": (Flags(net=("127.0.0.1:8080",)), ["network:tcp:127.0.0.1:8080"]),
    "an IPv6 address": (Flags(net=("[::1]:80",)), ["network:tcp:[::1]:80"]),
    "an IPv6 address without a port": (Flags(net=("[2001:4860:0::1]",)), ["network:tcp:[2001:4860::1]:443"]),
    "a host called like a method": (Flags(net=("get",)), ["network:tcp:*@get:443"]),
    "a variable": (Flags(env=("LANG",)), ["env:read:LANG"]),
}


@pytest.mark.parametrize(("flags", "rules"), MEANS.values(), ids=MEANS)
def test_a_flag_allows_exactly_what_it_says(flags: Flags, rules: list[str]) -> None:
    assert reached(flags) == CapabilitySet(rules)


def test_every_variable_is_each_that_is_set_and_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in ("LANG", "TERM", "BASH_FUNC_a%%", "not this", "ünor"):
        monkeypatch.setenv(name, "x")
    assert reached(Flags(env=("*",))) == CapabilitySet(["env:read:LANG", "env:read:TERM", "env:read:BASH_FUNC_a%%"])


@pytest.mark.parametrize("name", [".", "a b", "./~", "-in-the-middle", "sub/../other"])
def test_a_relative_path_starts_at_the_current_directory(name: str, tmp_path: Path) -> None:
    value = f"./{name}" if name[0] == "-" else name
    expected = {".": tmp_path, "./~": tmp_path / "~", "sub/../other": tmp_path / "other"}.get(name, tmp_path / name)
    for places in (PLACES, Places(str(tmp_path), HOME), Places("/", "")):
        assert reached(Flags(read=(value,)), places) == CapabilitySet([f"fs:read:{expected}"])


WRONG = {
    "no path": (Flags(read=("",)), "--allow-read", "expected a value"),
    "no directory": (Flags(write=("",)), "--allow-write", "expected a value"),
    "no host": (Flags(net=("",)), "--allow-net", "expected a value"),
    "no variable": (Flags(env=("",)), "--allow-env", "expected a value"),
    "no socket": (Flags(socket=("",)), "--allow-socket", "is the variable that it was to come from empty?"),
    "another flag": (Flags(read=("--allow-write",)), "--allow-read", "found `--allow-write`"),
    "a star in a path": (Flags(read=("/srv/*/logs",)), "--allow-read", "a path without `*`"),
    "a variable of licet in a path": (Flags(read=("/srv/${workdir}",)), "--allow-read", "a path without `${`"),
    "the home of somebody": (Flags(read=("~bob/x",)), "--allow-read", "begins with `~`"),
    "a line break": (Flags(read=("/srv/a\nb",)), "--allow-read", "visible characters"),
    "a space around a name": (Flags(read=("/srv/a /b",)), "--allow-read", "without spaces around"),
    "bytes that are no text": (Flags(read=("/srv/\udcff",)), "--allow-read", "UTF-8"),
    "a URL": (Flags(net=("https://example.com/x",)), "--allow-net", "did you mean `example.com`?"),
    "IPv6 without brackets": (Flags(net=("::1",)), "--allow-net", "brackets: `[::1]`"),
    "a port that is none": (Flags(net=("example.com:0",)), "--allow-net", "a port from 1 to 65535"),
    "a port that is too large": (Flags(net=("example.com:65536",)), "--allow-net", "a port from 1 to 65535"),
    "a port that is a word": (Flags(net=("example.com:http",)), "--allow-net", "a host name"),
    "a port alone": (Flags(net=(":443",)), "--allow-net", "a host name"),
    "a method": (Flags(net=("get@example.com",)), "--allow-net", "a host name"),
    "a star inside a name": (Flags(net=("api.*.com",)), "--allow-net", "a wildcard inside a name"),
    "every name below a public suffix": (Flags(net=("*.co.uk",)), "flags", "public suffix"),
    "a variable with a value": (Flags(env=("LANG=C",)), "--allow-env", "the name of an environment variable"),
}


@pytest.mark.parametrize(("flags", "flag", "said"), WRONG.values(), ids=WRONG)
def test_what_no_rule_can_say_is_refused_with_the_flag(flags: Flags, flag: str, said: str) -> None:
    with pytest.raises(BadFlag) as wrong:
        made(flags)
    assert wrong.value.flag == flag
    assert said in str(wrong.value)


def test_without_a_home_the_tilde_is_refused() -> None:
    with pytest.raises(BadFlag, match="begins with `~`"):
        understood(Flags(read=("~/x",)), Places(WORK, ""))


CLASSES = {
    "reading": (Flags(read=("/a",), env=("LANG",)), "read_only"),
    "a connection": (Flags(net=("a.example.com",)), "write_limited"),
    "writing": (Flags(write=("/a",)), "full"),
}


@pytest.mark.parametrize(("flags", "effect"), CLASSES.values(), ids=CLASSES)
def test_the_class_is_the_least_that_is_needed(flags: Flags, effect: str) -> None:
    manifest = made(flags)
    assert (manifest.agent, manifest.max_effect, manifest.pinned) == (AGENT, effect, "")


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        ("make", "process:exec:make"),
        (f"{WORK}/b.sh", f"process:exec:{WORK}/b.sh"),
        ("/bin/x y", "process:exec:/bin/x y"),
    ],
)
def test_the_program_of_the_command_is_allowed_and_no_other(program: str, rule: str) -> None:
    ceiling = made(Flags(read=("/a",)), program).expand(WORK, HOME).ceiling
    assert [str(one) for one in ceiling.allow if one.domain == "process"] == [rule]


@pytest.mark.parametrize("program", ["a b", "*", "ü", "/bin/*"])
def test_a_program_that_no_rule_can_name_is_refused(program: str) -> None:
    with pytest.raises(BadFlag, match="no rule can name this program"):
        made(Flags(read=("/a",)), program)


def test_the_saved_file_says_the_same_and_no_arguments(tmp_path: Path) -> None:
    flags = Flags(read=(WORK, "/srv/a, b"), write=(f"{WORK}/out",), net=("a.example.com", "[::1]:80"), env=("LANG",))
    typed = understood(flags, PLACES)
    text = manifest_text(typed, "curl", PLACES)
    file = tmp_path / "saved.yaml"
    file.write_text(saved_text(text, typed, "curl", {}, PLACES))
    assert load_manifest(file).digest == made_manifest(text).digest
    first, *notes = file.read_text().splitlines()
    assert first == (
        "# From: licet run --allow-read=/srv/work '--allow-read=/srv/a, b' --allow-write=/srv/work/out"
        " --allow-net=a.example.com:443 '--allow-net=[::1]:80' --allow-env=LANG -- curl"
    )
    assert "A file approves none" in notes[0]
    assert WORK not in "\n".join(notes)


POLICY = {
    "agent": "desk",
    "capabilities": {
        "max_side_effect_class": "full",
        "fs_reach": {"read": [f"{WORK}/src", "/usr/share"], "write": [f"{WORK}/out"]},
        "destinations": {"allow": ["*.example.com"]},
        "private": ["10.0.0.0/8"],
        "env": ["LANG", "TERM"],
        "process": {"allowed_binaries": ["make"]},
        "budget": {"max_calls_per_session": 5},
        "approvals": {"write": "call"},
        "deny": [f"fs:read:{WORK}/src/keys"],
    },
}


def test_next_to_a_policy_flags_only_narrow() -> None:
    policy = Manifest.from_data(POLICY)
    flags = Flags(read=(WORK,), write=("/",), net=("a.example.com", "b.example.org"), env=("LANG", "HOME"))
    less = narrowed(policy, made(flags, "sh")).expand(WORK, HOME)
    allowed = meet_written_layers(less.layers)
    expected = [
        f"fs:read:{WORK}/src", f"fs:write:{WORK}/out", f"fs:delete:{WORK}/out",
        "network:tcp:a.example.com:443", "env:read:LANG", "process:exec:make",
    ]  # fmt: skip
    rules = [rule for rule in allowed.allow if rule.domain not in ("storage", "connector")]
    assert sorted(map(str, rules)) == sorted(expected)
    assert not allowed.has(f"fs:read:{WORK}/src/keys/a")
    assert meet_written_layers(less.layers) <= meet_written_layers(policy.expand(WORK, HOME).layers)
    assert less.digest == policy.digest
    kept = ("agent", "approvals", "budget", "limits", "private", "max_effects", "pinned")
    assert all(getattr(less, name) == getattr(policy, name) for name in kept)


def test_flags_without_a_kind_leave_nothing_of_it() -> None:
    less = meet_written_layers(
        narrowed(Manifest.from_data(POLICY), made(Flags(env=("LANG",)))).expand(WORK, HOME).layers
    )
    assert [str(rule) for rule in less.allow if rule.domain in ("fs", "network", "env")] == ["env:read:LANG"]


def asked(manifest: str, use: str = "", *, quorum: int = 1) -> Question:
    about = Approval(manifest, "run", "main", "", use, deletes=True)
    return Question(about, ToolSpec("run", CapabilitySet()), {}, (), "why", 300, quorum=quorum)


def test_typing_the_flags_approves_the_run_under_them_and_nothing_else() -> None:
    manifest = made(Flags(write=("/srv/out",)))
    others = (
        asked(manifest.digest, "network:http:delete@a.test:80"),
        asked(manifest.digest, quorum=2),
        asked("sha256:" + "0" * 64),
    )
    assert asyncio.run(TypedApproval(manifest).ask(asked(manifest.digest))) == Answered("approved", (BY,))
    assert [asyncio.run(TypedApproval(manifest).ask(other)) for other in others] == ["absent"] * 3


def test_policy_files_stay_closed_there_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.yaml").write_text("agent: a\ncapabilities: {}\n")
    (tmp_path / "data.yaml").write_text("a: 1\n")
    monkeypatch.chdir(tmp_path)
    places = Places(str(tmp_path), HOME)
    typed = understood(Flags(write=(".",)), places)
    manifest = made_manifest(manifest_text(typed, "sh", places), typed.write)
    ceiling = manifest.expand(str(tmp_path), HOME).ceiling
    held = {
        name: ceiling.has(f"fs:write:{tmp_path}/{name}") for name in ("agent.yaml", "data.yaml", "licet.yaml", "new")
    }
    assert held == {"agent.yaml": False, "data.yaml": True, "licet.yaml": False, "new": True}
