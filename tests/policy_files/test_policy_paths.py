"""The paths of policy that no tool may write: which files count as policy, and in which directories."""

import json
import os
from pathlib import Path

import pytest

from licet import load_manifest
from licet.assemble.review import Places, review
from licet.policy_files.limits import MOST_LISTED, MOST_LOOKED_AT, MOST_PARSED
from licet.policy_files.policy_paths import PolicyDetector, policy_paths, policy_root, workspace_root

MANIFEST = "agent: a\ncapabilities: {tools: [t], grants: ['fs:*:*'], max_side_effect_class: full}\n"

POLICY = {
    "a manifest": ("m.yaml", "agent: a\ncapabilities: {}\n"),
    "a workspace": ("m.yml", "bundles: {}\n"),
    "servers": ("m.yaml", "servers:\n  a: {}\n"),
    "a personality": ("m.yaml", "id: p\ntoolset: []\n"),
    "the other spelling of one": ("m.yaml", "id: p\nsafety: {network: {}}\n"),
    "a name in capitals": ("M.YAML", "capabilities: {}\n"),
    "a hidden file": (".m.yaml", "capabilities: {}\n"),
    "JSON": ("m.json", '{"agent": "a", "capabilities": {}}'),
    "JSON over several lines": ("m.json", '{\n  "agent": "a",\n  "capabilities": {}\n}\n'),
    "JSON with an escaped key": ("m.json", '{"\\u0063apabilities": {}}'),
    "JSON with a byte order mark": ("m.json", '\ufeff{"capabilities": {}}'),
    "JSON with the key twice": ("m.json", '{"capabilities": 1, "capabilities": 2}'),
    "JSON that ends early": ("m.json", '{"agent": "a", "capabilities": {'),
    "JSON with a comma too many": ("m.json", '{"capabilities": {},}'),
    "YAML in a file that is called JSON": ("m.json", "capabilities: {}\n"),
    "JSON in a file that is called YAML": ("m.yaml", '{"agent": "a", "capabilities": {}}'),
    "flow style": ("m.yaml", "{agent: a, capabilities: {}}"),
    "flow style over lines": ("m.yaml", "{\n  agent: a,\n  capabilities:\n    {}\n}\n"),
    "quoted keys": ("m.yaml", "'agent': a\n'capabilities': {}\n"),
    "keys in double quotes": ("m.yaml", 'agent: a\n"capabilities" : {}\n'),
    "an escaped key": ("m.yaml", 'agent: a\n"\\x63apabilities": {}\n'),
    "a key over two lines": ("m.yaml", '? "capa\\\n  bilities"\n: {}\n'),
    "an explicit key": ("m.yaml", "agent: a\n? capabilities\n: {}\n"),
    "a key with a tag": ("m.yaml", "agent: a\n!!str capabilities: {}\n"),
    "a key with an anchor": ("m.yaml", "agent: a\n&x capabilities: {}\n"),
    "a key that is an alias": ("m.yaml", "agent: &x capabilities\n*x : {}\n"),
    "a merge key": ("m.yaml", "base: &x {capabilities: {}}\n<<: *x\n"),
    "all of it indented": ("m.yaml", "  agent: a\n  capabilities: {}\n"),
    "comments before it": ("m.yaml", "# capabilities\n\n# more\nagent: a\ncapabilities: {}  # none\n"),
    "a byte order mark": ("m.yaml", "\ufeffcapabilities: {}\n"),
    "CRLF": ("m.yaml", "agent: a\r\ncapabilities: {}\r\n"),
    "CR alone": ("m.yaml", "agent: a\rcapabilities: {}\r"),
    "a directive": ("m.yaml", "%YAML 1.2\n---\ncapabilities: {}\n"),
    "a second document": ("m.yaml", "a: 1\n---\n{capabilities: {}}\n"),
    "a tab for indentation": ("m.yaml", "agent: a\n\tcapabilities: {}\n"),
    "a broken file": ("m.yaml", "agent: [a\n  capabilities: {}\n"),
    "a broken file, the key first": ("m.yaml", "capabilities: {]\n"),
    "no value": ("m.yaml", "capabilities:\n"),
    "nested deeper than a parser likes": ("m.yaml", "{capabilities: " + "[" * 500 + "]" * 500 + "}"),
    "UTF-16": ("m.yaml", "capabilities: {}\n".encode("utf-16")),
    "UTF-16, in flow style": ("m.yaml", "{a: 1, capabilities: {}}".encode("utf-16")),
    "no UTF-8": ("m.yaml", b"agent: \xff\ncapabilities: {}\n"),
    "exactly 1 MiB": ("m.yaml", "capabilities: {}\n#".ljust(1 << 20)),
}
OTHER = {
    "nothing": ("m.yaml", ""),
    "other keys": ("m.yaml", "name: a\nversion: 1\n"),
    "a key further down": ("m.yaml", "spec:\n  securityContext:\n    capabilities: {drop: [ALL]}\n"),
    "a key further down in flow style": ("m.yaml", "{a: {capabilities: {}}}"),
    "a key further down in JSON": ("m.json", '{"contributes": {"capabilities": {}}}'),
    "a value": ("m.yaml", "title: capabilities\n"),
    "a value in JSON": ("m.json", '{"title": "capabilities"}'),
    "a list of mappings": ("m.yaml", "- capabilities: {}\n"),
    "a list in JSON": ("m.json", '[{"capabilities": {}}]'),
    "a comment": ("m.yaml", "# capabilities: {}\na: 1\n"),
    "a text over lines": ("m.yaml", "text: |\n  capabilities: {}\na: 1\n"),
    "a longer word": ("m.yaml", "capabilities_of_it: {}\nmy-servers: {}\n"),
    "a broken file without any such word": ("m.yaml", "a: [1\n"),
    "text": ("m.yaml", "capabilities"),
    "another ending": ("m.txt", "capabilities: {}\n"),
    "more than 1 MiB": ("m.yaml", "capabilities: {}\n#".ljust((1 << 20) + 1)),
}


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(("name", "content"), POLICY.values(), ids=POLICY)
def test_a_file_that_looks_like_policy_is_closed(name: str, content: str | bytes, tmp_path: Path) -> None:
    used, other = put(tmp_path / "used.yaml", MANIFEST), put(tmp_path / name, content)
    assert str(other) in policy_paths([used])


