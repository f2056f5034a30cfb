"""`licet explain`: may this tool do this, which rule says so and where, and the change that would allow it."""

import difflib
import re
from pathlib import Path
from typing import Any, NoReturn

import click

from licet.assemble import Places
from licet.assemble.never_writable import closed_to_grants
from licet.core.decide import decide
from licet.core.decision import Allow, Decision, Ground, Request
from licet.core.explain import explain
from licet.core.foreseen import foreseen
from licet.core.manifest import Manifest
from licet.core.reach import reach_of
from licet.core.use import InvalidUse
from licet.errors import Refused
from licet.surfaces.cli.asked import one_use
from licet.surfaces.cli.found import complete_words, named_first, named_or_found
from licet.surfaces.cli.options import FILE, Setting, json_option, read_sound, setting_options
from licet.surfaces.cli.show import place_document, show, show_json
from licet.surfaces.cli.state import MANIFEST, manifest_option, of_manifest

_RECEIPT = re.compile(r"r-[0-9a-f]+-\d+")
COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}


@click.command(name="explain")
@click.argument(
    "words", metavar="[MANIFEST] TOOL [USE]|RECEIPT", nargs=-1, required=True, shell_complete=complete_words
)
@click.option(
    "--state",
    metavar="DIR",
    type=FILE,
    callback=of_manifest,
    help="Where the receipt is kept.  [default: for this directory, below $XDG_STATE_HOME]",
)
@manifest_option
@setting_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    state: Path | None,
    setting: Setting,
    as_json: bool,
) -> None:
    """Say why a tool may or may not do something, and what would allow it.

    Shown are the rules that decided, each with file and line, and the one-line change that would turn a refusal
    around. Without USE: whether the tool can be called at all. With a RECEIPT alone: why that call ended as it did.
    MANIFEST is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml.

    \b
    USE is one concrete act; one that holds spaces is quoted:
      https://api.example.com/v1        a request; GET unless a method stands before it
      POST https://api.example.com/v1
      /srv/data/a.csv                   a path; read unless `write` or `delete` stands before it
      write out.txt                     from the working directory, as is ./out.txt
      ${workdir}/out.txt, ~/notes       as in a rule
      secret:read:WEATHER_API_KEY       anything, as domain:action:scope
      process:exec:git

    \b
    Exit codes:
      0  allowed
      1  denied; or allowed only once a person agrees; or the files are wrong
      2  not a concrete use, or a command line that makes no sense
    """
    if len(words) == 1 and _RECEIPT.fullmatch(words[0]):
        _explain_receipt(ctx, words[0], state, as_json)
    if MANIFEST in ctx.meta:
        raise click.UsageError("--manifest finds a RECEIPT; to ask about a tool, name the manifest before it", ctx)
    manifest, words = named_first(words)
    if not words:
        raise click.UsageError("Missing argument 'TOOL'.", ctx)
    tool, *rest = words
    use = tuple(rest)
    places = Places.here(setting.workdir)
    try:
        uses = (one_use(use, places),) if use else ()
    except InvalidUse as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="USE") from None
    named = named_or_found(manifest, "MANIFEST")
    policy = closed_to_grants(read_sound(named.path, setting, as_json), places.workdir)
    decision = foreseen(decide(Request(tool, uses), policy), policy)
    if as_json:
        show_json(_document(decision))
    else:
        _show(decision, policy)
    ctx.exit(0 if isinstance(decision, Allow) else 1)


def _explain_receipt(ctx: click.Context, receipt: str, state: Path | None, as_json: bool) -> NoReturn:
    """Say why a call ended as it did, from its receipt."""
    from licet.surfaces.cli.receipt_text import explanation
    from licet.surfaces.cli.receipts import call_of

    decision, ended = call_of(receipt, state, as_json)
    entry = ended or decision
    assert entry is not None  # noqa: S101 - `call_of` has ended the command otherwise
    if as_json:
        show_json({"verdict": entry["verdict"], "reason": entry["reason"], "receipt": entry})
    else:
        first, *rest = explanation(entry)
        show(first, colour=COLOURS[entry["verdict"]])
        for line in rest:
            show(line)
    ctx.exit(0 if entry["verdict"] == "allow" else 1)


def _show(decision: Decision, manifest: Manifest) -> None:
    tool = decision.request.tool
    verdict, *reasons = explain(decision, reach_of(manifest, tool)).splitlines()
    show(verdict, colour=COLOURS[decision.verdict])
    for line in reasons:
        show(line)
    known = manifest.seats.keys() | manifest.tools.keys()
    if tool not in known and (near := difflib.get_close_matches(tool, known, 1)):
        show(f"  did you mean  {near[0]}")


def _document(decision: Decision) -> dict[str, Any]:
    refusal = None if isinstance(decision, Allow) else Refused(decision)
    uses = decision.request.uses
    return {
        "verdict": decision.verdict,
        "reason": refusal.code if refusal else None,
        "tool": decision.request.tool,
        "use": str(uses[0]) if uses else None,
        "rules": [_rule(ground) for ground in decision.rules],
        "message": str(refusal) if refusal else None,
    }


def _rule(ground: Ground) -> dict[str, Any]:
    return {
        "text": ground.text,
        "reason": ground.reason,
        "origin": place_document(ground.origin) if ground.origin else None,
        "fix": ground.fix or None,
    }
