"""The content address of manifests, by the cases of digest.yaml and by respelling a full example at random."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from licet import load_manifest

from .cases import HERE

SPEC = yaml.safe_load((HERE / "digest.yaml").read_text("utf-8"))
FILES: dict[str, Any] = SPEC["files"]
GONE = "gone"


def digest_of(place: Path, **files: str) -> str:
    """The digest of a manifest; files go by their names without the suffix."""
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / f"{name}.yaml").write_text(text, "utf-8")
    return load_manifest(place / "manifest.yaml").digest


def digest_of_data(place: Path, files: dict[str, Any]) -> str:
    return digest_of(place, **{name.removesuffix(".yaml"): json.dumps(data) for name, data in files.items()})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the full example."""
    return digest_of_data(tmp_path_factory.mktemp("whole"), FILES)


def changed(change: dict[str, Any]) -> dict[str, Any]:
    """The full example with one key changed."""
    assert change.keys() == {"file", "at", "to"}
    files = copy.deepcopy(FILES)
    *above, key = change["at"].split("/")
    held = files[change["file"]]
    for part in above:
        held = held[part]
    assert key in held
    if change["to"] == GONE:
        del held[key]
    else:
        assert held[key] != change["to"]
        held[key] = change["to"]
    return files


def _id(change: dict[str, Any]) -> str:
    return f"{change['at']} to {json.dumps(change['to'])}"


def test_a_digest_looks_like_one(whole: str) -> None:
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", whole)


def test_each_change_of_meaning_gives_a_digest_of_its_own(whole: str, tmp_path: Path) -> None:
    said = {whole: "no change"}
    for change in SPEC["changes"]:
        digest = digest_of_data(tmp_path, changed(change))
        assert digest not in said, (_id(change), said[digest])
        said[digest] = _id(change)


@pytest.mark.parametrize("change", SPEC["without_meaning"], ids=_id)
def test_what_an_agent_does_not_use_does_not_matter(change: dict[str, Any], whole: str, tmp_path: Path) -> None:
    assert digest_of_data(tmp_path / "changed", changed(change)) == whole


def test_every_key_of_the_full_example_is_changed_by_some_case() -> None:
    touched = {(change["file"], change["at"]) for change in (*SPEC["changes"], *SPEC["without_meaning"])}
    untouched = [
        (file, path)
        for file, data in FILES.items()
        for path in _leaves(data)
        if not any((file, above) in touched for above in _upwards(path))
    ]
    assert untouched == []


def _leaves(data: Any, path: str = "") -> Iterator[str]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _leaves(value, f"{path}/{key}" if path else key)
    else:
        yield path


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


@pytest.mark.parametrize("case", SPEC["same"], ids=lambda case: case["name"])
def test_the_same_meaning_has_the_same_digest(case: dict[str, str], tmp_path: Path) -> None:
    assert digest_of(tmp_path / "one", manifest=case["one"]) == digest_of(tmp_path / "two", manifest=case["two"])


@pytest.mark.parametrize("case", SPEC["different"], ids=lambda case: case["name"])
def test_another_meaning_has_another_digest(case: dict[str, str], tmp_path: Path) -> None:
    assert digest_of(tmp_path / "one", manifest=case["one"]) != digest_of(tmp_path / "two", manifest=case["two"])


def test_one_file_or_two_means_the_same(whole: str, tmp_path: Path) -> None:
    together = FILES["licet.yaml"] | FILES["manifest.yaml"]
    assert digest_of_data(tmp_path / "one", {"manifest.yaml": together}) == whole


def test_json_and_yaml_mean_the_same(whole: str, tmp_path: Path) -> None:
    (tmp_path / "licet.yaml").write_text(yaml.safe_dump(FILES["licet.yaml"]))
    (tmp_path / "agent.json").write_text(json.dumps(FILES["manifest.yaml"], indent=1))
    assert load_manifest(tmp_path / "agent.json").digest == whole


def test_the_digest_is_over_the_unexpanded_text(tmp_path: Path) -> None:
    one = digest_of_data(tmp_path / "here", FILES)
    two = digest_of_data(tmp_path / "there" / "deeper", FILES)
    manifest = load_manifest(tmp_path / "here" / "manifest.yaml")
    assert one == two == manifest.expand("/work", "/home/u").digest


