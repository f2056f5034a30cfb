"""The meaning of a manifest as plain data, and its digest: both are equal for policies that mean the same."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from licet.core.algebra.set import CapabilitySet
from licet.core.canonical import digest, plain
from licet.core.policy.addresses import common_ranges
from licet.core.policy.bundle import Bundle
from licet.core.policy.connector import ConnectorRule
from licet.core.policy.connector_definition import Definition
from licet.core.policy.layer import Layer, named_tcp
from licet.core.policy.manifest_fields import ManifestFields
from licet.core.policy.terms import BUDGET_KEYS, Admission
from licet.core.policy.tool import ToolSpec

_ONE_WORD = re.compile(r"[!#-~]+")  # visible ASCII without quotes


def manifest_digest(manifest: ManifestFields) -> str:
    """The digest of what a manifest means, including the parts of the workspace that it uses."""
    return digest(document(manifest))


def document(manifest: ManifestFields) -> dict[str, Any]:
    """The meaning of a manifest as JSON data, without file names, comments, order and notation."""
    connectors = manifest.connectors
    used = manifest.admissions.keys()
    layers: dict[Layer, dict[str, Any]] = {}
    data: dict[str, Any] = plain(
        {
            "format": 1,
            "agent": manifest.agent,
            "version": manifest.version,
            "app": manifest.app,
            "personality": manifest.personality,
            "layers": [_layer(layer) for layer in manifest.layers if layer.kind != "protected paths"],
            "tools": {
                tool: [_admission(admission, layers) for admission in admissions]
                for tool, admissions in manifest.admissions.items()
            },
            "declared": {name: _spec(spec) for name, spec in manifest.tools.items() if name in used},
            "sources": {name: source for name, (source, _) in manifest.sources.items() if name in used},
            "max_side_effect_class": manifest.max_effect,
            "private": [common_ranges([ranges]) for ranges in manifest.private],
            "native": manifest.native,
            "connectors": {
                "tenant": _lines(connectors.tenant),
                "app": None if connectors.app is None else _lines(connectors.app),
                "app_deny": _lines(connectors.app_deny),
                "profiles": [_lines(profile) for profile in connectors.profiles],
                **_stated(definitions=definitions_document(manifest) or None),
            },
            "approvals": {
                "write": manifest.approvals.write,
                "expires_seconds": manifest.approvals.expires_seconds,
                "quorum": manifest.approvals.quorum,
                "keys": None if manifest.approvals.keys is None else sorted(set(manifest.approvals.keys)),
                **_stated(
                    delete=None if manifest.approvals.delete == "call" else manifest.approvals.delete,
                    through_client=True if manifest.approvals.through_client else None,
                    names=dict(manifest.approvals.names) or None,
                ),
            },
            "budget": {
                "max_calls_per_session": manifest.budget.max_calls_per_session,
                "max_cost_usd": manifest.budget.max_cost_usd,
                "max_cost_usd_per_day": manifest.budget.max_cost_usd_per_day,
                **_stated(max_calls_per_day=manifest.budget.max_calls_per_day),
            },
            "limits": manifest.limits,
            **_bundles(manifest),
            "allow_degraded": manifest.allow_degraded,
            "record": manifest.record,
            "servers": {name: server_document(server) for name, server in manifest.servers.items()},
            **_stated(gateway_names=manifest.gateway_names or None),
            # Examples allow nothing, so they are no part of the meaning. The key stays: without examples it was empty,
            # and digests of such policies must stay valid.
            "examples": [],
        }
    )
    return data


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "allow": [str(rule) for rule in layer.allowed.allow],
        "deny": [str(rule) for rule in layer.allowed.deny],
        # At class `write_limited` a rule that names `tcp` allows more than `*` does, so it is part of the meaning.
        "tcp": [str(rule) for rule in named_tcp(layer).allow],
    }


def _admission(admission: Admission, layers: dict[Layer, dict[str, Any]]) -> dict[str, Any]:
    # The tools of a bundle share its layer, which is converted once.
    if admission.layer and admission.layer not in layers:
        layers[admission.layer] = _layer(admission.layer)
    return {
        "bundle": admission.bundle,
        "effects": sorted({effect for effect, _ in admission.effects}),
        "levels": sorted({level for level, _ in admission.levels}),
        "destinations": layers[admission.layer] if admission.layer else None,
        "args": admission.args,
        "approval": admission.approval,
        "max_calls": admission.max_calls,
        **_stated(max_cost_usd=admission.max_cost_usd),
        "limits": admission.limits,
    }


def _bundles(manifest: ManifestFields) -> dict[str, Any]:
    """The keys of the used bundles about all their tools together; classes and hosts are in the admissions."""
    used = {admission.bundle for admissions in manifest.admissions.values() for admission in admissions}
    bundles = {name: _bundle(bundle) for name, bundle in manifest.bundles.items() if name in used}
    return _stated(bundles={name: terms for name, terms in bundles.items() if terms} or None)


def _bundle(bundle: Bundle) -> dict[str, Any]:
    stated, keys = bundle.approvals, bundle.approvals.get("keys")
    return _stated(
        budget=_stated(**{key: getattr(bundle.budget, key) for key in BUDGET_KEYS}) or None,
        expires_seconds=stated.get("expires_seconds"),
        quorum=stated["quorum"] if stated.get("quorum", 1) > 1 else None,
        delete=stated.get("delete"),
        through_client=stated.get("through_client"),
        keys=None if keys is None else sorted(set(keys)),
        connectors=None if bundle.connectors is None else _lines(bundle.connectors),
        private=None if bundle.private is None else common_ranges([bundle.private]),
    )


def definitions_document(manifest: ManifestFields) -> dict[str, Any]:
    """The definitions of the connectors that this agent may use, by name; a key that is left out is None."""
    known = {name: manifest.definitions[name] for name in manifest.connectors.names() if name in manifest.definitions}
    return {name: _definition(definition) for name, definition in known.items()}


def _definition(definition: Definition) -> dict[str, Any]:
    layer, versions = definition.layer, definition.versions
    rules = [rule.capability for rule in layer.allows] if layer is not None else []

    def listed(domain: str) -> list[str] | None:
        if layer is None or domain in layer.silent:
            return None
        return list(map(str, CapabilitySet(rule for rule in rules if rule.domain == domain).allow))

    return {
        "hosts": listed("network"),
        "secrets": listed("secret"),
        "side_effect_class": next((effect for effect, _ in definition.effects), None),
        "versions": versions.versions or None,
        "version": versions.version or None,
        "distribution": versions.distribution or None,
    }


def _stated(**keys: object) -> dict[str, object]:
    """Only the keys that are stated. These keys were added later: without them, older digests must stay valid."""
    return {key: value for key, value in keys.items() if value is not None}


def _spec(spec: ToolSpec) -> dict[str, Any]:
    return {
        "needs": [str(rule) for rule in spec.needs.allow],
        **_stated(optional=[str(rule) for rule in spec.optional.allow] or None),
        "effect": spec.effect,
        "sandbox": spec.sandbox,
        "connector": str(spec.connector) if spec.connector else None,
        "cost_usd": spec.cost_usd,
    }


# Values of a server that mean the same as a key that is left out.
_SAYS_NOTHING: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("headers", "limits", "client"), ({},)),
    **dict.fromkeys(("resources", "prompts", "code"), ([],)),
    "sandbox": ("isolated",),
}


def server_document(server: Mapping[str, Any]) -> dict[str, Any]:
    """The meaning of a server as JSON data: rules in normal form, names sorted, missing keys as empty values."""
    stated = {key: value for key, value in plain(server).items() if value not in _SAYS_NOTHING.get(key, ())}
    data: dict[str, Any] = {"grants": [], "env": [], "secrets": {}, "tools": {}, **stated}
    data["grants"] = list(map(str, CapabilitySet(data["grants"])))
    data["env"] = sorted(set(data["env"]))
    for key in ("resources", "prompts"):
        if isinstance(data.get(key), list):
            data[key] = sorted(set(data[key]))
    if "roots" in data.get("client", {}):
        data["client"] = {**data["client"], "roots": sorted(set(data["client"]["roots"]))}
    for tool in data["tools"].values():
        tool.update(_stated(needs=list(map(str, CapabilitySet(tool["needs"]))) if "needs" in tool else None))
        tool.update(_stated(optional=list(map(str, CapabilitySet(tool.pop("optional", ())))) or None))
    return data


def command_text(words: Iterable[object]) -> str:
    """Write a command as one line. A word is quoted if it is empty or is not plain visible ASCII."""
    return " ".join(word if _ONE_WORD.fullmatch(word) else json.dumps(word) for word in map(str, words))


def _lines(rules: tuple[ConnectorRule, ...]) -> list[str]:
    return sorted({f"{rule.name} {rule.versions}".strip() for rule in rules})