@pytest.mark.parametrize(("name", "content"), OTHER.values(), ids=OTHER)
def test_a_file_that_does_not_look_like_policy_is_not_closed(name: str, content: str | bytes, tmp_path: Path) -> None:
    used, other = put(tmp_path / "used.yaml", MANIFEST), put(tmp_path / name, content)
    assert str(other) not in policy_paths([used])


def test_names_of_policy_next_to_a_policy_file_are_closed_even_if_they_do_not_exist(tmp_path: Path) -> None:
    used = put(tmp_path / "used.yaml", MANIFEST)
    names = {"used.yaml", "licet.yaml", "licet.lock", ".licet"}
    assert set(policy_paths([used])) == {str(tmp_path / name) for name in names}
    for name in names - {"used.yaml", ".licet"}:
        put(tmp_path / name, "")
    put(tmp_path / ".licet" / "x", "")
    assert set(policy_paths([used])) == {str(tmp_path / name) for name in names}


def test_a_policy_directory_is_closed_completely_and_existing_policy_next_to_it(tmp_path: Path) -> None:
    used = put(tmp_path / ".licet" / "agent.yaml", MANIFEST)
    assert set(policy_paths([used])) == {str(used), str(tmp_path / ".licet")}
    for name, content in {"licet.lock": "", "desk.yaml": "capabilities: {}\n", "data.json": "{}"}.items():
        put(tmp_path / name, content)
    closed = {str(used), *(str(tmp_path / name) for name in (".licet", "licet.lock", "desk.yaml"))}
    assert set(policy_paths([used])) == closed


