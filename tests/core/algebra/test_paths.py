"""Paths in rules are clean or refused; paths in uses are resolved before anything is decided."""

import os
import posixpath
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.liars import Broken, BrokenText, FalseText, Liar, LyingBytes
from core.manifests import manifest, tool
from core.strategies import clean_paths, odd_paths, outcome
from core.tables import grouped
from licet.core.algebra.rules import Capability, InvalidUse, Use, use_of_path
from licet.core.algebra.scope import Malformed, inside, path_ancestors, path_key, resolved_path, secret_ancestors
from licet.core.algebra.set import CapabilitySet
from licet.core.limits import LONGEST_PATH

# As written in a rule, and the canonical text.
SPELLINGS = grouped({
    "/srv/data": ["/srv/data", "/srv//data", "//srv/data", "/srv/./data", "/srv/data/", "/srv/data/.", "/srv/data//"],
    "/srv": ["///srv", "/./srv"],
    "*": ["/", "//", "/.", "*"],
    "~": ["~", "~/"],
    "~/notes": ["~/notes", "~//notes/"],
    "${workdir}": ["${workdir}", "${workdir}/"],
    "${workdir}/out": ["${workdir}/out"],
    "${workdir}/out/x": ["${workdir}/./out//x"],
    "/a b/c": ["/a b/c"],
    "/é/日本": ["/é/日本"],
    "/...": ["/..."],
    "/..a/b..": ["/..a/b.."],
    "/.hidden": ["/.hidden"],
    "/a:b": ["/a:b"],
    "/a@b": ["/a@b"],
    "/a\\..\\b": ["/a\\..\\b"],
    "/%2e%2e/x": ["/%2e%2e/x"],
    "/a~": ["/a~"],
    "/~": ["/~"],
    "/$HOME": ["/$HOME"],
    "/" + "x" * (LONGEST_PATH - 1): ["/" + "x" * (LONGEST_PATH - 1)],
})  # fmt: skip

# As written in a rule, and a part of what the refusal says.
REFUSED = grouped({
    "an absolute path, or one that starts with `~` or `${workdir}`": [""],
    "did you mean `${workdir}/srv`?": ["srv", "./srv"],
    "did you mean `${workdir}/srv/data`?": ["srv/data"],
    "write the path that it leads to": ["../srv", "a/../../srv", "/.."],
    "a path covers everything below it": ["srv/*"],
    "an absolute path": [".", "..", "../x", "a/../b", "**", "*/x"],
    "did you mean `${workdir}/a/b`?": ["a//b/."],
    "without spaces around a name": [" /srv"],
    "a path without `..`": ["/srv/../etc", "/srv/..", "~/..", "${workdir}/../x"],
    "a path without `*`": ["/srv/*", "/*", "/a*b", "~/*"],
    "a path covers everything below it; `*` alone is every path": ["/srv/*/logs"],
    "another user's home must be written out": ["~root", "~root/x"],
    "`${workdir}` is the only variable, and only at the start": ["${home}", "${workdir}x", "/srv/${workdir}", "/${x}",
        "/srv/${x}/y", "${workdir}/${workdir}", "~/${workdir}", "x${workdir}", "$HOMER/x", "$workdir/x", "$PWD/x"],
    "`${workdir}`; did you mean `~`?": ["$HOME"],
    "did you mean `~`?": ["$HOME/"],
    "did you mean `~/x/y`?": ["$HOME/x/./y"],
    "did you mean `~/x`?": ["${HOME}/x"],
    "a path of visible characters": ["/a\x00b", "/a\x7f", "/a\ud800b"],
    "found `/a\\u000ab`": ["/a\nb"],
    "found `/a\\u202eb`": ["/a\u202eb"],
    "found `/a\\u200bb`": ["/a\u200bb"],
    "found `/a\\u2028b`": ["/a\u2028b"],
    "found `/a\\udcffb`": ["/a\udcffb"],
    "at most 4096 of them": ["/" + "x" * LONGEST_PATH],
})  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), SPELLINGS)
def test_a_path_in_a_rule_is_normalised(text: str, canonical: str) -> None:
    assert str(Capability(f"fs:read:{text}")) == f"fs:read:{canonical}"


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_a_malformed_path_is_refused_in_a_rule(text: str, says: str) -> None:
    with pytest.raises(Malformed) as refusal:
        Capability(f"fs:read:{text}")
    assert says in str(refusal.value)
    assert refusal.value.found == text