def test_a_personality_is_part_of_the_digest(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text("agent: a\ncapabilities: {tools: [t], env: [A]}\n")
    (tmp_path / "p.yaml").write_text("id: p\ntoolset: [t]\nenv: [A]\n")
    (tmp_path / "respelled.yaml").write_text('{"env": ["A", "A"], "tools": {"t": {}}, "id": "p"}')
    (tmp_path / "narrower.yaml").write_text("id: p\ntoolset: [t]\n")
    (tmp_path / "renamed.yaml").write_text("id: q\ntoolset: [t]\nenv: [A]\n")

    def digest(name: str | None) -> str:
        return load_manifest(tmp_path / "manifest.yaml", personality=name and tmp_path / name).digest

    assert digest("p.yaml") == digest("respelled.yaml")
    assert len({digest(name) for name in (None, "p.yaml", "narrower.yaml", "renamed.yaml")}) == 4


# Respelling -----------------------------------------------------------------------------------------------------------

_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*")
_ORDERED = re.compile(r".*/command|.*/args/.*")  # everything else that is a list is a set
_HOSTS = re.compile(r".*destinations(/allow|/deny)?")


class Speller:
    """Writes a value as YAML, each time differently, always with the same meaning."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def file(self, data: Any) -> str:
        return self.block(data, "", 0) if self.toss() else self.flow(data, "") + self.remark() + "\n"

    def toss(self) -> bool:
        return self.random.random() < 0.5

    def remark(self) -> str:
        return self.random.choice(("", "", " # a word: [on] {it}", "  #"))

    def shuffled(self, items: Any) -> list[Any]:
        mixed = list(items)
        self.random.shuffle(mixed)
        return mixed

    def block(self, data: Any, path: str, depth: int) -> str:
        """The lines of a mapping or list that is not empty."""
        space = "  " * depth
        lines = self.random.choice(("", "", f"{space}# a line of its own\n", "\n"))
        for key, value in self.shuffled(data.items()):
            inner = f"{path}/{key}"
            name = self.scalar(self.spelled_key(key), "")
            if isinstance(value, dict) and value and self.toss():
                lines += f"{space}{name}:{self.remark()}\n{self.block(value, inner, depth + 1)}"
            elif isinstance(value, list) and value and self.toss():
                lines += f"{space}{name}:{self.remark()}\n"
                lines += "".join(
                    f"{space}  - {self.flow(item, inner)}{self.remark()}\n" for item in self.items(value, inner)
                )
            else:
                lines += f"{space}{name}: {self.flow(value, inner)}{self.remark()}\n"
        return lines

    def flow(self, data: Any, path: str) -> str:
        if isinstance(data, dict):
            pairs = [
                f"{self.scalar(self.spelled_key(key), '')}: {self.flow(value, f'{path}/{key}')}"
                for key, value in self.shuffled(data.items())
            ]
            return "{" + ", ".join(pairs) + "}"
        if isinstance(data, list):
            return "[" + ", ".join(self.flow(item, path) for item in self.items(data, path)) + "]"
        return self.scalar(data, path)

    def items(self, data: list[Any], path: str) -> list[Any]:
        if _ORDERED.fullmatch(path) or not data:
            return data
        again = [self.random.choice(data)] if self.toss() else []
        return self.shuffled([*data, *again])

    def spelled_key(self, key: str) -> str:
        return "allowedBinaries" if key == "allowed_binaries" and self.toss() else key

    def scalar(self, value: Any, path: str) -> str:
        if isinstance(value, bool):
            return str(value).lower() if self.toss() else str(value)
        if isinstance(value, int | float):
            digits = str(value)
            zeros = self.random.choice(("", "0", "00")) if "/args/" not in path else ""
            return digits + (zeros if "." in digits or not zeros else f".{zeros}")
        text = str(value)
        if _HOSTS.fullmatch(path) and self.toss():
            text = text.upper()
        spellings = [json.dumps(text), "'" + text.replace("'", "''") + "'"]
        if _BARE.fullmatch(text):
            spellings.append(text)
        return self.random.choice(spellings)


@given(st.randoms(use_true_random=False))
@settings(max_examples=settings().max_examples // 2)
def test_a_respelled_document_has_the_same_digest(
    tmp_path_factory: pytest.TempPathFactory, whole: str, random: Random
) -> None:
    speller = Speller(random)
    files = {name.removesuffix(".yaml"): speller.file(data) for name, data in FILES.items()}
    assert digest_of(tmp_path_factory.mktemp("respelled"), **files) == whole
