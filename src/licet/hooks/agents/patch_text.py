"""The files that a patch names, in the format that models of several agents write (`*** Begin Patch`).

Agents read this format with programs that forgive different mistakes. What is accepted here means the same to all of
them; the rest is unreadable, so that the model is told, and no file is written that nobody decided about.
"""

from licet.hooks.agent_event import Unreadable
from licet.hooks.agents.dialect import PatchedFile
from licet.hooks.agents.event_payload import is_plain_path

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_END_OF_FILE = "*** End of File"
_ADD = "*** Add File: "
_DELETE = "*** Delete File: "
_UPDATE = "*** Update File: "
_MOVE = "*** Move to: "


def patched_files(text: str) -> tuple[PatchedFile, ...]:
    """The files that a patch adds, updates, deletes, or moves to, in its order. Raises `Unreadable`.

    >>> patched_files("*** Begin Patch\\n*** Delete File: a.txt\\n*** End Patch")
    (PatchedFile(action='delete', path='a.txt'),)
    """
    lines = [line.removesuffix("\r") for line in text.strip().split("\n")]
    if lines[0] != _BEGIN or lines[-1] != _END or len(lines) < 2:
        raise Unreadable(f"a patch begins with the line `{_BEGIN}` and ends with the line `{_END}`")
    found: list[PatchedFile] = []
    section = ""  # the header that the lines below belong to
    for number, line in enumerate(lines[1:-1], 2):
        if line.startswith((_ADD, _DELETE, _UPDATE)):
            section = next(header for header in (_ADD, _DELETE, _UPDATE) if line.startswith(header))
            action = {_ADD: "add", _DELETE: "delete", _UPDATE: "update"}[section]
            found.append(PatchedFile(action, _path(line[len(section) :], number)))  # type: ignore[arg-type]
        elif line.startswith(_MOVE):
            if section != _UPDATE or not lines[number - 2].startswith(_UPDATE):
                raise Unreadable(f"line {number} of the patch moves a file, and the line above does not update one")
            found.append(PatchedFile("move", _path(line[len(_MOVE) :], number)))
        elif not _belongs(line, section):
            raise Unreadable(f"line {number} of the patch belongs to no file")
    if not found:
        raise Unreadable("the patch names no file")
    return tuple(found)


def _belongs(line: str, section: str) -> bool:
    if section == _ADD:
        return line.startswith("+")
    if section == _UPDATE:
        # One reader takes an indented `*** End Patch` as the end, another as a line of the file.
        return line == "" or line == _END_OF_FILE or (line[0] in "+- @" and line.strip() != _END)
    return False


def _path(path: str, number: int) -> str:
    """A path that all readers of patches understand alike: they trim different characters."""
    if not path or path[0] == "~" or not is_plain_path(path):
        raise Unreadable(f"line {number} of the patch has no plain path")
    return path