_LEADS = "write the path that it leads to"
_BELOW = "a path covers everything below it; `*` alone is every path"
_VARIABLE = "`${workdir}` is the only variable, and only at the start"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", ""),
        ("../x", _LEADS),
        ("a/../b", _LEADS),
        ("..", _LEADS),
        ("$HOME/../x", _LEADS),
        ("a/*", _BELOW),
        ("$HOME/*", _BELOW),
        ("$HOME/${x}", _VARIABLE),
        ("~/${x}", _VARIABLE),
        ("a/${x}", _VARIABLE),
    ],
)
def test_a_path_without_a_likely_meaning_gets_a_general_hint(text: str, hint: str) -> None:
    with pytest.raises(Malformed) as refusal:
        path_key(text)
    assert refusal.value.hint == hint


# The path of a use and what it resolves to.
RESOLVED = grouped({
    "/srv/a": ["/srv/a", "/srv//a", "/srv/./a"],
    "/": ["/", "//", "/srv/..", "/.."],
    "/srv": ["//srv", "/srv/", "/srv/."],
    "/etc": ["/srv/../etc", "/srv/a/../../etc", "/../../etc"],
    "/srv/.../x": ["/srv/.../x"],
    "/srv/..a": ["/srv/..a"],
    "/srv/.a": ["/srv/.a"],
    "/b": ["/srv/a/./..//../b/"],
    "/srv/~": ["/srv/~"],
    "/srv/${workdir}": ["/srv/${workdir}"],
    "/srv/%2e%2e/x": ["/srv/%2e%2e/x"],
    "/srv/..\\x": ["/srv/..\\x"],
    "/srv/a\nb": ["/srv/a\nb"],
    "/srv/é": ["/srv/é"],
})  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), RESOLVED)
def test_a_path_in_a_use_is_resolved_lexically(text: str, expected: str) -> None:
    use = use_of_path("read", text)
    assert use.target == expected
    assert str(use) == f"fs:read:{expected}"
    assert Use(f"fs:read:{text}") == use


# The path, the base, and what they resolve to together.
BASED = grouped({
    ("/srv", "/srv/a"): ["a", "./a", b"a"],
    ("/", "/a"): ["a"],
    ("/srv/", "/srv/a"): ["a"],
    ("/srv", "/a"): ["../a", "../../../a", "/a"],
    ("/srv", "/srv"): ["."],
    ("/srv/x", "/srv"): [".."],
    ("/srv", "/srv/~"): ["~"],
    ("/srv", "/srv/~/x"): ["~/x"],
    ("/srv", "/srv/${workdir}"): ["${workdir}"],
    ("/srv/../etc", "/etc/a"): ["a"],
    (Path("/srv"), "/srv/a"): ["a"],
    (b"/srv", "/srv/a"): [Path("a")],
})  # fmt: skip


@pytest.mark.parametrize(("path", "base", "expected"), BASED)
def test_a_relative_path_starts_from_the_base(path: str | bytes | Path, base: str, expected: str) -> None:
    assert use_of_path("write", path, base).target == expected
    assert use_of_path("write", path, base=base) == Use(f"fs:write:{expected}")


INVALID = grouped({
    None: ["a", "", "./a", "~/a", "${workdir}/a", "/a\0b", "\0/a", b"/a\0b", "/" + "x" * LONGEST_PATH,
        "/" + "../" * LONGEST_PATH, "/\ud800", "/a\udfffb", None, 5, ["/a"], object(), b"a"],
    "/srv": ["", "a\0"],
    "srv": ["a"],
    "": ["a"],
    "./srv": ["a"],
    "~": ["a"],
    "/srv\0": ["a"],
    "/": ["x" * LONGEST_PATH, "\ud83d\ude00"],
    "/\ud800": ["a"],
    5: ["a"],
    object(): ["a"],
})  # fmt: skip


