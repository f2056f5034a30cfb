"""Converting `ToolCapabilities` to rules, and the arguments of a declaration to a `ToolSpec`."""

from decimal import Context, Decimal, localcontext
from typing import Any

import pytest

from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.connector import ConnectorRef
from licet.core.policy.tool import amount, needs_of, normal_form, spec_of, summary

FITS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, []),
    "a host": ({"network": {"allowed_hosts": ["api.weather.gov"]}}, ["network:*:api.weather.gov"]),
    "the seeds' spelling": ({"network": {"allowedHosts": ["*.github.com"]}}, ["network:*:*.github.com"]),
    "no hosts": ({"network": {"allowed_hosts": []}}, []),
    "every host that the ceiling allows": ({"network": {"allowed_hosts": ["*"]}}, ["network:*:*"]),
    "a host and a port": ({"network": {"allowed_hosts": ["h.test:8443"]}}, ["network:*:h.test:8443"]),
    "an address and a port": ({"network": {"allowed_hosts": ["[::1]:80"]}}, ["network:*:[::1]:80"]),
    "a host called like a method": ({"network": {"allowed_hosts": ["get"]}}, ["network:*:*@get"]),
    "the same with a port": ({"network": {"allowed_hosts": ["get:80"]}}, ["network:*:*@get:80"]),
    "a host in capitals": ({"network": {"allowed_hosts": ["API.Weather.GOV."]}}, ["network:*:api.weather.gov"]),
    "secrets": ({"secrets": ["A", "github/*"]}, ["secret:read:A", "secret:read:github/*"]),
    "secrets as a tuple": ({"secrets": ("A",)}, ["secret:read:A"]),
    "secrets as a set": ({"secrets": {"A"}}, ["secret:read:A"]),
    "a store": ({"storage": {"scope": "session", "kind": "kv"}}, ["storage:*:session"]),
    "a store of no stated kind": ({"storage": {"scope": "tool-private"}}, ["storage:*:tool-private"]),
    "a store whose entries expire": ({"storage": {"scope": "personality", "kind": "kv", "ttlSecondsDefault": 60}},
        ["storage:*:personality"]),
    "paths to read": ({"fs_reach": {"read": ["/srv/data", "${workdir}"]}}, ["fs:read:/srv/data", "fs:read:${workdir}"]),
    "paths to write, and so to delete": ({"fs_reach": {"write": ["/out"]}}, ["fs:write:/out", "fs:delete:/out"]),
    "paths the ceiling allows to read": ({"fs_reach": {"read": "from-personality"}}, ["fs:read:*"]),
    "paths the ceiling allows to write": ({"fs_reach": {"write": "from-personality"}}, ["fs:write:*", "fs:delete:*"]),
    "no paths": ({"fs_reach": {}}, []),
    "binaries": ({"process": {"allowed_binaries": ["git", "/usr/bin/grep"]}},
        ["process:exec:git", "process:exec:/usr/bin/grep"]),
    "binaries in the seeds' spelling": ({"process": {"allowedBinaries": ["*"]}}, ["process:exec:*"]),
    "variables": ({"env": ["PATH", "LANG"]}, ["env:read:PATH", "env:read:LANG"]),
    "several at once": ({"secrets": ["K"], "env": ["PATH"], "network": {"allowed_hosts": ["a.test"]}},
        ["secret:read:K", "env:read:PATH", "network:*:a.test"]),
}  # fmt: skip


@pytest.mark.parametrize(("capabilities", "rules"), FITS.values(), ids=FITS)
def test_capabilities_mean_the_same_as_rules(capabilities: dict[str, Any], rules: list[str]) -> None:
    assert needs_of(capabilities) == CapabilitySet(rules)


@pytest.mark.parametrize("capabilities", [case for case, _ in FITS.values()], ids=FITS)
def test_the_normal_form_means_the_same_and_is_its_own_normal_form(capabilities: dict[str, Any]) -> None:
    normal = normal_form(capabilities)
    assert normal_form(normal) == normal
    assert needs_of(normal) == needs_of(capabilities)


