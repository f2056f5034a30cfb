"""The scope to declare for a path, host, program or variable that the source shows, or `*` if it does not show it."""

import ast
import re

from licet.core.algebra.capability import destination
from licet.core.algebra.scope import Malformed, binary, path_key, variable
from licet.policy_files.source.values import ExpressionValues, TextPrefix

ANY = "*"  # the source does not show which one, so all that the manifest allows

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_HOST = re.compile(r"https?://([^/?#\s]*)([/?#]?)")


def host_scope(url: TextPrefix | None) -> str:
    """The host of a URL, with its port if it has one."""
    match = _HOST.match(url.text) if url else None
    if match and url and match[1] and "@" not in match[1] and (match[2] or url.complete):
        try:
            destination(match[1])
        except Malformed:
            return ANY
        return match[1]
    return ANY


def path_scope(found: TextPrefix | None) -> str:
    """The scope to declare for a path. If only its beginning is known, it is the directory."""
    if found is None or not found.text:
        return ANY
    text = found.text if found.complete else found.text.rpartition("/")[0]
    if not text.startswith(("/", "~", "${workdir}")):
        if found.text.startswith("/"):
            return ANY  # only the root is known
        text = f"${{workdir}}/{text}" if text else "${workdir}"
    try:
        return path_key(text) or ANY
    except Malformed:
        return ANY


def program_scope(program: ast.expr | None, values: ExpressionValues) -> str:
    """The program that a command starts with; the command is a list, or the program alone."""
    while isinstance(program, ast.BinOp) and isinstance(program.op, ast.Add):
        program = program.left
    program = values.followed(program)
    if isinstance(program, ast.List | ast.Tuple) and program.elts:
        program = program.elts[0]
    found = values.prefix_of(program)
    if found and found.complete:
        try:
            return binary(found.text)
        except Malformed:
            return ANY
    return ANY


def variable_scope(name: TextPrefix | None) -> str:
    """The name of a variable."""
    if name is not None and name.complete:
        try:
            return variable(name.text)
        except Malformed:
            return ANY
    return ANY


def is_secret(variable_name: str) -> bool:
    """Whether the name of a variable says that its value is a secret."""
    return bool(_SECRET.search(variable_name))
