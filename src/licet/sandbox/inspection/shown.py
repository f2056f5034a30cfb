"""What a program behind walls sees because its HTTPS is looked into: `begin` before its start, then `shown_to`.

`begin` makes the authority and the stand-ins of one run. `shown_to` turns them into variables and files of the private
root; with the orders for the walls go stand-ins and certificates alone.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from licet.core.algebra.scope import inside
from licet.core.decision.placing import place_of_key, reached_directory
from licet.core.decision.reach import Reach
from licet.core.policy.inspection import Inspection
from licet.guard.execution import Command, SandboxUnavailable
from licet.guard.import_path import followed
from licet.sandbox.grant_paths import KernelPaths
from licet.sandbox.inspection.authority import Authority
from licet.sandbox.inspection.client_trust import FOLDER, Trust, trust_in
from licet.sandbox.inspection.inspected import Inspecting
from licet.sandbox.inspection.operator_files import mounted_names, other_names, read_key_file
from licet.sandbox.inspection.stand_ins import CannotPlace, read_keys
from licet.sandbox.kernel.namespaces import BENEATH
from licet.sandbox.programs.program_files import SYSTEM, Shown
from licet.sandbox.programs.system_configuration import configuration

_OF_ALL, _OF_THE_USER = 0o444, 0o400  # modes: some clients refuse a file with keys that others may read
_NO_COPIES = "no file can be shown with a stand-in here, because there are no namespaces"


async def begin(inspection: Inspection, value: Callable[[str], Awaitable[str]], reach: Reach) -> Inspecting:
    """The authority and the stand-ins of one run; `value` gives the secret of a reference.

    Raises `SandboxUnavailable` for a key that cannot be placed, and for a file that cannot be read.
    """
    try:
        keys = await read_keys(inspection, value, partial(read_key_file, ceiling=reach.manifest.ceiling))
    except CannotPlace as wrong:
        text = f"a key of `stand_ins` cannot be placed: {wrong}"
        raise SandboxUnavailable(text, place_of_key(wrong.name, reach)) from None
    return Inspecting(inspection, Authority(inspection.inspect), keys)


def shown_to(
    command: Command,
    inspecting: Inspecting,
    paths: KernelPaths,
    reach: Reach,
    seen: Sequence[str] = (),
    *,
    network: bool,
    spaces: bool,
) -> Shown:
    """The variables and files of one program. Raises `SandboxUnavailable` if a file cannot be shown safely.

    `seen` are paths that it reads though no grant names them, such as the environment of a script's interpreter.
    """
    keys, authority = inspecting.keys, inspecting.authority
    if keys.files and not spaces:
        raise SandboxUnavailable(_NO_COPIES)
    variables, files, names = dict(keys.environment), dict[str, tuple[bytes, int]](), list[str]()
    if network and spaces:
        try:
            trust = trust_in(authority.certificate, authority.subject_hash, command.environment, command.directory)
        except ValueError as wrong:
            raise SandboxUnavailable(f"the trusted certificates cannot be shown: {wrong}") from None
        variables = {**trust.variables, **variables}
        files = {path: (content, _OF_ALL) for path, content in _fitting(trust, paths)}
        names += trust.names
    hide: dict[str, None] = {}
    reals = []
    roots = tuple(os.path.realpath(path) for path in (*SYSTEM, *configuration(), *paths.read, *paths.write))
    own = tuple(map(os.path.realpath, seen))
    for path, content in keys.files.items():
        real = os.path.realpath(path)
        _check_directory(path, real, inspecting.inspection, roots, own, paths.hide, reach)
        files[real] = content, _OF_THE_USER
        names.append(path)
        reals.append(real)
        try:
            hide |= dict.fromkeys(other_names(real, (*paths.read, *paths.write)))
        except OSError as wrong:
            raise SandboxUnavailable(f"`{path}` cannot be shown with a stand-in: {wrong.strerror}") from None
    names = [name for name in names if not inside(name, paths.hide)]
    return _numbered(files)._replace(
        environment=variables,
        names=tuple(names),
        keys=tuple(reals),
        hide=tuple(hide),
        directories=(FOLDER, BENEATH) if files else (),
    )


def _check_directory(
    path: str,
    real: str,
    inspection: Inspection,
    roots: tuple[str, ...],
    own: tuple[str, ...],
    hide: Collection[str],
    reach: Reach,
) -> None:
    """Refuse a file in a directory that the program reaches: whoever replaces the file there takes the copy away.

    What is its own is shown also where it is to be hidden.
    """
    # A link on the way can be replaced as the file can.
    names = (path, real, *followed(path)[1], *mounted_names(real))
    directories = {os.path.realpath(os.path.dirname(name)) for name in names}
    closed = tuple(hide)
    reached = (inside(place, own) or (inside(place, roots) and not inside(place, closed)) for place in directories)
    if not any(reached):
        return
    name = next((entry.name for entry in inspection.stand_ins if entry.file == path), path)
    found, expected, hint = reached_directory(name, path)
    raise SandboxUnavailable(f"found {found}; expected {expected}; {hint}", place_of_key(name, reach))


def _fitting(trust: Trust, paths: KernelPaths) -> Iterator[tuple[str, bytes]]:
    """The files of trust, without new names in directories of the host that the program may write or does not see."""
    for path, content in trust.files.items():
        above = os.path.dirname(path)
        closed = inside(path, (*paths.write, *paths.hide))
        seen = inside(above, (*SYSTEM, *configuration(), *paths.read)) or not os.path.lexists(above)
        if path not in trust.added or (seen and not closed):
            yield path, content


def _numbered(files: Mapping[str, tuple[bytes, int]]) -> Shown:
    """The files for the orders of a launcher, where each content is written once."""
    numbers = {content: number for number, content in enumerate(dict.fromkeys(found for found, _ in files.values()))}
    contents = tuple(content.decode("latin-1") for content in numbers)
    return Shown(contents=contents, copies=tuple((path, numbers[found], mode) for path, (found, mode) in files.items()))