TOP_KEYS = "one of `network`, `secrets`, `storage`, `fs_reach`, `process`, `env` in `capabilities`"
HOST = "a host name such as `api.example.com`, an IP address, `*.example.com` or `*`, in `network.allowed_hosts`"
WHOLE = "(protocol and method belong to whole rules, such as `network:https:get@api.example.com`)"
REFUSED: dict[str, tuple[Any, str]] = {
    "a list": (
        ["network"],
        (
            "found `['network']`, expected a mapping with `network`, `secrets`, `storage`, `fs_reach`, "
            "`process`, `env` as `capabilities`"
        ),
    ),
    "an unknown key": ({"newtork": {}}, f"found `newtork`, expected {TOP_KEYS}; did you mean `network`?"),
    "a key that is no text": ({1: {}}, f"found `1`, expected {TOP_KEYS}"),
    "a camel-case key the seeds do not have": (
        {"fsReach": {}},
        f"found `fsReach`, expected {TOP_KEYS}; did you mean `fs_reach`?",
    ),
    "an unknown key inside": (
        {"network": {"hosts": []}},
        "found `hosts`, expected one of `allowed_hosts` in `network`",
    ),
    "a key inside that is nearly right": (
        {"network": {"allowed_host": []}},
        "found `allowed_host`, expected one of `allowed_hosts` in `network`; did you mean `allowed_hosts`?",
    ),
    "both spellings": (
        {"network": {"allowed_hosts": [], "allowedHosts": []}},
        "found `allowedHosts`, expected one spelling of `allowed_hosts` in `network`; keep `allowed_hosts`",
    ),
    "a key without what it must hold": ({"network": {}}, "found `{}`, expected `allowed_hosts` in `network`"),
    "a store without a scope": ({"storage": {"kind": "kv"}}, "found `{'kind': 'kv'}`, expected `scope` in `storage`"),
    "binaries without a list": ({"process": {}}, "found `{}`, expected `allowed_binaries` in `process`"),
    "none in place of a mapping": (
        {"network": None},
        "found `None`, expected a mapping with `allowed_hosts` as `network`",
    ),
    "none in place of a list": ({"secrets": None}, "found `None`, expected a list as `secrets`"),
    "one text in place of a list": (
        {"network": {"allowed_hosts": "a.test"}},
        "found `a.test`, expected a list as `network.allowed_hosts`; write `['a.test']`",
    ),
    "a number in a list": ({"env": ["A", 5]}, "found `5`, expected text in `env`"),
    "a mapping in place of a list": ({"env": {"A": 1}}, "found `{'A': 1}`, expected a list as `env`"),
    "a URL": (
        {"network": {"allowed_hosts": ["https://user@api.test/x"]}},
        f"found `https://user@api.test/x`, expected {HOST}; did you mean `api.test`? {WHOLE}",
    ),
    "a range of addresses": (
        {"network": {"allowed_hosts": ["10.0.0.0/8"]}},
        f"found `10.0.0.0/8`, expected {HOST}; address ranges go under `private`",
    ),
    "a method and a host": (
        {"network": {"allowed_hosts": ["get@a.test"]}},
        f"found `get@a.test`, expected {HOST}; did you mean `a.test`? {WHOLE}",
    ),
    "an inner wildcard": (
        {"network": {"allowed_hosts": ["a.*.test"]}},
        (
            "found `a.*.test`, expected `*` alone or `*.` before a name, in `network.allowed_hosts`; "
            "a wildcard inside a name is not supported"
        ),
    ),
    "port zero": (
        {"network": {"allowed_hosts": ["a.test:0"]}},
        "found `0`, expected a port from 1 to 65535, in `network.allowed_hosts`",
    ),
    "an empty host": (
        {"network": {"allowed_hosts": [""]}},
        (
            "found ``, expected a host name such as `api.example.com`, an IP address, `*.example.com` or `*`, "
            "in `network.allowed_hosts`"
        ),
    ),
    "a relative path": (
        {"fs_reach": {"read": ["data"]}},
        (
            "found `data`, expected an absolute path, or one that starts with `~` or `${workdir}`, in `fs_reach.read`; "
            "did you mean `${workdir}/data`?"
        ),
    ),
    "a path upwards": (
        {"fs_reach": {"write": ["/srv/../etc"]}},
        "found `/srv/../etc`, expected a path without `..`, in `fs_reach.write`; write the path that it leads to",
    ),
    "a word for paths that is nearly right": (
        {"fs_reach": {"read": "from_personality"}},
        (
            "found `from_personality`, expected a list of paths or `from-personality` as `fs_reach.read`; "
            "did you mean `from-personality`?"
        ),
    ),
    "the word in a list": (
        {"fs_reach": {"read": ["from-personality"]}},
        (
            "found `from-personality`, expected an absolute path, or one that starts with `~` or `${workdir}`, "
            "in `fs_reach.read`; write `from-personality` alone, not in a list"
        ),
    ),
    "an unknown scope": (
        {"storage": {"scope": "sesion"}},
        (
            "found `sesion`, expected one of `tool-private`, `session`, `personality` as `storage.scope`; "
            "did you mean `session`?"
        ),
    ),
    "every scope": (
        {"storage": {"scope": "*"}},
        "found `*`, expected one of `tool-private`, `session`, `personality` as `storage.scope`",
    ),
    "an unknown kind": (
        {"storage": {"scope": "session", "kind": "sql"}},
        "found `sql`, expected `kv` as `storage.kind`",
    ),
    **{
        f"entries that live {ttl!r} seconds": (
            {"storage": {"scope": "session", "ttl_seconds_default": ttl}},
            f"found `{ttl}`, expected a whole number of seconds, at least 1, as `storage.ttl_seconds_default`",
        )
        for ttl in (0, -1, 1.5, True, "60", None, 2**53)
    },
    "a secret with an inner wildcard": (
        {"secrets": ["git*"]},
        "found `git*`, expected `*` alone or as the last segment, in `secrets`; `prefix/*` covers whole segments",
    ),
    "a variable with a value": (
        {"env": ["A=1"]},
        "found `A=1`, expected the name of an environment variable such as `PATH`, in `env`",
    ),
    "a relative binary": (
        {"process": {"allowed_binaries": ["./run"]}},
        (
            "found `./run`, expected an absolute path, or one that starts with `~` or `${workdir}`, "
            "in `process.allowed_binaries`; did you mean `${workdir}/run`?"
        ),
    ),
    "something long": ({"secrets": 10**100}, f"found `1{'0' * 78}…`, expected a list as `secrets`"),
    "a number too long to print": ({"secrets": 1 << 99_999}, "found `int`, expected a list as `secrets`"),
}


