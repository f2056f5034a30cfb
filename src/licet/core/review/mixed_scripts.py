"""Warns about hosts whose letters are of several scripts: such a name may look like another one that everybody knows.

A host like `apple.com` with a Cyrillic letter in it is another host. Rules have it as `xn--pple-43d.com`, which nobody
reads as a name. The warning shows how the host looks, and names the scripts of its letters.
"""

import unicodedata
from collections.abc import Iterator

from licet.core.algebra.rules import Capability
from licet.core.policy.manifest import Manifest
from licet.core.values import Problem

_CODED = "xn--"
# Languages that are written in several scripts at once: Japanese, Chinese and Korean, each also with Latin letters.
_TOGETHER = (
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA"},
    {"LATIN", "CJK", "BOPOMOFO"},
    {"LATIN", "CJK", "HANGUL"},
)
_LIKE_LATIN = {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "GEORGIAN"}  # whole words may look Latin


def mixed_script_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each host that a file allows or a tool declares, with letters that no language mixes."""
    shared = [one.layer for admissions in manifest.admissions.values() for one in admissions if one.layer]
    rules = [(rule.capability, rule.origin) for layer in (*manifest.layers, *shared) for rule in layer.allows]
    rules += [(need, spec.origin or manifest.origin) for spec in manifest.tools.values() for need in spec.touches.allow]
    hosts = {(rule.key.lstrip("."), origin): None for rule, origin in rules if _has_coded_label(rule)}
    for host, origin in hosts:
        if looks := mixed_look(host):
            found, hint = f"the host `{host}`, which {looks}", "make sure that it is the host that you mean"
            yield Problem(origin, found, "letters of one script", hint, "warning")


def _has_coded_label(rule: Capability) -> bool:
    return rule.domain == "network" and _CODED in rule.key


def mixed_look(host: str) -> str:
    """How a host looks, and the scripts of its letters, if no language mixes these; else empty."""
    if _CODED not in host:
        return ""
    labels = [_decoded(label) for label in host.split(".")]
    scripts = [_scripts(label) for label in labels]
    every = set[str]().union(*scripts)
    mixed = [each for each in scripts if not _go_together(each)]
    if not mixed and not ("LATIN" in every and every & _LIKE_LATIN):
        return ""
    named = " and ".join(sorted(script.capitalize() for script in (mixed[0] if mixed else every)))
    return f"is shown as `{'.'.join(labels)}`, with {named} letters"


def _decoded(label: str) -> str:
    if not label.startswith(_CODED):
        return label
    try:
        return label.removeprefix(_CODED).encode("ascii").decode("punycode")
    except UnicodeError:  # nothing that could be shown
        return label


def _scripts(label: str) -> set[str]:
    """The scripts of the letters of a label, by the first word of their names."""
    return {unicodedata.name(letter, "UNKNOWN").split()[0] for letter in label if letter.isalpha()}


def _go_together(scripts: set[str]) -> bool:
    return len(scripts) < 2 or any(scripts <= together for together in _TOGETHER)
