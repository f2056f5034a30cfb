"""Runs the cases of the YAML files here: files are written, commands run in this process, and their answers compared.

A file has `setup`, steps that come before each case, and `cases`: a name and its steps. A step is `verb words: value`:

    write: {NAME: TEXT}      a list joins its parts, and a mapping in it replaces words; a mapping is written as JSON
    licet WORDS: EXPECTED    runs a command: nothing (it ends with 0), the exit code, all that it prints, or a mapping
    real WORDS: EXPECTED     the same in a process of its own
    file NAME: EXPECTED      what a file holds; `json NAME` and `yaml NAME` compare values in it
    change NAME: CHANGES     edits a JSON file, by path; null takes a key out
    save NAME: PATH          keeps a value of the last JSON, `out`, or what `re:…` finds, as <NAME> for later steps

and others that say what they do (World below, and verbs.py). Steps that several cases share have a name under `steps`.
What is expected of a command has `exit` (0 if nothing is said), `out`, `err`, `output` (both), `json` and `yaml` (by
path), alone for all of it or with one of MATCHERS. A case with `each` runs once for each of its `rows`: <NAME> is then
the value of that column. <here> is the project, <tmp> the directory around it.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import warm
from attacks.walled_programs import needs_namespaces, needs_walls
from command_line import run
from sampled_files import MOST_OF_FILE

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARKED = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Step:
    """A verb, the words after it, and its value; and the line where it is written."""

    line: int
    text: str
    value: Any


@dataclass(frozen=True)
class Case:
    """Steps with a name, and the values of one row, if it has rows."""

    file: Path
    name: str
    steps: list[Step]
    known: dict[str, Any] = field(default_factory=dict)
    sampled: int = 0
    who: bool = False
    needs: str = ""

    def param(self) -> Any:
        """The case for `parametrize`, with its marks."""
        marks = [pytest.mark.who] if self.who else []
        marks += [{"walls": needs_walls, "namespaces": needs_namespaces}[self.needs]] if self.needs else []
        file = str(self.file.relative_to(HERE.parent))
        most = MOST_OF_FILE.get(file)
        if self.sampled:
            marks.append(pytest.mark.sampled(self.sampled, of=f"{file}: {self.name.partition(' [')[0]}"))
        elif most:
            marks.append(pytest.mark.sampled(most, of=file))
        return pytest.param(self, id=f"{self.file.stem}: {self.name}", marks=marks)


# Reading --------------------------------------------------------------------------------------------------------------


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # which of them, the machine decides
    """Refuses a key that is there twice, and gives a step the line where it is written."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key is there twice: {keys}"
        return super().construct_mapping(node, deep)


def steps_of(node: yaml.Node, loader: Any, named: Mapping[str, list[Step]]) -> list[Step]:
    """The steps of a sequence, each a text or a mapping with one key."""
    assert isinstance(node, yaml.SequenceNode), f"{node.start_mark}: expected steps"
    found: list[Step] = []
    for one in node.value:
        content = loader.construct_object(one, deep=True)
        content = {content: None} if isinstance(content, str) else content
        assert len(content) == 1, f"{one.start_mark}: expected one verb"
        [(text, value)] = content.items()
        found += named[text] if text in named else [Step(one.start_mark.line + 1, text, value)]
    return found


def read(file: Path) -> Iterator[Case]:
    """The cases of one file, in its order."""
    loader = Loader(file.read_text("utf-8"))
    top = {key.value: value for key, value in loader.get_single_node().value}
    assert top.keys() <= {"shared", "steps", "setup", "cases"}, f"{file}: {sorted(top)}"
    if "shared" in top:
        loader.construct_object(top["shared"], deep=True)
    named: dict[str, list[Step]] = {}
    for key, node in top["steps"].value if "steps" in top else ():
        named[key.value] = steps_of(node, loader, named)
    setup = steps_of(top["setup"], loader, named) if "setup" in top else []
    seen = set()
    for key, node in top["cases"].value:
        assert key.value not in seen, f"{key.start_mark}: a second case with this name"
        seen.add(key.value)
        if isinstance(node, yaml.SequenceNode):
            yield Case(file, key.value, setup + steps_of(node, loader, named))
            continue
        parts = {name.value: value for name, value in node.value}
        steps = setup + steps_of(parts.pop("do"), loader, named)
        more = {name: loader.construct_object(value, deep=True) for name, value in parts.items()}
        columns, rows = more.pop("each", None), more.pop("rows", None)
        if columns is None:
            yield Case(file, key.value, steps, **more)
            continue
        for name, row in rows.items() if isinstance(rows, dict) else ((None, row) for row in rows):
            values = row if len(columns) > 1 else [row]
            assert all(isinstance(column, str) for column in columns), f"{key.start_mark}: a column that is no text"
            assert len(values) == len(columns), f"{file.name}: {key.value}: {row}"
            shown = name or " ".join(map(str, as_list(values[0])))
            known = dict(zip(columns, values, strict=True))
            yield Case(file, f"{key.value} [{shown.strip()[:60]}]", steps, known, **more)