@pytest.mark.parametrize(("path", "base"), INVALID)
def test_a_value_that_is_not_a_path_is_an_invalid_use(path: object, base: object) -> None:
    with pytest.raises(InvalidUse) as refusal:
        use_of_path("read", path, base)
    assert str(refusal.value).isprintable()


def test_a_refused_path_says_why_and_what_was_sent() -> None:
    for path, says in (
        ("a", "that a base directory makes absolute"),
        (object(), "expected a path"),
        ("/a\0", "without NUL"),
    ):
        with pytest.raises(InvalidUse) as refusal:
            use_of_path("read", path)
        assert says in str(refusal.value)
    with pytest.raises(InvalidUse) as refusal:
        use_of_path("read", long := "/" + "x" * LONGEST_PATH)
    assert refusal.value.found == long  # whoever shows it cuts it, and knows the secrets that it may hold


def test_the_longest_path_is_accepted() -> None:
    longest = "/" + "x" * (LONGEST_PATH - 1)
    assert use_of_path("read", longest).target == longest


@pytest.mark.parametrize("action", ["", "*", "READ", "exec", "read ", "list", None, 5, ["read"], b"read", object()])
def test_a_path_is_read_written_or_deleted_and_nothing_else(action: object) -> None:
    with pytest.raises(InvalidUse):
        use_of_path(action, "/a")  # type: ignore[arg-type]


@pytest.mark.parametrize("action", ["read", "write", "delete"])
def test_each_action_on_a_path_is_its_own_effect(action: str) -> None:
    use = use_of_path(action, "/a")
    assert (use.domain, use.action, use.effect, use.method, use.port, use.scope) == (
        "fs",
        action,
        action,
        "",
        None,
        "/a",
    )


def test_bytes_and_text_of_one_name_are_one_path() -> None:
    assert use_of_path("read", "/srv/é".encode()) == use_of_path("read", "/srv/é")
    assert use_of_path("read", b"/srv/\xff").target == os.fsdecode(b"/srv/\xff")
    assert use_of_path("read", b"/srv/../etc").target == "/etc"


def test_a_name_spelled_in_escaped_bytes_cannot_slip_past_its_deny() -> None:
    guarded = CapabilitySet(["fs:read:/srv"], ["fs:read:/srv/é"])
    escaped = "/srv/\udcc3\udca9"
    assert os.fsencode(escaped) == os.fsencode("/srv/é")
    with pytest.raises(InvalidUse):
        use_of_path("read", escaped)
    with pytest.raises(InvalidUse):
        guarded.has(f"fs:read:{escaped}")
    assert not guarded.has(use_of_path("read", os.fsencode(escaped)))


class Twofaced:
    """A PathLike that returns another path at the second call."""

    def __init__(self, *answers: str | bytes) -> None:
        self.answers = list(answers)

    def __fspath__(self) -> str | bytes:
        return self.answers.pop(0)


def test_a_path_like_object_is_asked_once() -> None:
    path = Twofaced("/srv/a", "/etc/shadow")
    assert use_of_path("read", path).target == "/srv/a"
    assert path.answers == ["/etc/shadow"]
    base = Twofaced(b"/srv", "/etc")
    assert use_of_path("read", Twofaced("a", "/etc/shadow"), base).target == "/srv/a"
    assert base.answers == ["/etc"]


class LiarPath:
    def __fspath__(self) -> str:
        return Liar("/etc/shadow", "/srv/ok")


@pytest.mark.parametrize(
    "path",
    [Liar("/etc/shadow", "/srv/ok"), LiarPath(), LyingBytes(b"/etc/shadow"), Liar("/etc/x/../shadow", "/srv/ok")],
)
def test_a_path_of_a_lying_class_is_read_by_its_real_characters(path: object) -> None:
    use = use_of_path("read", path)
    assert use.target == "/etc/shadow"
    assert type(use.target) is str
    assert not CapabilitySet(["fs:read:/srv"]).has(use)


def test_a_base_or_action_of_a_lying_class_is_read_by_its_real_characters() -> None:
    assert use_of_path("read", "a", Liar("/etc", "/srv/ok")).target == "/etc/a"
    assert use_of_path(Liar("read", "delete"), "/a") == Use("fs:read:/a")
    with pytest.raises(InvalidUse):
        use_of_path(Liar("everything", "read"), "/a")