def test_links_and_their_targets_are_closed(tmp_path: Path) -> None:
    real = put(tmp_path / "real" / "desk.yaml", "capabilities: {}\n")
    other = put(tmp_path / "other" / "shared.yaml", "bundles: {}\n")
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "real" / "shared.yaml").symlink_to(other)
    used = put(tmp_path / "real" / "used.yaml", MANIFEST)
    closed = set(policy_paths([tmp_path / "linked" / "used.yaml"]))
    for path in (real, used, other, tmp_path / "real" / "shared.yaml"):
        assert str(path) in closed
    for name in ("used.yaml", "desk.yaml", "licet.yaml", ".licet"):
        assert {str(tmp_path / "linked" / name), str(tmp_path / "real" / name)} <= closed


@pytest.mark.parametrize("directory", [".", ".licet"])
def test_a_linked_policy_directory_and_its_target_are_closed(directory: str, tmp_path: Path) -> None:
    put(tmp_path / "real" / "agent.yaml", MANIFEST)
    (tmp_path / ".licet").symlink_to("real")
    used = put(tmp_path / directory / "used.yaml", MANIFEST)
    closed = set(policy_paths([used]))
    assert str(tmp_path / ".licet") in closed
    assert {str(tmp_path / "real"), str(tmp_path / "real" / "agent.yaml")} & closed


def test_trusted_files_are_closed_in_every_directory(tmp_path: Path) -> None:
    used = put(tmp_path / "one" / "used.yaml", MANIFEST)
    elsewhere, inside = tmp_path / "two" / "odd.txt", tmp_path / "three" / ".licet" / "licet.yaml"
    for file in (elsewhere, inside):
        assert str(file) not in policy_paths([used], [file])  # its project is gone
        (tmp_path / file.relative_to(tmp_path).parts[0]).mkdir()
    closed = policy_paths([used], [elsewhere, inside])
    assert {str(elsewhere), str(inside), str(inside.parent)} <= set(closed)


@pytest.mark.parametrize(("count", "closed"), [(MOST_LOOKED_AT - 1, False), (MOST_LOOKED_AT, True)])
def test_all_files_are_closed_if_there_are_too_many_to_check(count: int, closed: bool, tmp_path: Path) -> None:
    used = put(tmp_path / "used.yaml", MANIFEST)
    for number in range(count):
        (tmp_path / f"{number}.json").touch()
    found = set(policy_paths([used]))
    assert (str(tmp_path / "0.json") in found) == closed
    assert (str(tmp_path / f"{count - 1}.json") in found) == closed


def test_a_directory_with_very_many_files_is_closed(tmp_path: Path) -> None:
    used = put(tmp_path / "used.yaml", MANIFEST)
    for number in range(MOST_LISTED):
        (tmp_path / f"{number}.json").touch()
    found = policy_paths([used])
    assert str(tmp_path) in found
    assert len(found) < 10