def all_cases() -> list[Any]:
    """The cases of all files, for `parametrize`."""
    return [case.param() for file in sorted(HERE.glob("*.yaml")) if file.name != "messages.yaml" for case in read(file)]


# Comparing ------------------------------------------------------------------------------------------------------------


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def fits(line: str, pattern: str) -> bool:
    """Whether a line is as it should be; `…` is any text."""
    return bool(re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), line))


def all_fit(found: str, patterns: list[str]) -> bool:
    lines = found.splitlines()
    return len(lines) == len(patterns) and all(map(fits, lines, patterns))


MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda found, expected: bool(found == expected and type(found) is type(expected)),
    "has": lambda found, expected: all(one in found for one in as_list(expected)),
    "lacks": lambda found, expected: all(one not in found for one in as_list(expected)),
    "starts": lambda found, expected: found.startswith(expected),
    "ends": lambda found, expected: found.endswith(expected),
    "matches": lambda found, expected: all(re.search(one, found, re.MULTILINE) for one in as_list(expected)),
    "lacks colour": lambda found, expected: not re.search(expected, found),
    "lines": all_fit,
    "has lines": lambda found, expected: all(any(fits(line, one) for line in found.splitlines()) for one in expected),
    "starts lines": lambda found, expected: all_fit("\n".join(found.splitlines()[: len(expected)]), expected),
    "count": lambda found, expected: {one: found.count(one) for one in expected} == expected,
    "keys": lambda found, expected: sorted(found) == sorted(expected),
    "any order": lambda found, expected: sorted(map(str, found)) == sorted(map(str, expected)),
    "distinct": lambda found, expected: len(set(found)) == expected,
    "length": lambda found, expected: len(found) == expected,
    "not": lambda found, expected: bool(found != expected),
    "contains": lambda found, expected: found | expected == found,
    "lines have": lambda found, expected: all(expected in line for line in found.splitlines()),
    "fit": lambda found, expected: len(found) == len(expected) and all(map(fits, found, expected)),
    "any": lambda found, expected: any(found) is expected,
    "over": lambda found, expected: bool(found > expected),
    "at least": lambda found, expected: bool(found >= expected),
}


def at(data: Any, path: str) -> Any:
    """A value in data by its path: keys, numbers, `*` for each of them, `key=value` for the first that has it."""
    if not path:
        return data
    part, _, rest = path.partition("/")
    if part == "*":
        return [at(one, rest) for one in (data.values() if isinstance(data, dict) else data)]
    if isinstance(data, dict):
        return at(data[part], rest)
    if "=" in part:
        key, _, value = part.partition("=")
        return at(next(one for one in data if str(one[key]) == value), rest)
    return at(data[int(part)], rest)


def compare(subject: str, matcher: str, found: Any, expected: Any) -> None:
    """Fail unless a value is as expected."""
    if not matcher and isinstance(expected, list) and isinstance(found, str):
        matcher = "lines"
    if not matcher and isinstance(found, str) and isinstance(expected, str) and subject in ("out", "err", "file"):
        expected += "\n" if expected and not expected.endswith("\n") else ""
    if not MATCHERS[matcher or "is"](found, expected):
        raise Differs(f"{subject} {matcher}".strip(), expected, found)


class Differs(Exception):
    """Something is not as a step says: what, what was expected, and what was found."""


def compare_paths(subject: str, data: Any, expected: Mapping[str, Any]) -> None:
    """Compare values of some data, each by `path` or `path matcher`."""
    for key, value in expected.items():
        path, _, matcher = key.partition(" ")
        try:
            found = at(data, path)
        except (KeyError, IndexError, ValueError, TypeError, StopIteration):
            raise Differs(f"{subject} {key}", value, data) from None
        compare(f"{subject} {path}", matcher, found, value)


# Running --------------------------------------------------------------------------------------------------------------