class Number:
    def __fspath__(self) -> int:
        return 5


@pytest.mark.parametrize("kind", [Broken, Number, FalseText, BrokenText])
def test_a_path_object_that_raises_is_an_invalid_use(kind: type) -> None:
    path = kind()
    with pytest.raises(InvalidUse):
        use_of_path("read", path)
    with pytest.raises(InvalidUse):
        use_of_path("read", "a", path)
    with pytest.raises(InvalidUse):
        use_of_path(path, "/a")


@given(
    st.one_of(st.none(), st.integers(), st.binary(max_size=20), st.text(max_size=20), odd_paths),
    st.one_of(st.none(), st.text(max_size=8), odd_paths, odd_paths.map("/{}".format)),
)
def test_any_path_is_resolved_or_is_an_invalid_use(path: object, base: object) -> None:
    use = outcome(use_of_path, "read", path, base)
    if isinstance(use, InvalidUse):
        assert str(use).isprintable()
        return
    assert use.target == posixpath.normpath(use.target)
    assert not use.target.startswith("//")
    assert os.fsencode(use.target).startswith(b"/")
    assert os.fsdecode(os.fsencode(use.target)) == use.target
    assert "\0" not in use.target


@given(odd_paths.map("/{}".format))
@example("//a")
@example("/a/..b/../.")
def test_lexical_resolution_is_that_of_the_operating_system(path: str) -> None:
    assert resolved_path(path) == posixpath.normpath("/" + path.lstrip("/"))


@given(clean_paths)
@example("/..a")
@example("/.a/b")
@example("/a.")
@example("/a/.b")
def test_a_clean_path_stays_as_it_is(path: str) -> None:
    if path.isprintable():
        assert path_key(path) == path
        assert str(Capability(f"fs:read:{path}")) == f"fs:read:{path}"
    assert use_of_path("read", path).target == path


@given(clean_paths, st.lists(st.sampled_from(("/", "//", "/./", "/.//")), min_size=1, max_size=4))
def test_slashes_and_dots_fold_away_in_rules_and_uses(path: str, ends: list[str]) -> None:
    if path.isprintable():
        spelled = "/" + path.replace("/", ends[0]) + "".join(ends)
        assert path_key(spelled) == path
        assert use_of_path("read", spelled).target == path


ANCESTORS = [
    ("/a/b/c", ("/a/b/c", "/a/b", "/a", "")),
    ("/a", ("/a", "")),
    ("", ("",)),
    ("~/a", ("~/a", "~", "")),
    ("~", ("~", "")),
    ("${workdir}/a/b", ("${workdir}/a/b", "${workdir}/a", "${workdir}", "")),
]


@pytest.mark.parametrize(("key", "expected"), ANCESTORS)
def test_a_path_lies_under_itself_its_directories_and_the_top(key: str, expected: tuple[str, ...]) -> None:
    assert path_ancestors(key) == expected


SECRET_ANCESTORS = [
    ("a/b/c", ("a/b/c", "a/b/", "a/", "")),
    ("a/b/c/d", ("a/b/c/d", "a/b/c/", "a/b/", "a/", "")),
    ("a/b/", ("a/b/", "a/", "")),
    ("a/", ("a/", "")),
    ("a", ("a", "")),
    ("", ("",)),
]


@pytest.mark.parametrize(("key", "expected"), SECRET_ANCESTORS)
def test_a_secret_lies_under_itself_its_prefixes_and_the_top(key: str, expected: tuple[str, ...]) -> None:
    assert secret_ancestors(key) == expected


def test_a_path_covers_itself_and_everything_below_by_whole_components() -> None:
    reach = CapabilitySet(["fs:read:/tmp/sandbox"])
    for path in ("/tmp/sandbox", "/tmp/sandbox/", "/tmp/sandbox/a/b", "/tmp/x/../sandbox/a"):
        assert reach.has(use_of_path("read", path))
    for path in (
        "/tmp",
        "/tmp/sandbox-evil",
        "/tmp/sandbox/../x",
        "/tmp/sandbox/..",
        "/",
        "/tmp/sandbo",
        "/tmp/Sandbox",
    ):
        assert not reach.has(use_of_path("read", path))