def test_files_beyond_the_parsing_limit_are_closed(tmp_path: Path) -> None:
    # These files are not policy, but this is known only after parsing them.
    content = "a: {servers: 1}\n#".ljust(MOST_PARSED // 4)
    files = [put(tmp_path / f"{number}.yaml", content) for number in range(6)]
    detector = PolicyDetector()
    assert [detector.is_policy(str(file)) for file in files] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("kind", ["fifo", "directory", "link to nothing", "link to itself", "device"])
def test_only_regular_files_are_opened(kind: str, tmp_path: Path) -> None:
    used, path = put(tmp_path / "used.yaml", MANIFEST), tmp_path / "m.yaml"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link to nothing":
            path.symlink_to("nothing")
        case "link to itself":
            path.symlink_to("m.yaml")
        case "device":
            path.symlink_to("/dev/zero")
    closed = str(path) in policy_paths([used])
    assert closed == (kind == "link to itself")  # its target is not known


def test_paths_that_no_rule_can_express_are_skipped(tmp_path: Path) -> None:
    used = put(tmp_path / "used.yaml", MANIFEST)
    for name in (b"a*.yaml", b"b\xff.yaml", b"c\n.yaml"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text("capabilities: {}\n")
    put(tmp_path / "d.yaml", "capabilities: {}\n")
    assert not load_manifest(used).ceiling.has(f"fs:write:{tmp_path}/d.yaml")


def test_a_loaded_manifest_denies_writing_policy_to_every_tool(tmp_path: Path) -> None:
    used = put(tmp_path / "used.yaml", MANIFEST)
    put(tmp_path / "desk.yaml", "capabilities: {}\n")
    put(tmp_path / "data.json", "{}")
    ceiling = load_manifest(used).ceiling
    for name in ("used.yaml", "desk.yaml", "licet.yaml", "licet.lock", ".licet", ".licet/new.yaml"):
        for action in ("write", "delete"):
            assert not ceiling.has(f"fs:{action}:{tmp_path}/{name}"), name
        assert ceiling.has(f"fs:read:{tmp_path}/{name}")
    assert ceiling.has(f"fs:write:{tmp_path}/data.json")


def test_the_digest_does_not_depend_on_files_next_to_a_manifest(tmp_path: Path) -> None:
    used = put(tmp_path / "used.yaml", MANIFEST)
    before = load_manifest(used).digest
    put(tmp_path / "desk.yaml", json.dumps({"capabilities": {}}))
    assert load_manifest(used).digest == before


ROOTS = [
    ("agent.yaml", "."),
    ("/srv/agent.yaml", "/srv"),
    ("/srv/.licet/agent.yaml", "/srv"),
    (".licet/agent.yaml", "."),
    ("a/.licet/agent.yaml", "a"),
    (".licet/sub/agent.yaml", ".licet/sub"),
    ("/srv/.licets/agent.yaml", "/srv/.licets"),
    ("/.licet/agent.yaml", "/"),
]


@pytest.mark.parametrize(("file", "root"), ROOTS)
def test_the_root_of_a_policy_file(file: str, root: str) -> None:
    assert policy_root(Path(file)) == Path(root)


def test_the_root_of_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".licet" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / ".licet")
    for file in ("agent.yaml", "./agent.yaml", "sub/../agent.yaml", "../.licet/agent.yaml"):
        assert policy_root(Path(file)).resolve() == tmp_path
    assert workspace_root(Path.cwd()) == tmp_path
    monkeypatch.chdir(tmp_path)
    assert policy_root(Path("agent.yaml")) == Path()


DIRECTORIES = {
    "by its path": ("{d}", "allowed_binaries", 1),
    "with a slash": ("{d}/", "allowed_binaries", 1),
    "by its name in the working directory": ("${{workdir}}/bin", "allowed_binaries", 1),
    "as a grant": ("process:exec:{d}", "grants", 1),
    "a program": ("{d}/tool", "allowed_binaries", 0),
    "a path that is not there": ("{d}/missing", "allowed_binaries", 0),
    "a deny": ("process:exec:{d}", "deny", 0),
}


@pytest.mark.parametrize("case", DIRECTORIES)
def test_a_directory_is_no_program(tmp_path: Path, case: str) -> None:
    text, key, wrong = DIRECTORIES[case]
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "tool").touch()
    listed = [text.format(d=directory)]
    written = {"process": {key: listed}} if key == "allowed_binaries" else {key: listed}
    file = tmp_path / "agent.yaml"
    file.write_text(f"agent: a\ncapabilities: {json.dumps(written)}\n")
    found = review(file, places=Places(str(tmp_path), "/home/u")).problems
    said = [str(problem) for problem in found if problem.severity == "error"]
    assert len(said) == wrong, said
    for one in said:
        assert one.startswith(f"{file}:2:")
        assert f"found the directory `{directory}`, expected the name of a program" in one


@pytest.mark.parametrize(
    ("allowed", "denied", "warned"),
    [(["sh"], "id", True), (["sh"], "/usr/bin/id", True), ([], "id", False), (["sh"], "*", False)],
)
def test_a_deny_of_a_program_that_others_can_run_is_told_of(
    tmp_path: Path, allowed: list[str], denied: str, warned: bool
) -> None:
    written = {"process": {"allowed_binaries": allowed}, "deny": [f"process:exec:{denied}"]}
    file = tmp_path / "agent.yaml"
    file.write_text(f"agent: a\ncapabilities: {json.dumps(written)}\n")
    said = [str(problem) for problem in review(file).problems]
    assert any("warning" in one and "which says only what licet itself starts" in one for one in said) is warned, said
