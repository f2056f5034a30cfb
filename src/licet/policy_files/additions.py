"""Adds drafted lines to the text of a policy file. What a person wrote there stays: comments, order, quotes, lines.

Four kinds of lines: items of lists (`licet learn`), items and values that a person allowed (`licet allow`), whole
servers (`licet init --mcp`), and keys in the entries of servers (`licet lock --init`). Lines are inserted into the text
as it is where that is possible. Only a list or mapping that is written on one line, `[…]` or `{…}`, is written anew, by
ruamel.yaml, before something is added to it. A text that would say something else, apart from what is added, is never
returned.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from msgspec import Struct

from licet.policy_files.draft import double_quoted, server_lines, word

MARK = "learned:"  # how the comments of `licet learn` begin
ALLOWED = "allowed:"  # and those of `licet allow`
_CLASS = "max_side_effect_class"
_WIDE = 1 << 16  # so that no line is broken
_COMMENTED = re.compile(r"^\s*#\s+(?:- )?(?:\"([^\"]*)\"|(\S+?))(?:: \{[^#\n]*\})?(?=\s+#|\s*$)", re.MULTILINE)
_LABELS = re.compile(
    rf"^\s*# (\S+|\"[^\"]+\"): .*\btrusted\b.*  # {MARK} ", re.MULTILINE
)  # as `with_labels` writes them
_COMMENT = re.compile(r"(?:^|\s)#(.*)$", re.MULTILINE)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Entry(Struct, frozen=True):
    """One item for a list of a policy file."""

    key: tuple[str, ...]  # below `capabilities`
    text: str
    comment: str
    off: bool = False  # written as a comment
    value: str = ""  # of an entry of a mapping: what it is, as YAML on one line
    mark: str = MARK


class NotKept(ValueError):
    """The file cannot be changed without losing something that a person wrote. `advice` says what would help."""

    def __init__(self, why: str, advice: str = "write the lists as blocks, one item a line") -> None:
        super().__init__(why)
        self.advice = advice


class Noted(Struct, frozen=True):
    """A value for a key, and the comment at the end of its line: a text, a list, or a mapping to values like this."""

    value: "str | Sequence[str] | Mapping[str, Noted] | Mapping[str, Mapping[str, str]]"
    comment: str = ""


# Items of lists -------------------------------------------------------------------------------------------------------


def commented_out(text: str) -> frozenset[str]:
    """The items of lists that are comments in a text."""
    return frozenset(quoted or plain for quoted, plain in _COMMENTED.findall(text))


def with_entries(text: str, entries: Sequence[Entry], effect: str = "", why: str = "") -> str:
    """The text of a policy file with more entries in its lists, and with a class if it states none.

    A class that `licet learn` wrote may be raised; one that a person wrote never is. Raises `NotKept`.
    """
    if not entries and not effect:
        return text
    _check_aliases(text)
    new = text if text.endswith("\n") or not text else f"{text}\n"
    try:
        if effect and class_is_learned(new):
            new = _with_class(new, effect, why)
        keys = dict.fromkeys(entry.key for entry in entries)
        # Comments come last, and the last of them first: a line is put before the comments that end a list.
        for off, ordered in ((False, keys), (True, reversed(keys))):
            for key in ordered:
                if group := [entry for entry in entries if (entry.key, entry.off) == (key, off)]:
                    new = _extended(new, ("capabilities", *key), group)
        _check_kept(text, new)
    except yaml.YAMLError as wrong:  # a way to write YAML that is not foreseen here
        raise NotKept(f"lines cannot be added to it: {wrong}") from None
    return new


def with_labels(text: str, entries: Sequence[Entry]) -> str:
    """The text of a policy file with comments that propose labels, below `flow.results`. Raises `NotKept`.

    A tool that has such a comment already gets no second one.
    """
    known = {found[1] for found in _LABELS.finditer(text)}
    entries = [entry for entry in entries if entry.text not in known]
    if not entries:
        return text
    _check_aliases(text)
    new = text if text.endswith("\n") or not text else f"{text}\n"
    try:
        if _find(new, ("flow",)) is not None:
            new = _extended(new, ("flow", "results"), entries)
        elif known:  # below the lines that were proposed before
            new += "".join(_line(4, _item(entry), off=True) for entry in entries)
        else:
            lines = [(0, "flow:"), (2, f"preset: watch  # {MARK} records what would be asked about, and stops nothing")]
            lines += [(2, "results:"), *((4, _item(entry)) for entry in entries)]
            new += "\n" + "".join(_line(indent, line, off=True) for indent, line in lines)
        _check_kept(text, new)
    except yaml.YAMLError as wrong:
        raise NotKept(f"lines cannot be added to it: {wrong}") from None
    return new


def with_allowed(text: str, items: Sequence[Entry], values: Mapping[tuple[str, ...], str], comment: str) -> str:
    """The text of a policy file with items added to its lists and values set for its keys, whose keys begin at the top.

    Nothing else of what it says is changed: the new text is read again, and compared. Raises `NotKept`.
    """
    _check_aliases(text)
    new = text if text.endswith("\n") or not text else f"{text}\n"
    try:
        for entry in items:
            new = _in_brackets(new, entry) or _extended(new, entry.key, [entry])
        for key, value in values.items():
            new = _with_value(new, key, value, comment)
        _check_comments(text, new)
        changed = _plain(new)
        expected = _plain(text)
    except yaml.YAMLError as error:  # a way to write YAML that is not foreseen here
        raise NotKept(f"lines cannot be added to it: {error}") from None
    for entry in items:
        expected = _changed(expected, entry.key, lambda old, text=entry.text: [*(old or ()), text])  # type: ignore[misc]
    for key, value in values.items():
        expected = _changed(expected, key, lambda _, value=value: value)  # type: ignore[misc]
    if changed != expected:
        raise NotKept("the new lines would say something else there")
    return new


def _in_brackets(text: str, entry: Entry) -> str:
    """The text with an item at the end of a list that is written on one line; empty if there is no such list."""
    node = _find(text, entry.key)
    is_line = isinstance(node, yaml.SequenceNode) and node.flow_style and node.start_mark.line == node.end_mark.line
    if not is_line:
        return ""
    lines, number, end = text.splitlines(keepends=True), node.start_mark.line, node.end_mark.column - 1
    line, comma = lines[number], ", " if node.value else ""
    comment = f"{' ' * _indent_of(line)}# {entry.mark} {entry.comment}: {double_quoted(entry.text)}\n"
    lines[number] = f"{comment}{line[:end].rstrip()}{comma}{double_quoted(entry.text)}{line[end:]}"
    return "".join(lines)


def _with_value(text: str, key: tuple[str, ...], value: str, comment: str) -> str:
    if _find(text, key) is None:
        return _extended(text, key, [Entry((), value, comment, mark=ALLOWED)], scalar=True)
    text = _without_flow(text, key[:-1])
    node, lines = _find(text, key), text.splitlines(keepends=True)
    number, start, end = node.start_mark.line, node.start_mark.column, node.end_mark.column
    if not isinstance(node, yaml.ScalarNode) or node.end_mark.line != number:
        raise NotKept(f"`{'.'.join(key)}` is not written as one word")
    line = lines[number]
    lines[number] = f"{' ' * _indent_of(line)}# {ALLOWED} {comment}\n{line[:start]}{value}{line[end:]}"
    return "".join(lines)


def _changed(content: Any, key: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of what a file says with one value changed; what is missing on the way to it is made."""
    if not key:
        return change(None if content in ("", "~", "null") else content)
    inner = content if isinstance(content, dict) else {}
    return {**inner, key[0]: _changed(inner.get(key[0]), key[1:], change)}


