"""`licet schema`: the JSON Schema of each kind of policy file, so that editors complete and check them."""

import json
from pathlib import Path
from typing import Any

import click

from licet.backends.manifest_shapes import DESCRIPTIONS, SHAPES
from licet.backends.shapes import json_schema
from licet.surfaces.cli.options import FILE, json_option
from licet.surfaces.cli.show import show, show_json
from licet.surfaces.cli.writing import make_folder, write_file


@click.command(name="schema")
@click.argument("kind", type=click.Choice(tuple(SHAPES)), required=False)
@click.option("--output", "-o", metavar="DIR", type=FILE, help="Write all of them into a directory instead.")
@json_option
def command(kind: str | None, output: Path | None, as_json: bool) -> None:
    """Print the JSON Schema of a kind of file, so that your editor completes and checks it.

    Without KIND the kinds are listed. Editors with a YAML language server find the schema through a first line such
    as `# yaml-language-server: $schema=.licet/manifest.schema.json`; `licet init` writes that line and the file.
    """
    if output is not None:
        if kind is not None:
            raise click.UsageError("--output writes all kinds; leave out KIND")
        written = [write_schema(one, output) for one in SHAPES]
        if as_json:
            show_json({"written": [str(path) for path in written]})
        else:
            for path in written:
                show(f"wrote {path}")
    elif kind is not None:
        show_json(schema_of(kind))
    elif as_json:
        show_json(DESCRIPTIONS)
    else:
        for one, about in DESCRIPTIONS.items():
            show(f"{one:<13}{about}")


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of one kind of file."""
    return json_schema(SHAPES[kind], f"licet {kind}", DESCRIPTIONS[kind])


def write_schema(kind: str, folder: Path) -> Path:
    """Write the JSON Schema of one kind of file into a directory."""
    path = folder / f"{kind}.schema.json"
    make_folder(folder)
    write_file(path, json.dumps(schema_of(kind), indent=2) + "\n", replace=True)
    return path