@pytest.mark.parametrize(("capabilities", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_capabilities_are_refused_with_a_hint(capabilities: Any, message: str) -> None:
    with pytest.raises(Malformed) as refusal:
        needs_of(capabilities)
    assert str(refusal.value) == message


def test_a_spec_holds_what_was_declared() -> None:
    spec = spec_of(
        name="fetch",
        capabilities={"storage": {"scope": "session", "ttl_seconds_default": 60}},
        effect="read_only",
        sandbox="restricted",
        connector="github@2.1",
        cost_usd="0.10",
        description="Fetches.",
    )
    assert spec.needs == CapabilitySet(["storage:*:session", "connector:use:github"])
    assert (spec.effect, spec.sandbox, spec.connector) == ("read_only", "restricted", ConnectorRef("github", "2.1"))
    assert (spec.cost_usd, spec.storage_ttl_seconds, spec.description) == (Decimal("0.1"), 60, "Fetches.")
    assert spec.schema is None


@pytest.mark.parametrize(
    "needs",
    [
        ["fs:read:/a", "fs:read:/b"],
        ("fs:read:/b", Capability("fs:read:/a"), "fs:read:/a/inside"),
        CapabilitySet(["fs:read:/a", "fs:read:/b"]),
        iter(["fs:read:/a", "fs:read:/b"]),
    ],
    ids=["list", "tuple", "set", "iterator"],
)
def test_needs_are_rules_however_they_are_gathered(needs: Any) -> None:
    assert spec_of(name="t", needs=needs).needs == CapabilitySet(["fs:read:/a", "fs:read:/b"])


def refusal_of(rule: str) -> str:
    with pytest.raises(Malformed) as refusal:
        Capability(rule)
    return str(refusal.value)


NEITHER = "`t` does not say what it touches: give `capabilities=` or `needs=`; "
NEITHER += "`capabilities={}` is a tool that touches nothing"
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "neither": ({}, TypeError, NEITHER),
    "both": (
        {"capabilities": {}, "needs": []},
        TypeError,
        ("`t` says twice what it touches: keep one of `capabilities=` and `needs=`"),
    ),
    "a name with a space": (
        {"name": "a b", "needs": []},
        Malformed,
        "found `a b`, expected a name of 1 to 128 letters, digits, `_`, `.`, `/` or `-`",
    ),
    "a name that is no text": ({"name": 5, "needs": []}, Malformed, "found `5`, expected text as `name`"),
    "one text as needs": (
        {"needs": "fs:read:/a"},
        Malformed,
        ("found `fs:read:/a`, expected a list of rules such as `fs:read:/srv/data` as `needs`; write `['fs:read:/a']`"),
    ),
    "a mapping as needs": (
        {"needs": {"network": {}}},
        Malformed,
        ("found `{'network': {}}`, expected a list of rules such as `fs:read:/srv/data` as `needs`"),
    ),
    "a number as needs": (
        {"needs": 5},
        Malformed,
        "found `5`, expected a list of rules such as `fs:read:/srv/data` as `needs`",
    ),
    "a number as a need": (
        {"needs": [5]},
        Malformed,
        "found `5`, expected a rule such as `fs:read:/srv/data` in `needs`",
    ),
    "a need that is no rule": ({"needs": ["fs:raed:/a"]}, Malformed, refusal_of("fs:raed:/a")),
    "needs with a deny": (
        {"needs": CapabilitySet(["fs:read:/a"], ["fs:read:/a/b"])},
        Malformed,
        ("found `fs:read:/a/b`, expected needs without denies; a tool says what it touches; manifests deny"),
    ),
    "an unknown class": (
        {"needs": [], "effect": "readonly"},
        Malformed,
        (
            "found `readonly`, expected one of "
            "`read_only`, `write_limited`, `full`, `destructive` as `effect`; did you mean `read_only`?"
        ),
    ),
    "an unknown level": (
        {"needs": [], "sandbox": "isolate"},
        Malformed,
        ("found `isolate`, expected one of `restricted`, `isolated`, `native` as `sandbox`; did you mean `isolated`?"),
    ),
    "a flag as level": (
        {"needs": [], "sandbox": True},
        Malformed,
        "found `True`, expected one of `restricted`, `isolated`, `native` as `sandbox`",
    ),
    "a connector that is no text": (
        {"needs": [], "connector": 5},
        Malformed,
        "found `5`, expected a connector such as `github` or `github@2.1`",
    ),
    "a connector of no version": (
        {"needs": [], "connector": "github@"},
        Malformed,
        "found ``, expected a version such as `2.1`",
    ),
    "a connector with a space": (
        {"needs": [], "connector": "git hub"},
        Malformed,
        "found `git hub`, expected a name of 1 to 128 letters, digits, `_`, `.`, `/` or `-`",
    ),
    "a description that is no text": (
        {"needs": [], "description": 5},
        Malformed,
        "found `5`, expected text as `description`",
    ),
}


@pytest.mark.parametrize(("arguments", "kind", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_declaration_is_refused(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refusal:
        spec_of(**{"name": "t", **arguments})
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        ("0.25", "0.25"),
        ("5.00", "5"),
        ("0", "0"),
        (5, "5"),
        (0.1, "0.1"),
        (1e-7, "0.0000001"),
        (2.5, "2.5"),
        (Decimal("1E+3"), "1000"),
        (Decimal("0.10"), "0.1"),
        (Decimal("-0"), "0"),
        (10**9, "1000000000"),
        ("0.000000000000001", "0.000000000000001"),
    ],
)
def test_money_is_exact_and_has_one_spelling(given: Decimal | str | float, exact: str) -> None:
    with localcontext(Context(prec=3)):  # what others set up for their own sums must not round ours
        assert f"{amount(given):f}" == exact


@pytest.mark.parametrize(
    "given",
    [
        -1, -0.01, "-1", "NaN", "inf", float("nan"), float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"),
        True, None, b"1", [], 1 + 0j, "1_000", " 1", "1e3", "", "٣", ".5", "5.", 10**9 + 1, Decimal("1e-16"),
        Decimal("1e999999999"), Decimal("1e-999999999"), 0.1 + 0.2,
    ],
    ids=repr,
)  # fmt: skip
def test_money_that_is_not_a_plain_amount_is_refused(given: Any) -> None:
    with pytest.raises(Malformed, match="expected an amount from 0 to 1000000000, to 15 decimals, as `cost_usd`"):
        amount(given)


@pytest.mark.parametrize(("given", "hint"), [(0.1 + 0.2, '; write it as text, such as `"0.25"`'), (-1, "")])
def test_a_float_that_prints_too_long_is_better_written_as_text(given: float, hint: str) -> None:
    with pytest.raises(Malformed) as refusal:
        amount(given)
    assert str(refusal.value).endswith(f"as `cost_usd`{hint}")


@pytest.mark.parametrize(
    ("docstring", "line"),
    [
        ("", ""),
        ("One line.", "One line."),
        ("Two\n  lines.\n\nMore.", "Two lines."),
        ("\n\nLate start.\n   \nMore.", "Late start."),
    ],
)
def test_the_summary_is_the_first_paragraph(docstring: str, line: str) -> None:
    assert summary(docstring) == line
