"""Keys that are known by the name of their variable: where each is sent, and how. For offers, never for decisions.

A key of this table travels as it is: in `Authorization`, or in the headers that its row names. What cannot be placed at
all is in `core/policy/unplaceable.py`.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from licet.core.policy.inspection import StandIn


class KnownKey(Struct, frozen=True):
    """A key of a service that many people use."""

    kind: Literal["model", "code host", "registry"]
    variables: tuple[str, ...]
    hosts: tuple[str, ...]
    headers: tuple[str, ...] = ()  # besides `authorization`


KNOWN_KEYS = (
    KnownKey("model", ("ANTHROPIC_API_KEY",), ("api.anthropic.com",), ("x-api-key",)),
    KnownKey("model", ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"), ("api.anthropic.com",)),
    KnownKey("model", ("OPENAI_API_KEY", "CODEX_API_KEY"), ("api.openai.com",)),
    KnownKey(
        "model", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("generativelanguage.googleapis.com",), ("x-goog-api-key",)
    ),
    KnownKey("model", ("MISTRAL_API_KEY",), ("api.mistral.ai",)),
    KnownKey("model", ("OPENROUTER_API_KEY",), ("openrouter.ai",)),
    KnownKey("model", ("DEEPSEEK_API_KEY",), ("api.deepseek.com",)),
    KnownKey("model", ("GROQ_API_KEY",), ("api.groq.com",)),
    KnownKey("model", ("XAI_API_KEY",), ("api.x.ai",)),
    KnownKey("model", ("COPILOT_GITHUB_TOKEN",), ("api.github.com", "*.githubcopilot.com")),
    KnownKey(
        "code host",
        ("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_PERSONAL_ACCESS_TOKEN"),
        ("api.github.com", "github.com", "uploads.github.com"),
    ),
    KnownKey("code host", ("GITLAB_TOKEN", "GITLAB_PERSONAL_ACCESS_TOKEN"), ("gitlab.com",), ("private-token",)),
    KnownKey("registry", ("NPM_TOKEN", "NODE_AUTH_TOKEN"), ("registry.npmjs.org",)),
    KnownKey("registry", ("TWINE_PASSWORD", "UV_PUBLISH_TOKEN"), ("upload.pypi.org",)),
    KnownKey("registry", ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"), ("huggingface.co",)),
)
_BY_VARIABLE = {variable: known for known in KNOWN_KEYS for variable in known.variables}


def known_stand_in(variable: str, secret: str) -> StandIn | None:
    """The stand-in that fits a variable of this name, for a secret; None if the key is not known."""
    known = _BY_VARIABLE.get(variable)
    if known is None:
        return None
    return StandIn(name=variable, secret=secret, hosts=tuple(sorted(known.hosts)), headers=known.headers)


def entry_text(entry: StandIn) -> str:
    """An entry of `stand_ins` on one line of YAML.

    >>> entry_text(StandIn(name="T", secret="k", hosts=("*.x.test", "x.test"), headers=("x-key",)))
    'T: {secret: k, hosts: ["*.x.test", x.test], headers: [x-key]}'
    """
    headers = f", headers: {_listed(entry.headers)}" if entry.headers else ""
    return f"{entry.name}: {{secret: {entry.secret}, hosts: {_listed(entry.hosts)}{headers}}}"


def inspect_text(entries: Iterable[StandIn]) -> str:
    """The `inspect` that some entries need, on one line of YAML."""
    return f"inspect: {_listed(sorted({host for entry in entries for host in entry.hosts}))}"


def _listed(items: Iterable[str]) -> str:
    quoted = (f'"{item}"' if item.startswith("*") or "{" in item else item for item in items)
    return f"[{', '.join(quoted)}]"
