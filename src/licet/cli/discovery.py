"""The policy that a command uses if none is named: the one in the current directory, if this user has accepted it.

Its lock must be accepted too: it has the definitions that models read, and the packages that are started. There,
`.licet/licet.yaml` comes before `licet.yaml`. A policy in a directory above is named, and not used: `${workdir}` would
silently be another directory than its author meant.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from licet.cli.options import FILE, Setting
from licet.own_files import is_there
from licet.policy_files.policy_paths import PLACES, policy_root

# A bad command line is reported before the library is loaded.
if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from licet.core.policy.manifest import Manifest

_ENDINGS = (".yaml", ".yml", ".json", ".py")  # a Python file is no policy; its reader reports that
_BEGINNINGS = ("/", "./", "../", "~/")


class Named(Struct, frozen=True):
    """A policy file, and whether the user named it or it was found."""

    path: Path
    by_hand: bool = True
    demanded: bool = False  # whether it must be accepted although it was named

    @property
    def must_be_accepted(self) -> bool:
        """Whether it is used only if this user has accepted it and its lock."""
        return self.demanded or not self.by_hand


def find_policy() -> Path | None:
    """The policy of the current directory. A second one is reported and ignored."""
    found = [place for place in PLACES if is_there(place)]
    if found[1:]:
        from licet.cli.output import show

        show(f"licet: {found[1]} is ignored, since {found[0]} exists too", err=True, colour="yellow")
    return found[0] if found else None


def nothing_here() -> str:
    """That there is no policy here, what to do, and where one is above."""
    text = "there is no .licet/licet.yaml and no licet.yaml here"
    advice = "name a policy file, or write one with `licet init`"
    if (above := policy_above()) is None:
        return f"{text}: {advice}"
    why = "a policy is used in its own directory alone, since `${workdir}` is where you are"
    return f"{text}, but there is {above}: {why}. {go_up(above)} to use it, or {advice}"


def policy_above() -> Path | None:
    """The nearest policy in a directory above this one, which is not used here."""
    up = Path("..")
    for _ in Path(os.path.abspath(up)).parts:
        if found := next((up / place for place in PLACES if is_there(up / place)), None):
            return found
        up /= ".."
    return None


def go_up(above: Path) -> str:
    """The command that goes to the directory of a policy above."""
    return f"`cd {policy_root(above)}`"


def asked_elsewhere() -> str:
    """Where the state of calls may be, if neither a policy nor its state is here; otherwise empty."""
    above = policy_above() if find_policy() is None else None
    return "" if above is None else f"; for calls under {above}: {go_up(above)}"


def named_or_found(path: Path | None, argument: str) -> Named:
    """The file that was named, or the policy of the current directory; a usage error if there is none."""
    if path is not None:
        return Named(path)
    found = find_policy()
    if found is None:
        raise click.UsageError(f"Missing argument '{argument}': {nothing_here()}.", click.get_current_context())
    return Named(found, by_hand=False)


def named_first(words: Sequence[str]) -> tuple[Path | None, tuple[str, ...]]:
    """The policy file that the first word names, if it does, and the other words.

    It does if it ends or begins like a path, or if there is such a file. If the policy here has a tool of that name
    too, the command asks which one is meant.
    """
    if not words:
        return None, ()
    first, rest = words[0], tuple(words[1:])
    if not first.lower().endswith(_ENDINGS) and not first.startswith(_BEGINNINGS):
        if not os.path.isfile(first):
            return None, tuple(words)
        if first in _tools_of(next(filter(is_there, PLACES), None)):
            text = f"`{first}` is a file and a tool of the policy here"
            raise click.UsageError(f"{text}: write `./{first}`, or name the policy before the tool")
    return FILE.convert(first, None, click.get_current_context(silent=True)), rest


def require_trust(named: Named, manifest: "Manifest", *, lock: bool = True) -> None:
    """Exit with 1 if the policy must be accepted, and this user has not accepted it and its lock as they are now.

    Without `lock` only the policy counts: for a command that does not use its lock.
    """
    if not named.must_be_accepted:
        return
    from licet.cli.output import fail
    from licet.policy_files.trust import unaccepted

    if why := unaccepted(named.path, manifest, by_hand=named.by_hand, lock=lock):
        fail(why)


def check_setting(named: Named, setting: Setting) -> None:
    """Refuse to combine a policy that must be accepted with files that were not accepted together with it."""
    if named.must_be_accepted and (setting.workspace or setting.personality):
        without = " without --accepted" if named.demanded else ""
        text = f"--workspace and --personality need a named manifest{without}, such as {named.path}"
        raise click.UsageError(text, click.get_current_context())


def complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Files and the tools of the policy here for the first word; after a file, its tools."""
    from click.shell_completion import CompletionItem

    words = ctx.params.get(param.name or "") or ()
    named = named_first(words)[0] if words else None
    if words[1 if named else 0 :]:
        return []
    tools = _tools_of(named or next(filter(is_there, PLACES), None))
    files = [] if words else [CompletionItem(incomplete, type="file")]
    return files + [CompletionItem(name) for name in sorted(tools) if name.startswith(incomplete)]


def _tools_of(path: Path | None) -> set[str]:
    """The tools that a policy admits; none if it cannot be read."""
    if path is None:
        return set()
    from licet.policy_files.load import read_policy

    policy = read_policy(path)
    return set(policy.manifest.admissions) if policy.manifest is not None else set()