def test_any_path_object_is_accepted() -> None:
    for path in (Path("/srv/a"), PurePosixPath("/srv/a"), b"/srv/a", Twofaced("/srv/a")):
        assert use_of_path("read", path) == Use("fs:read:/srv/a")


# Expansion ------------------------------------------------------------------------------------------------------------

EXPANDED = [
    ("fs:read:~", "fs:read:/home/u"),
    ("fs:read:~/x", "fs:read:/home/u/x"),
    ("fs:write:${workdir}", "fs:write:/srv/w"),
    ("fs:*:${workdir}/a/b", "fs:*:/srv/w/a/b"),
    ("process:exec:${workdir}/bin/x", "process:exec:/srv/w/bin/x"),
    ("process:exec:~/x", "process:exec:/home/u/x"),
    ("fs:read:/a/~", "fs:read:/a/~"),
    ("fs:read:/srv", "fs:read:/srv"),
    ("fs:read:*", "fs:read:*"),
    ("process:exec:git", "process:exec:git"),
    ("secret:read:~/x", "secret:read:~/x"),
    ("env:read:~", "env:read:~"),
    ("secret:read:${workdir}", "secret:read:${workdir}"),
    ("network:*:x.com:80", "network:*:x.com:80"),
]


@pytest.mark.parametrize(("text", "expected"), EXPANDED)
def test_home_and_workdir_expand_in_allows_and_denies(text: str, expected: str) -> None:
    for workdir, home in (("/srv/w", "/home/u"), ("/srv/w/", "/home//u/.")):
        assert CapabilitySet([text]).expand(workdir, home) == CapabilitySet([expected])
        assert CapabilitySet(deny=[text]).expand(workdir, home) == CapabilitySet(deny=[expected])


def test_a_root_directory_as_home_or_workdir_is_every_path() -> None:
    unexpanded = CapabilitySet(["fs:read:~", "fs:write:${workdir}/a"])
    assert str(unexpanded.expand("/", "/")) == "fs:read:*\nfs:write:/a"


def test_without_a_home_only_rules_with_a_tilde_are_refused() -> None:
    for text in ("fs:read:~", "fs:write:~/a", "process:exec:~/bin/x"):
        with pytest.raises(Malformed, match="found `~`, expected a user with a home directory") as wrong:
            CapabilitySet([text]).expand("/srv", "")
        assert wrong.value.hint == "set HOME, or write the whole path"
    assert CapabilitySet(["fs:read:${workdir}/x"]).expand("/srv", "") == CapabilitySet(["fs:read:/srv/x"])
    assert CapabilitySet(["env:read:A", "fs:read:/a"]).expand("/srv", "") == CapabilitySet(["env:read:A", "fs:read:/a"])
    made = manifest(tool("t", "fs:read:${workdir}/x"), allows=["fs:read:${workdir}"]).expand("/srv", "")
    assert made.roots == {"${workdir}": "/srv"}


def test_a_path_that_is_not_expanded_allows_nothing() -> None:
    assert not CapabilitySet(["fs:read:~", "fs:read:${workdir}"]).has("fs:read:/home/u/x")


@pytest.mark.parametrize("place", ["", "x", "../x", "/a/../b", "/a/*", "/a\0", "*", "~", "${workdir}"])
def test_a_home_or_workdir_that_is_not_a_clean_path_is_refused(place: str) -> None:
    with pytest.raises(Malformed):
        CapabilitySet(["fs:read:${workdir}/x"]).expand(place, "/home/u")


INSIDE = [
    ("/a/b", ("/a",), True),
    ("/a/b", ("/a/b",), True),
    ("/a/b", ("/a/",), True),
    ("/a", ("/a/b",), False),
    ("/ab", ("/a",), False),
    ("/a", ("/",), True),
    ("/", ("/",), True),
    ("/c", ("/a", "/b"), False),
    ("/b/c", ("/a", "/b"), True),
    ("/a", (), False),
]


@pytest.mark.parametrize(("path", "trees", "expected"), INSIDE)
def test_a_path_is_inside_a_directory_or_not(path: str, trees: tuple[str, ...], expected: bool) -> None:
    assert inside(path, trees) is expected