def _item(entry: Entry) -> str:
    return f"{entry.text}: {entry.value}  # {MARK} {entry.comment}"


def _check_aliases(text: str) -> None:
    """Raise `NotKept` if a YAML file has anchors or aliases: a line added to one place would appear in both."""
    for event in yaml.parse(text, Loader=_LOADER):
        if getattr(event, "anchor", None) is not None:
            place = f"line {event.start_mark.line + 1} has the anchor or alias `{event.anchor}`"
            raise NotKept(place, "write out what the alias stands for")


def class_is_learned(text: str) -> bool:
    """Whether a file states no class, or one that `licet learn` wrote."""
    found = _find(text, ("capabilities", _CLASS))
    return found is None or MARK in text.splitlines()[found.start_mark.line]


def _with_class(text: str, effect: str, why: str) -> str:
    found = _find(text, ("capabilities", _CLASS))
    if found is None:
        return _extended(text, ("capabilities", _CLASS), [Entry((), effect, why)], scalar=True)
    lines = text.splitlines(keepends=True)
    line = found.start_mark.line
    lines[line] = f"{lines[line][: found.start_mark.column]}{effect}  # {MARK} {why}\n"
    return "".join(lines)


def _extended(text: str, key: tuple[str, ...], entries: Sequence[Entry], *, scalar: bool = False) -> str:
    """The text with entries at the end of one list, which is made if it is missing."""
    known = next(depth for depth in range(len(key), -1, -1) if _find(text, key[:depth]) is not None)
    text = _without_flow(text, key[:known])
    holder = _find(text, key[:known])
    off = all(entry.off for entry in entries)
    lines = text.splitlines(keepends=True)
    is_other_text = isinstance(holder, yaml.ScalarNode) and holder.value not in ("", "~", "null")
    if is_other_text or (isinstance(holder, yaml.SequenceNode) and holder.value and key[known:]):
        raise NotKept(f"`{'.'.join(key[:known])}` is no list or mapping")
    if not holder.value or isinstance(holder, yaml.ScalarNode):  # nothing yet: `{}`, `[]` or null
        line, indent = holder.start_mark.line, _indent_of(lines[holder.start_mark.line]) + 2
        start, end = holder.start_mark.column, holder.end_mark.column
        lines[line] = f"{lines[line][:start].rstrip()}{lines[line][end:]}"
        if not key[:known]:
            indent = 0
    else:
        line, indent = _last_line(holder), _column(holder)
    missing, added = key[known:], []
    for depth, name in enumerate(missing[:-1] if scalar else missing):
        added.append(_line(indent + 2 * depth, f"{name}:", off))
    indent += 2 * (len(missing) - scalar)
    for entry in entries:
        item = f"{entry.text}: {entry.value}" if entry.value else f"- {word(entry.text)}"
        if scalar:
            item = f"{key[-1]}: {entry.text}"
        elif isinstance(holder, yaml.MappingNode) and holder.value and not missing:  # `tools` may be a mapping
            item = f"{entry.text}: {entry.value or '{}'}"
        added.append(_line(indent, f"{item}  # {entry.mark} {entry.comment}", entry.off))
    return "".join([*lines[: line + 1], *added, *lines[line + 1 :]])


