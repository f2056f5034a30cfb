"""What a policy says about flow: labels of results, origins that arguments must have, and who may read secrets.

These are the values of the key `flow:`, and of `flow`, `from`, `of`, `always` and `asked_by` at tools. How values are
matched is `licet.core.flow`; how a call is judged,
`licet.core.decision.flow_judgement`.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Label = Literal["untrusted", "identity", "trusted", "authored", "ack"]
FlowOrigin = Literal["task", "trusted", "identity", "made", "named", "asked", "seen", "unknown"]
Role = Literal["to", "ref", "choice", "value", "link", "when", "code", "content"]
Preset = Literal["off", "watch", "guarded", "strict", "rule_of_two", "trifecta"]
Otherwise = Literal["ask", "deny"]

LABELS: tuple[Label, ...] = ("untrusted", "identity", "trusted", "authored", "ack")
ORIGINS: tuple[FlowOrigin, ...] = ("task", "trusted", "identity", "made", "named", "asked", "seen", "unknown")
# From the loosest to the strictest. `watch` records what `guarded` would say.
PRESETS: tuple[Preset, ...] = ("off", "watch", "trifecta", "rule_of_two", "guarded", "strict")

# The origins that `guarded` takes for each role. `content` is free, apart from the addresses in it.
OF_ROLE: Mapping[Role, tuple[FlowOrigin, ...]] = {
    "to": ("task", "trusted", "identity"),
    "ref": ("task", "trusted", "identity", "made"),
    "choice": ("task", "trusted"),
    "value": ("task", "trusted"),
    "link": ("task", "trusted", "named"),
    "when": ("task", "trusted", "identity", "named"),
    "code": ("task", "trusted", "identity", "made", "named", "asked", "seen"),
    "content": ORIGINS,
}
# What an anchor adds: another argument of the same call that stands in the task.
BY_ANCHOR: Mapping[Role, tuple[FlowOrigin, ...]] = {"to": ("named", "asked"), "when": ("asked",)}


class ResultLabels(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the results of a tool are labelled, if its arguments lie where `under` says."""

    under: tuple[tuple[str, str], ...] = ()  # arguments, each with the path that it must be at or below
    label: Label = "untrusted"  # of every leaf that `fields` does not name
    fields: tuple[tuple[str, Label], ...] = ()  # JSON pointers without a first `/` and without indices: `sender/email`
    creates: bool = False  # whether its acknowledgement names what the call made


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The label of what is read through one rule."""

    use: str  # a rule such as `fs:read:/srv/policies`, in normal form
    label: Label


class SecretSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is secret: fields of a tool's results, or what is read through a rule; and where it may then be sent."""

    tool: str = ""
    fields: tuple[str, ...] = ()  # without them, every leaf
    use: str = ""
    readers: tuple[str, ...] = ()  # rules


class Flow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key `flow:` of a policy."""

    preset: Preset = "off"
    also: tuple[Preset, ...] = ()  # of another policy: `rule_of_two` asks where `guarded` does not, so both hold
    otherwise: Otherwise = "ask"
    own: tuple[str, ...] = ()  # domains, each with all below it
    # By tool: the first that fits; without one, untrusted. `sources` are about tools that are not here.
    results: Mapping[str, tuple[ResultLabels, ...]] = {}
    sources: tuple[Source, ...] = ()
    secrets: tuple[SecretSource, ...] = ()
    also_guessed: bool = False  # of another policy, which names no secrets: `trifecta` guesses what is secret
    roles: Mapping[Role, tuple[FlowOrigin, ...]] = {}  # the origins that two policies have in common; else `OF_ROLE`
    task_through_client: bool = False  # whether a client of a gateway may say the task
    prompt_is_task: bool = False  # `task: prompt`: whether the prompt of a headless run is the task

    def __bool__(self) -> bool:
        return self.preset != "off"

    @property
    def presets(self) -> tuple[Preset, ...]:
        """All presets that hold: of one policy, or of several together."""
        return (self.preset, *self.also)

    @property
    def only_watches(self) -> bool:
        """Whether it records what would be asked, and changes nothing."""
        return self.presets == ("watch",)

    @property
    def guesses_secrets(self) -> bool:
        """Whether a call counts as having read a secret by what it touched: a connector, a file that is sensitive."""
        return not self.secrets or self.also_guessed


NO_FLOW = Flow()


class ArgumentFlow(Struct, frozen=True, kw_only=True):
    """What one policy says about an argument: a role, or the origins themselves."""

    role: Role | None = None
    origins: tuple[FlowOrigin, ...] | None = None  # `from:`, which replaces those of the role
    of: tuple[str, ...] = ()  # `tool:field`, those that give such ids
    always: bool = False  # whether it holds from the start, and not from the first untrusted text on


class ToolFlow(Struct, frozen=True, kw_only=True):
    """What all policies in force say about the arguments of a tool. Every one of them must be met."""

    arguments: Mapping[str, tuple[ArgumentFlow, ...]] = {}
    asked_by: tuple[tuple[str, ...], ...] = ()  # of each list, the task must have a word that begins so

    def __bool__(self) -> bool:
        return bool(self.arguments or self.asked_by)
