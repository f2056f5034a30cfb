"""A tool leads out of what it was granted with a link that it makes there, which the host follows for it."""

import os

from attacks.behind_walls import Outside, scratch
from licet import SyncContext


def attack(ctx: SyncContext, secret: str, granted: str) -> str:
    try:
        os.symlink(secret, f"{granted}/link")
    except PermissionError:  # at `restricted` it can be made in scratch alone
        os.symlink(secret, scratch("link"))
        return str(ctx.fs.read(scratch("link")))
    try:
        return str(ctx.fs.read(f"{granted}/link"))
    except Exception:
        with open(f"{granted}/link", encoding="utf-8") as file:
            return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, refused="PermissionError|PATH_NOT_REACHABLE")
