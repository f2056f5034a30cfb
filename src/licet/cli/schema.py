"""`licet schema`: the JSON Schema of each kind of policy file, for editors."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import click

from licet.cli.limits import SCHEMA_FILE_BYTES
from licet.cli.options import FILE, json_option, refuse
from licet.cli.output import make_folder, print_report, show_json, show_lines, write_file
from licet.core.values import Origin, Problem
from licet.own_files import read_regular
from licet.policy_files import load, schema
from licet.policy_files.shapes import json_schema

SHAPES = {**schema.SHAPES, "tests": load.CASES}
DESCRIPTIONS = {**schema.DESCRIPTIONS, "tests": load.DESCRIPTION}


@click.command(name="schema")
@click.argument("kind", type=click.Choice(tuple(SHAPES)), required=False)
@click.option("--output", "-o", metavar="DIR", type=FILE, help="Write all of them into a directory instead.")
@json_option
def command(kind: str | None, output: Path | None) -> None:
    """Print the JSON Schema of a kind of file, so that your editor completes and checks it.

    Without KIND the kinds are listed. Editors with a YAML language server find the schema through a first line such
    as `# yaml-language-server: $schema=.licet/manifest.schema.json`; `licet init` writes that line and the file.
    """
    if output is not None:
        if kind is not None:
            raise click.UsageError("--output writes all kinds; leave out KIND")
        if foreign := [problem for one in SHAPES if (problem := not_ours(one, output))]:
            refuse(foreign)
        written = [write_schema(one, output) for one in SHAPES]
        print_report({"written": written}, lambda _: show_lines(f"wrote {path}" for path in written))
    elif kind is not None:
        show_json(schema_of(kind))
    else:
        print_report(DESCRIPTIONS, lambda kinds: show_lines(f"{one:<13}{about}" for one, about in kinds.items()))


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of one kind of file."""
    return json_schema(SHAPES[kind], _title(kind), DESCRIPTIONS[kind])


def not_ours(kind: str, folder: Path) -> Problem | None:
    """The problem of a file that a schema would replace; None if licet wrote it or there is none."""
    path = _path(kind, folder)
    if not os.path.lexists(path):
        return None
    found = "something that is not a file"
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        found = "a link"
    elif stat.S_ISREG(mode):
        try:
            held = json.loads(_content(path))
        except (ValueError, RecursionError):
            held = None
        if isinstance(held, dict) and held.get("title") == _title(kind):
            return None
        found = "a file that licet did not write"
    return Problem(Origin(str(path), 1, 1), found, "none, or a schema that licet wrote", "move it out of the way")


def write_schema(kind: str, folder: Path) -> Path:
    """Write the JSON Schema of one kind of file into a directory, in which `not_ours` found nothing."""
    path = _path(kind, folder)
    text = json.dumps(schema_of(kind), indent=2) + "\n"
    make_folder(folder)
    if _content(path) != text.encode():
        write_file(path, text, replace=True)
    return path


def _path(kind: str, folder: Path) -> Path:
    return folder / f"{kind}.schema.json"


def _title(kind: str) -> str:
    return f"licet {kind}"


def _content(path: Path) -> bytes:
    """The content of a file; empty if it cannot be read or is too long for a schema."""
    try:
        return read_regular(path, SCHEMA_FILE_BYTES, links=False)
    except OSError:
        return b""