class World:
    """The project of one case: what its steps do there, and what they have kept."""

    def __init__(self, here: Path, monkeypatch: pytest.MonkeyPatch, known: Mapping[str, Any]) -> None:
        self.patch = monkeypatch
        self.known = {"here": str(here), "tmp": str(here.parent), "root": str(ROOT)}
        self.known |= {name: self.filled(value) for name, value in known.items()}
        self.out = self.err = self.output = ""
        self.before: dict[str, Any] = {}

    def filled(self, value: Any) -> Any:
        """A value of a case with what is known in place of <NAME>."""
        if isinstance(value, str):
            whole = MARKED.fullmatch(value)
            if whole and whole[1] in self.known:
                return self.known[whole[1]]
            return MARKED.sub(lambda found: str(self.known.get(found[1], found[0])), value)
        if isinstance(value, list):
            return [one for part in value for one in self.filled_part(part)]
        return {self.filled(key): self.filled(one) for key, one in value.items()} if isinstance(value, dict) else value

    def filled_part(self, part: Any) -> list[Any]:
        """A part of a list; a list in place of a <NAME> becomes parts of it."""
        filled = self.filled(part)
        return filled if isinstance(part, str) and isinstance(filled, list) else [filled]

    def words(self, text: str) -> list[str]:
        """The words of a command line; a list takes the place of its <NAME>."""
        filled = map(self.filled, shlex.split(text))
        return [str(one) for word in filled for one in as_list(word)]

    def step(self, step: Step) -> None:
        """Do what a step says."""
        verb = max((verb for verb in DO if f"{step.text} ".startswith(f"{verb} ")), key=len, default="")
        assert verb, "no such verb"
        DO[verb](self, step.text[len(verb) :].strip(), self.filled(step.value))

    # Files

    def do_write(self, rest: str, files: Mapping[str, Any]) -> None:
        for name, content in files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else self.text(content).encode())

    def do_append(self, rest: str, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            Path(name).write_text(Path(name).read_text("utf-8") + text, "utf-8")

    def do_change(self, name: str, changes: Mapping[str, Any]) -> None:
        file = Path(self.filled(name))
        data = json.loads(file.read_bytes())
        for path, value in changes.items():
            above, _, key = path.rpartition("/")
            for one in as_list(at(data, above)):
                if value is None:
                    del one[key]
                else:
                    one[key] = value
        file.write_text(json.dumps(data))

    def do_replace(self, name: str, changes: Mapping[str, str]) -> None:
        file = Path(self.filled(name))
        self.do_write("", {str(file): [file.read_text("utf-8"), changes]})

    def do_read(self, rest: str, name: str) -> None:
        self.known[rest] = Path(name).read_text("utf-8")

    def do_pipe(self, rest: str, name: str) -> None:
        os.mkfifo(name)

    def do_take_lines_out_of(self, name: str, which: Mapping[str, Any]) -> None:
        lines = Path(name).read_text("utf-8").splitlines(keepends=True)
        kept = [one for one in lines if which["having"] not in one and one.strip() not in which["are"]]
        Path(name).write_text("".join(kept), "utf-8")

    def do_has_mode(self, rest: str, modes: Mapping[str, int]) -> None:
        for name, mode in modes.items():
            compare(f"mode of {name}", "", oct(Path(name).stat().st_mode & 0o777), oct(mode))

    def text(self, content: Any) -> str:
        if isinstance(content, dict):
            return json.dumps(content)
        made = ""
        for part in as_list(content):
            if not isinstance(part, dict):
                made += self.text(part) if isinstance(part, list) else str(part)
                continue
            for old, new in part.items():
                assert old in made, f"`{old}` is not in the text"
                made = made.replace(old, new)
        return made

    def do_mkdir(self, rest: str, names: Any) -> None:
        for name in as_list(names):
            Path(name).mkdir(parents=True)

    def do_remove(self, rest: str, names: Any) -> None:
        for name in as_list(names):
            path = Path(name)
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

    def do_copy(self, rest: str, files: Mapping[str, str]) -> None:
        for name, target in files.items():
            shutil.copytree(name, target) if Path(name).is_dir() else shutil.copy(name, target)

    def do_link(self, rest: str, links: Mapping[str, str]) -> None:
        for name, target in links.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).symlink_to(target)

    def do_hard_link(self, rest: str, links: Mapping[str, str]) -> None:
        for name, target in links.items():
            os.link(target, name)

    def do_mode(self, rest: str, modes: Mapping[str, int]) -> None:
        for name, mode in modes.items():
            Path(name).chmod(mode)

    def do_cd(self, rest: str, name: str) -> None:
        self.patch.chdir(name)

    def do_env(self, rest: str, variables: Mapping[str, str | None]) -> None:
        for name, value in variables.items():
            self.patch.delenv(name, raising=False) if value is None else self.patch.setenv(name, str(value))

    def do_file(self, rest: str, expected: Any) -> None:
        name, _, matcher = self.filled(rest).partition(" ")
        try:
            found = Path(name).read_bytes().decode()
        except OSError as error:
            raise Differs(f"file {name}", expected, str(error)) from None
        compare("file", matcher, found, expected)

    def do_json(self, name: str, expected: Mapping[str, Any]) -> None:
        compare_paths(name, json.loads(Path(self.filled(name)).read_bytes()), expected)

    def do_yaml(self, name: str, expected: Mapping[str, Any]) -> None:
        compare_paths(name, yaml.safe_load(Path(self.filled(name)).read_bytes()), expected)

    def do_missing(self, rest: str, names: Any) -> None:
        there = [name for name in as_list(names) if os.path.lexists(name)]
        compare("files that are there", "", there, [])

    def do_tree(self, folder: str, names: list[str]) -> None:
        compare(f"tree {folder}", "", sorted(os.listdir(self.filled(folder) or ".")), sorted(names))

    def do_remember(self, rest: str, folders: Any) -> None:
        self.before = {name: contents(Path(name)) for name in as_list(folders or ".")}

    def do_unchanged(self, rest: str, nothing: None) -> None:
        for name, before in self.before.items():
            compare(f"files in {name}", "", contents(Path(name)), before)

    # Commands

    def do_licet(self, rest: str, expected: Any) -> None:
        given = expected.pop("stdin", None) if isinstance(expected, dict) else None
        ended = run(*self.words(rest), code=None, stdin=given)
        self.answer(ended.exit_code, ended.stdout, ended.stderr, ended.output, expected)

    def do_real(self, rest: str, expected: Any) -> None:
        given = expected.pop("stdin", "") if isinstance(expected, dict) else ""
        ended = warm.run(warm.PROGRAM, self.words(rest), stdin=given)
        self.answer(ended.returncode, ended.stdout, ended.stderr, ended.stdout + ended.stderr, expected)

    def do_not_imported(self, rest: str, name: str) -> None:
        compare(f"{name} in sys.modules", "", name in sys.modules, False)

    def do_git(self, rest: str, nothing: None) -> None:
        people = {f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {**os.environ, **people, "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(["git", *self.words(rest)], check=True, capture_output=True, text=True, env=env)
        self.out = done.stdout.strip()

    def answer(self, code: int, out: str, err: str, output: str, expected: Any) -> None:
        """Compare what a command printed and how it ended."""
        self.out, self.err, self.output = out, err, output
        if not isinstance(expected, dict):
            name = "exit" if isinstance(expected, int) else "out"
            expected = {} if expected is None else {name: expected}
        wanted = {"exit": 0, **expected}.pop("exit")
        if wanted != "any" and code != wanted:
            raise Differs("exit", wanted, f"{code}, and it said:\n{output}")
        for key, value in expected.items():
            subject, _, matcher = key.partition(" ")
            if subject in ("json", "yaml"):
                data = json.loads(out) if subject == "json" else yaml.safe_load(out)
                compare(key, matcher, data, value) if matcher else compare_paths(subject, data, value)
            elif subject != "exit":
                compare(subject, matcher, {"out": out, "err": err, "output": output}[subject], value)

    def do_repeat(self, rest: str, what: Mapping[str, Any]) -> None:
        self.known[rest] = what["text"] * what["times"]

    def do_sh(self, rest: str, expected: Any) -> None:
        """A command as a shell reads it, such as one that was printed."""
        self.do_licet(str(self.filled(rest)).removeprefix("licet "), expected)

    def do_exists(self, rest: str, names: Any) -> None:
        absent = [name for name in as_list(names) if not os.path.lexists(name)]
        compare("files that are missing", "", absent, [])

    def do_let(self, rest: str, values: Mapping[str, Any]) -> None:
        self.known |= values
        self.known = {name: self.filled(value) for name, value in self.known.items()}

    def do_save(self, rest: str, path: str) -> None:
        if path.startswith("re:"):
            found = re.search(path[3:], self.output, re.MULTILINE)
            if not found:
                raise Differs("output matches", path[3:], self.output)
            self.known[rest] = found[1]
        else:
            self.known[rest] = self.out if path == "out" else at(json.loads(self.out), path)


DO: dict[str, Callable[[World, str, Any], None]] = {
    name.removeprefix("do_").replace("_", " "): verb for name, verb in vars(World).items() if name.startswith("do_")
}


def contents(folder: Path) -> dict[str, Any]:
    """What lies in a directory: of each file its bytes, and when it was written."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
        if ".git" not in path.parts
    }
