"""What is kept of each edited configuration, to undo the edit: its bytes, and the entries that were taken out.

Each edit is one file in the state directory, readable by this user only, since configurations contain tokens. It is
deleted once the edit is undone.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from licet.clients.jsonc import BadConfig, KeyPath, Original, checked, table_of
from licet.clients.known import CLIENTS, Client, Seen, Unusable, digest, own_directory, read_own, replace_own, write_own

_DIRECTORY = "mcp-clients"
_FORMAT = 1


class EditedTable(Struct, frozen=True):
    """One table of servers: the entry of the gateway in it, and the entries whose place that took."""

    table: KeyPath
    gateway: str  # empty if the table had the gateway already
    entry: Mapping[str, Any]
    originals: Mapping[str, Original]


class Edit(Struct, frozen=True):
    """One edit of a file."""

    format: int
    client: str
    path: str
    base: str
    before: str  # base64
    digest_before: str
    digest_after: str
    tables: tuple[EditedTable, ...]


class Undone(Struct, frozen=True):
    """How an edit was undone: all bytes restored, or single entries put back; `skipped` are there already."""

    path: Path
    exact: bool
    put_back: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


class Keeper:
    """Keeps and undoes the edits of one workspace."""

    def __init__(self, state: Path) -> None:
        self._folder = state / _DIRECTORY

    def keep(self, client: Client, seen: Seen, base: Path, after: bytes, tables: tuple[EditedTable, ...]) -> Path:
        """Store what is needed to undo an edit. This comes before the edit, so that no crash loses the bytes."""
        folder = own_directory(self._folder)
        number = max((int(path.stem) for path in self._files()), default=0) + 1
        edit = Edit(
            _FORMAT,
            client.name,
            str(seen.path),
            str(base),
            base64.b64encode(seen.data).decode(),
            digest(seen.data),
            digest(after),
            tables,
        )
        path = folder / f"{number:06}.json"
        write_own(path, json.dumps(msgspec.to_builtins(edit), indent=1, default=str).encode())
        return path

    def edits(self) -> list[tuple[Path, Edit]]:
        """All edits that can be undone, the newest first."""
        return [(path, _read(path, self._folder)) for path in reversed(self._files())]

    def forget(self, path: Path) -> None:
        """Delete an edit that was undone."""
        path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        found = self._folder.glob("*.json") if self._folder.is_dir() else ()
        return sorted(path for path in found if path.stem.isdecimal())


def _read(path: Path, base: Path) -> Edit:
    seen = read_own(path, base)
    try:
        edit = msgspec.json.decode(seen.data if seen else b"", type=Edit)
    except msgspec.DecodeError:
        raise Unusable(f"{path} is damaged: what it kept has to be put back by hand") from None
    if edit.format != _FORMAT:
        raise Unusable(f"{path} was written by another version of licet: undo it with that one")
    return edit


def undo(edit: Edit) -> Undone:
    """Restore the bytes of a file if it is as the edit left it; else put back only the entries."""
    path, base = Path(edit.path), Path(edit.base)
    seen = read_own(path, base)
    if seen is None:
        raise Unusable(f"{path} is not there any more")
    now = digest(seen.data)
    before = base64.b64decode(edit.before)
    if digest(before) != edit.digest_before:
        raise Unusable(f"the kept copy of {path} is damaged")
    if now == edit.digest_before:  # the edit was never made, or was undone by hand
        return Undone(path, exact=True)
    if now == edit.digest_after:
        replace_own(seen, before, base)
        return Undone(path, exact=True)
    text, put_back, skipped = _with_entries(edit, seen.text)
    replace_own(seen, text.encode("utf-8"), base)
    return Undone(path, exact=False, put_back=put_back, skipped=skipped)


def _with_entries(edit: Edit, text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The text with the entries of an edit instead of its gateway, and the names of those put back and skipped."""
    form = next((client.form for client in CLIENTS if client.name == edit.client), None)
    if form is None:
        raise Unusable(f"{edit.client} is no client that this version of licet knows")
    put_back: list[str] = []
    skipped: list[str] = []
    for one in edit.tables:
        try:
            found = table_of(form.read(text), one.table)
            is_there = one.gateway != "" and _is_same_gateway(found.get(one.gateway), one.entry)
            left = found.keys() - ({one.gateway} if is_there else set())  # an older gateway may have had its name
            wanted = {name: was for name, was in one.originals.items() if name not in left}
            spans = form.put_back(text, one.table, one.gateway if is_there else "", wanted)
            expected = {name: value for name, value in found.items() if not (is_there and name == one.gateway)}
            expected |= {name: was.data for name, was in wanted.items()}
            text = checked(form, text, spans, one.table, expected)
        except BadConfig as wrong:
            raise Unusable(f"{edit.path} changed since, and its entries cannot be put back: {wrong}") from None
        put_back += wanted
        skipped += [name for name in one.originals if name not in wanted]
    return text, tuple(put_back), tuple(skipped)


def _is_same_gateway(found: Any, entry: Mapping[str, Any]) -> bool:
    """Whether an entry still starts the gateway with the same manifest; clients may have added keys of their own."""
    if not isinstance(found, dict) or not isinstance(args := found.get("args"), list):
        return False
    return (found.get("command"), args[:2]) == (entry["command"], entry["args"][:2])
