"""What came of a verification, as text and as plain data: what is wrong, and how far the answer goes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from licet.core.evidence import Pack
from licet.core.finding import Finding, Outcome
from licet.surfaces.cli.show import counted, show, show_json


def tell_ledger(path: Path, outcome: Outcome, key: str, given: str | None, held: bool, as_json: bool) -> NoReturn:
    """Say what came of the verification of a ledger, and end the command."""
    finding = outcome.finding
    notes = [*_notes(outcome, given, held), *_cannot_go_on(path, outcome)]
    if as_json:
        show_json(
            {
                "ok": outcome.ok,
                "file": str(path),
                "ledger": outcome.ledger,
                "entries": outcome.entries,
                "heads": outcome.heads,
                "signed": outcome.signed,
                "root": outcome.root or None,
                "key": key,
                "finding": _finding_document(finding),
                "notes": notes,
            }
        )
    else:
        if finding is None:
            show(f"fine: {entries(outcome.entries)} as they were written", colour="green")
        else:
            show(f"wrong: {finding}", colour="red")
        for title, text in (
            ("file", str(path)),
            ("ledger", outcome.ledger or "none"),
            (
                "size",
                f"{entries(outcome.entries)}, {outcome.signed:,} of them signed by {counted(outcome.heads, 'head')}",
            ),
            ("root", outcome.root or "none"),
            ("key", key),
        ):
            show(f"  {title:<10}{text}")
        for note in notes:
            show(f"  {'note':<10}{note}")
    click.get_current_context().exit(0 if outcome.ok else 1)


def _notes(outcome: Outcome, given: str | None, held: bool) -> Iterator[str]:
    """What a reader must know about how far this goes."""
    if outcome.finding is not None:
        if outcome.finding.kind == "clock":
            yield "everything else is whole: the clock of that machine was set back, or the entry was dated back"
        return
    if late := outcome.entries - outcome.signed:
        text = f"{entries(late)} after the last signed head: linked, and not signed yet"
        if outcome.tagged:
            yield f"{text}; the key beside the ledger shows that its holder wrote them"
        else:
            yield f"{text}, so not proven: whoever can write the file could have written them without the key"
    if given is None:
        yield "the key lay beside the ledger: only `--key` from elsewhere tells a ledger that was exchanged whole"
    if not held:
        yield "without `--head` from elsewhere an older copy of the whole ledger looks like this too"


def _cannot_go_on(path: Path, outcome: Outcome) -> Iterator[str]:
    """Where a ledger is whole, and calls are refused all the same; a copy without its key is not written to anyway."""
    head = path.with_suffix(".head")
    if outcome.ok and outcome.entries and path.with_suffix(".key").exists() and not head.exists():
        yield f"{head} is not there, which has the last signed head: calls are refused until it is put back"


def tell_pack(path: Path, pack: Pack | Finding, key: str, as_json: bool) -> NoReturn:
    """Say what came of the verification of a pack, and end the command."""
    wrong = pack if isinstance(pack, Finding) else None
    if as_json:
        said = pack_document(pack) if isinstance(pack, Pack) else {}
        show_json({"ok": wrong is None, "file": str(path), "key": key, **said, "finding": _finding_document(wrong)})
    elif isinstance(pack, Finding):
        show(f"wrong: {pack if pack.number else pack.text}", colour="red")
        show(f"  {'file':<10}{path}")
        show(f"  {'key':<10}{key}")
    else:
        head = pack.head
        show(f"fine: {entries(len(pack.entries))} as they were written", colour="green")
        for title, text in (
            ("file", str(path)),
            *(("entry", f"{one['number']}: {one['kind']} {one['id']}, {one['verdict']}") for one in pack.entries),
            ("ledger", head.ledger),
            ("size", f"{entries(head.size)} when its head was signed, {head.time}"),
            ("root", head.root),
            ("key", key),
        ):
            show(f"  {title:<10}{text}")
    click.get_current_context().exit(1 if wrong else 0)


def pack_document(pack: Pack) -> dict[str, Any]:
    """A pack as plain data."""
    return {"key": pack.key, "head": pack.head._asdict(), "entries": list(pack.entries)}


def _finding_document(finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    last = max(finding.number, finding.until)
    name = finding.id if isinstance(finding.id, str) else ascii(finding.id)[:200]  # a file may hold anything there
    where = {"entry": finding.number or None, "until": last or None, "receipt": name or None}
    return {"kind": finding.kind, **where, "text": finding.text, "message": str(finding)}


def entries(number: int) -> str:
    """So many entries: `1 entry`, `1,200 entries`."""
    return f"{number:,} {'entry' if number == 1 else 'entries'}"