def _line(indent: int, text: str, off: bool) -> str:
    return f"{' ' * indent}{'# ' if off else ''}{text}\n"


def _find(text: str, key: tuple[str, ...]) -> Any:
    """The node at a key; None if it is missing."""
    node = yaml.compose(text, Loader=_LOADER)
    for name in key:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for found, value in pairs if found.value == name), None)
        if node is None:
            return None
    return node


def _last_line(node: yaml.Node) -> int:
    """The last line of a node, without the comments and empty lines after it."""
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    line: int = node.end_mark.line
    return line


def _column(node: Any) -> int:
    first = node.value[0]
    column: int = first[0].start_mark.column if isinstance(first, tuple) else node.start_mark.column
    return column


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# Lists on one line ----------------------------------------------------------------------------------------------------


def _without_flow(text: str, key: tuple[str, ...]) -> str:
    """The text with the collections on the way to a key, and there, written as blocks."""
    ways = [key[:depth] for depth in range(len(key) + 1)]
    if not any(getattr(node := _find(text, way), "flow_style", False) and node.value for way in ways):
        return text
    writer = _writer(text)
    data = part = writer.load(text)
    for name in ("", *key):
        part = part[name] if name else part
        if getattr(part, "fa", None) is not None and part:
            part.fa.set_block_style()
    return _dumped(writer, data)


def _writer(text: str) -> Any:
    """A reader and writer that keeps quotes, lines and the indentation that a file has."""
    from ruamel.yaml import YAML
    from ruamel.yaml.util import load_yaml_guess_indent

    writer = YAML()
    writer.preserve_quotes = True
    writer.width = _WIDE
    _, indent, offset = load_yaml_guess_indent(text) if text else (None, 2, 0)
    mapping = re.search(r"(?m)^\S[^#\n]*:[ \t]*(?:#.*)?\n( +)\S", text)
    known = re.search(r"(?m)^\s*- ", text)
    lists = (indent or 2, offset or 0) if known else (4, 2)
    writer.indent(mapping=len(mapping[1]) if mapping else 2, sequence=lists[0], offset=lists[1])
    return writer


def _dumped(writer: Any, data: object) -> str:
    out = io.StringIO()
    writer.dump(data, out)
    return out.getvalue()


# Checks ---------------------------------------------------------------------------------------------------------------


def _check_kept(before: str, after: str) -> None:
    """Raise `NotKept` if a comment or a value of a text is not in the other one."""
    _check_comments(before, after)
    if not _contains(_plain(after), _plain(before)):
        raise NotKept("a value would be lost")


def _check_comments(before: str, after: str) -> None:
    left = _comments(after)
    for comment in _comments(before):
        if comment in left:
            left.remove(comment)
        elif MARK not in comment:  # else of a class that was raised
            raise NotKept(f"the comment `#{comment}` would be lost")


def _plain(text: str) -> Any:
    return yaml.load(text, Loader=_BaseLoader)  # noqa: S506  # it makes texts, lists and mappings only


_BaseLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _comments(text: str) -> list[str]:
    return [found.rstrip() for found in _COMMENT.findall(text)]


def _contains(after: object, before: object) -> bool:
    if isinstance(before, dict):
        return isinstance(after, dict) and all(
            name == _CLASS or (name in after and _contains(after[name], before[name])) for name in before
        )
    if isinstance(before, list):
        return not before or (isinstance(after, list) and after[: len(before)] == before)
    return before in ("", "~", "null", None) or bool(after == before)


# Servers --------------------------------------------------------------------------------------------------------------


def with_servers(text: str, servers: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of a policy file with more entries at the beginning of its `servers:`. Raises `NotKept`."""
    if not servers:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    rows = text.split("\n")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise NotKept("it is not written in lines of `key: value`")
    found = next(((key, value) for key, value in root.value if key.value == "servers"), None)
    if found is None:
        lead = "" if text.endswith("\n") else newline
        added = [*("", "servers:"), *(f"  {line}" for line in server_lines(servers))]
        return _checked(text, text + lead + "".join(line + newline for line in added), servers)
    key, value = found
    if isinstance(value, yaml.MappingNode) and not value.flow_style and value.value:
        indent = " " * value.value[0][0].start_mark.column
    elif isinstance(value, yaml.MappingNode) and not value.value and value.end_mark.line == key.start_mark.line:
        indent = " " * (key.start_mark.column + 2)  # `{}`, which goes
        row, start, end_column = rows[key.start_mark.line], value.start_mark.column, value.end_mark.column
        rows[key.start_mark.line] = row[:start].rstrip() + row[end_column:]
    else:
        raise NotKept("its `servers` are written on one line")
    end = "\r" if newline == "\r\n" else ""
    line = key.start_mark.line + 1
    rows[line:line] = [f"{indent}{one}{end}" for one in server_lines(servers)]
    return _checked(text, "\n".join(rows), servers)


def _checked(before: str, after: str, servers: Mapping[str, Mapping[str, Any]]) -> str:
    """The new text, once it is sure that it says the same and the new servers."""
    try:
        old, new = yaml.safe_load(before), yaml.safe_load(after)
    except yaml.YAMLError:
        raise NotKept("the new entries would break it") from None
    if new != {**old, "servers": {**(old.get("servers") or {}), **servers}}:
        raise NotKept("the new entries would change what is there")
    return after


def entries_of_servers(text: str) -> dict[str, Any]:
    """What a policy file has under `servers:`, by name."""
    from ruamel.yaml import YAML

    found: dict[str, Any] = (YAML(typ="safe", pure=True).load(text) or {}).get("servers") or {}
    return found


def with_server_keys(text: str, servers: Mapping[str, Mapping[str, Noted]]) -> str:
    """The text of a policy file with keys added to entries of `servers:`, which are made if they are missing.

    Other lines may change too, where they are not written as the writer does it: see `keeps_lines`.
    """
    from ruamel.yaml.comments import CommentedMap

    writer = _writer(text)
    data = (writer.load(text) if text else None) or CommentedMap()
    for name, keys in servers.items():
        if not data.get("servers"):
            data["servers"] = CommentedMap()
        entries = data["servers"]
        entry = entries.setdefault(name, CommentedMap())
        entries.fa.set_block_style()
        entry.fa.set_block_style()
        _put(entry, keys)
    return _dumped(writer, data)


def _put(entry: Any, keys: Mapping[str, Noted]) -> None:
    for key, one in keys.items():
        entry[key] = _written(one.value)
        if one.comment:
            entry.yaml_add_eol_comment(one.comment, key)


def _written(value: Any) -> Any:
    """A value as the writer takes it: lists and mappings of texts on one line, each text quoted if need be."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, str):
        return value
    made: Any
    if not isinstance(value, Mapping):
        made = CommentedSeq(one if word(one) == one else DoubleQuotedScalarString(one) for one in value)
    elif value and isinstance(next(iter(value.values())), Noted):
        made = CommentedMap()
        _put(made, value)
        return made
    else:
        made = CommentedMap()
        for key, one in value.items():
            made[key] = DoubleQuotedScalarString(one) if isinstance(one, str) else _written(one)
    made.fa.set_flow_style()
    return made


def keeps_lines(before: str, after: str, servers: Sequence[str]) -> bool:
    """Whether each line of a text is still there, in order. An entry that is written on one line may become several."""
    left = iter(line.rstrip() for line in after.splitlines())
    one_line = re.compile(rf"\s*(?:servers\s*:\s*\{{.*|[\"']?(?:{'|'.join(servers)})[\"']?\s*:\s*\{{.*)")
    lines = (line.rstrip() for line in before.splitlines())
    return all(one_line.fullmatch(line) or line in left for line in lines)
