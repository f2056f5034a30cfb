"""Policy files of up to 1 MiB that are made to be slow to check, or to take much memory: one for each idea.

Each case is a mapping of file names to texts; the command under test gets the first of them. The sizes follow from the
limit on a policy file: lines are repeated as often as they fit.
"""

from collections.abc import Callable, Iterator
from itertools import count

MOST = 1 << 20  # bytes of a policy file

Files = dict[str, str]
CASES: dict[str, Callable[[], Files]] = {}

_HEAD = "agent: a\n"


def _case(make: Callable[[], Files]) -> Callable[[], Files]:
    CASES[make.__name__.replace("_", " ")] = make
    return make


def filled(head: str, line: Callable[[int], str], tail: str = "", size: int = MOST) -> str:
    """A text of as many lines as fit into a size."""
    parts, left = [head], size - len(head) - len(tail)
    for number in count():
        part = line(number)
        left -= len(part.encode())
        if left < 0:
            return "".join([*parts, tail])
        parts.append(part)
    raise AssertionError("unreachable")


def shared(*texts: tuple[str, Callable[[int], str]], head: str = _HEAD, size: int = MOST) -> str:
    """A text of sections with the same number of lines each, as many as fit; a section is its heading and its lines."""
    sections = [[heading] for heading, _ in texts]
    left = size - len(head) - sum(len(heading) for heading, _ in texts)
    for number in count():
        lines = [line(number) for _, line in texts]
        left -= sum(len(line.encode()) for line in lines)
        if left < 0:
            break
        for section, line in zip(sections, lines, strict=True):
            section.append(line)
    return head + "".join(part for section in sections for part in section)


def _one_line(files: str) -> Files:
    return {"agent.yaml": files}


# Products: what tools need, and what is denied ------------------------------------------------------------------------

_FLAT = "{effect: read_only, sandbox: restricted, needs: ["


@_case
def different_tools_and_denies() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {_FLAT}'fs:read:/d{n}']}}\n"),
            ("capabilities:\n  fs_reach: {read: [/]}\n  tools:\n", lambda n: f"  - t{n}\n"),
            ("  deny:\n", lambda n: f"  - fs:read:/x/{n}\n"),
        )
    )


@_case
def different_tools_and_denied_hosts() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {_FLAT}'network:*:h{n}.example.com']}}\n"),
            ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
            ("  destinations:\n    allow: ['*']\n    deny:\n", lambda n: f"    - d{n}.example.com\n"),
        )
    )


@_case
def tools_of_the_audit() -> Files:
    """215 KB: 2,000 different tools, 4,000 denies."""
    tools = "".join(f"  t{n}: {_FLAT}'fs:read:/d{n}']}}\n" for n in range(2000))
    admissions = "".join(f"  - t{n}\n" for n in range(2000))
    denies = "".join(f"  - fs:read:/x/{n}\n" for n in range(4000))
    return _one_line(
        f"{_HEAD}tools:\n{tools}capabilities:\n  fs_reach: {{read: [/]}}\n  tools:\n{admissions}  deny:\n{denies}"
    )


@_case
def equal_tools_and_denies() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {_FLAT}'fs:read:*']}}\n"),
            ("capabilities:\n  fs_reach: {read: [/]}\n  tools:\n", lambda n: f"  - t{n}\n"),
            ("  deny:\n", lambda n: f"  - fs:read:/x/{n}\n"),
        )
    )


@_case
def different_tools_and_allows() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {_FLAT}'fs:read:/d{n}']}}\n"),
            ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
            ("  fs_reach:\n    read:\n", lambda n: f"    - /d{n}\n"),
        )
    )


@_case
def wide_tools_and_allows() -> Files:
    """Each tool needs everything below a directory, and the ceiling allows many single paths there."""
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {_FLAT}'fs:read:/d','env:read:E{n}']}}\n"),
            ("capabilities:\n  env: ['*']\n  tools:\n", lambda n: f"  - t{n}\n"),
            ("  fs_reach:\n    read:\n", lambda n: f"    - /d/{n}\n"),
        )
    )


@_case
def one_tool_with_many_needs_and_denies() -> Files:
    return _one_line(
        shared(
            (f"tools:\n  t: {_FLAT}\n", lambda n: f"    'fs:read:/d{n}',\n"),
            (
                "    ]}\ncapabilities:\n  tools: [t]\n  fs_reach: {read: [/]}\n  deny:\n",
                lambda n: f"  - fs:read:/d{n}/x\n",
            ),
        )
    )


@_case
def many_bundles_with_destinations() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {_FLAT}'network:*:h{n}.example.com']}}\n"),
            ("bundles:\n", lambda n: f"  b{n}: {{tools: [t{n}], destinations: [h{n}.example.com]}}\n"),
            ("capabilities:\n  destinations: {allow: ['*.example.com']}\n  bundles:\n", lambda n: f"  - b{n}\n"),
        )
    )


@_case
def many_bundles_and_denies() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {_FLAT}'network:*:*.example.com']}}\n"),
            ("bundles:\n", lambda n: f"  b{n}: {{tools: [t{n}], destinations: ['*.example.com']}}\n"),
            ("capabilities:\n  bundles:\n", lambda n: f"  - b{n}\n"),
            ("  destinations:\n    allow: ['*.example.com']\n    deny:\n", lambda n: f"    - d{n}.example.com\n"),
        )
    )


@_case
def many_connectors() -> Files:
    return _one_line(
        shared(
            (
                "tools:\n",
                lambda n: f"  t{n}: {{needs: [], effect: read_only, sandbox: restricted, connector: c{n}@1}}\n",
            ),
            ("connectors:\n  tenant_allowlist:\n", lambda n: f"  - c{n}\n"),
            ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
            ("  connectors:\n", lambda n: f"  - c{n}\n"),
        )
    )


@_case
def connectors_with_ranges() -> Files:
    return _one_line(
        shared(
            (
                "connectors:\n  tenant_allowlist:\n",
                lambda n: f"  - {{connector: c{n}, version: '>={n},<{n + 9},!={n}.1'}}\n",
            ),
            ("capabilities:\n  connectors:\n", lambda n: f"  - {{connector: c{n}, version: '>={n}.1'}}\n"),
        )
    )


@_case
def one_connector_in_many_lines() -> Files:
    return _one_line(
        shared(
            ("connectors:\n  tenant_allowlist:\n", lambda n: f"  - {{connector: c, version: '>={n}'}}\n"),
            ("capabilities:\n  connectors:\n", lambda n: f"  - {{connector: c, version: '>={n}'}}\n"),
        )
    )


# Many of one thing ----------------------------------------------------------------------------------------------------


@_case
def hosts() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  destinations:\n    allow:\n", lambda n: f"    - h{n}.x.com\n"))


@_case
def long_hosts() -> Files:
    return _one_line(
        filled(f"{_HEAD}capabilities:\n  destinations:\n    allow:\n", lambda n: f"    - {'a.' * 120}h{n}\n")
    )


@_case
def hosts_in_other_scripts() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  destinations:\n    allow:\n", lambda n: f"    - ü{n}.xn--p1ai\n"))


@_case
def public_suffixes() -> Files:
    return _one_line(
        filled(
            f"{_HEAD}capabilities:\n  destinations:\n    allow:\n",
            lambda n: f"    - '*.{('com', 'github.io')[n % 2]}'\n",
        )
    )


@_case
def deep_paths() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  fs_reach:\n    read:\n", lambda n: f"    - /{'a/' * 1900}{n}\n"))


@_case
def deep_paths_and_denies() -> Files:
    return _one_line(
        shared(
            ("capabilities:\n  tools: [t]\n  fs_reach:\n    read:\n", lambda n: f"    - /{'a/' * 1900}{n}\n"),
            ("  deny:\n", lambda n: f"  - fs:*:/{'a/' * 1900}{n}/x\n"),
            (f"tools:\n  t: {_FLAT}\n", lambda n: f"    'fs:read:/{'a/' * 1900}{n}',\n"),
            size=MOST - 100,
        )
        + "    ]}\n"
    )


@_case
def paths_in_different_directories() -> Files:
    return _one_line(
        shared(
            ("capabilities:\n  tools: [t]\n  fs_reach:\n    read:\n", lambda n: f"    - /{n}/{'a/' * 20}\n"),
            ("  deny:\n", lambda n: f"  - fs:*:/{n}/{'a/' * 20}x\n"),
            (f"tools:\n  t: {_FLAT}\n", lambda n: f"    'fs:read:/{n}/{'a/' * 20}',\n"),
            size=MOST - 100,
        )
        + "    ]}\n"
    )


@_case
def paths_below_the_limit() -> Files:
    return _one_line(
        shared(
            ("capabilities:\n  tools: [t]\n  fs_reach:\n    read:\n", lambda n: f"    - /{n}/{'a/' * 40}\n"),
            ("  deny:\n", lambda n: f"  - fs:*:/{n}/{'a/' * 40}x\n"),
            (f"tools:\n  t: {_FLAT}\n", lambda n: f"    'fs:read:/{n}/{'a/' * 40}',\n"),
            size=500_000,
        )
        + "    ]}\n"
    )


@_case
def deep_secrets() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  secrets:\n", lambda n: f"  - {'a/' * 500}{n}/*\n"))


@_case
def ports() -> Files:
    return _one_line(
        shared(
            (f"tools:\n  t: {_FLAT}\n", lambda n: f"    'network:*:*:{n % 65535 + 1}',\n"),
            (
                "    ]}\ncapabilities:\n  tools: [t]\n  destinations:\n    allow:\n",
                lambda n: f"    - '*:{n % 65535 + 1}'\n",
            ),
            ("    deny:\n", lambda n: f"    - 'h{n}:{n % 65535 + 1}'\n"),
        )
    )


@_case
def hosts_and_ports() -> Files:
    return _one_line(
        shared(
            (f"tools:\n  t: {_FLAT}\n", lambda n: f"    'network:*:*:{n % 65535 + 1}',\n"),
            ("    ]}\ncapabilities:\n  tools: [t]\n  destinations:\n    allow:\n", lambda n: f"    - h{n}.x.com\n"),
        )
    )


@_case
def hosts_and_ports_of_a_workspace() -> Files:
    return _one_line(
        shared(
            ("destinations:\n  allow:\n", lambda n: f"  - '*:{n % 65535 + 1}'\n"),
            ("capabilities:\n  destinations:\n    allow:\n", lambda n: f"    - h{n}.x.com\n"),
        )
    )


@_case
def deep_secrets_and_denies() -> Files:
    return _one_line(
        shared(
            ("capabilities:\n  tools: [t]\n  secrets:\n", lambda n: f"  - {'a/' * 500}{n}/*\n"),
            ("  deny:\n", lambda n: f"  - secret:read:{'a/' * 500}{n}/x\n"),
            (f"tools:\n  t: {_FLAT}\n", lambda n: f"    'secret:read:{'a/' * 500}{n}/*',\n"),
            size=MOST - 100,
        )
        + "    ]}\n"
    )


@_case
def undeclared_tools() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"))


@_case
def undeclared_tools_beside_declared_ones() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  tool_number_{n}: {{needs: []}}\n"),
            ("capabilities:\n  tools:\n", lambda n: f"  - tool_numbered_{n}\n"),
        )
    )


@_case
def native_tools() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {{needs: [], effect: read_only, sandbox: restricted}}\n"),
            ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
            ("  native:\n", lambda n: f"  - t{n}\n"),
        )
    )


@_case
def native_tools_that_nobody_has() -> Files:
    return _one_line(
        shared(
            ("capabilities:\n  tools:\n", lambda n: f"  - tool_number_{n}\n"),
            ("  native:\n", lambda n: f"  - tool_numbers_{n}\n"),
        )
    )


@_case
def bundles_that_nobody_has() -> Files:
    return _one_line(
        shared(
            ("bundles:\n", lambda n: f"  bundle_number_{n}: {{tools: []}}\n"),
            ("capabilities:\n  bundles:\n", lambda n: f"  - bundle_numbers_{n}\n"),
        )
    )


@_case
def tools_in_two_bundles() -> Files:
    return _one_line(
        shared(
            ("bundles:\n  b:\n    tools:\n", lambda n: f"    - t{n}\n"),
            ("  c:\n    tools:\n", lambda n: f"    - t{n}\n"),
            size=MOST - 100,
        )
        + "capabilities: {bundles: [b, c]}\n"
    )


@_case
def private_ranges() -> Files:
    return _one_line(
        filled(f"{_HEAD}capabilities:\n  private:\n", lambda n: f"  - 10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}/32\n")
    )


@_case
def inner_names() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  destinations:\n    allow:\n", lambda n: f"    - h{n}.internal\n"))


@_case
def approval_keys() -> Files:
    import base64

    def key(number: int) -> str:
        return base64.urlsafe_b64encode(number.to_bytes(32, "little")).decode().rstrip("=")

    return _one_line(
        filled(f"{_HEAD}capabilities:\n  approvals:\n    keys:\n", lambda n: f"    - ed25519:{key(n + 2)}\n")
    )


@_case
def examples() -> Files:
    return _one_line(filled(f"{_HEAD}examples:\n  match:\n", lambda n: f"  - {{tool: t, use: 'fs:read:/x{n}'}}\n"))


@_case
def costs() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {{needs: [], effect: read_only, sandbox: restricted}}\n"),
            ("capabilities:\n  budget: {max_cost_usd: 1}\n  tools:\n", lambda n: f"  - t{n}\n"),
        )
    )


@_case
def misfits() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {{needs: ['fs:write:/x{n}','env:read:E{n}']}}\n"),
            ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
        )
    )


@_case
def one_tool_with_many_misfits() -> Files:
    return _one_line(
        filled(
            f"{_HEAD}capabilities: {{tools: [t]}}\ntools:\n  t: {_FLAT}\n",
            lambda n: f"    'fs:read:/d{n}',\n",
            "    ]}\n",
        )
    )


@_case
def one_tool_with_many_connector_needs() -> Files:
    return _one_line(
        filled(
            f"{_HEAD}capabilities: {{tools: [t]}}\ntools:\n  t: {_FLAT}\n",
            lambda n: f"    'connector:use:c{n}',\n",
            "    ]}\n",
        )
    )


@_case
def servers() -> Files:
    return _one_line(
        filled(f"{_HEAD}servers:\n", lambda n: f"  s{n}: {{command: [a], tools: {{t: {{needs: ['fs:read:/{n}']}}}}}}\n")
    )


# Rules on arguments ---------------------------------------------------------------------------------------------------


@_case
def argument_enums() -> Files:
    def line(number: int) -> str:
        return f"    t{number}: {{args: {{a: {{enum: [{', '.join(map(str, range(900)))}]}}}}}}\n"

    return _one_line(filled(f"{_HEAD}capabilities:\n  tools:\n", line))


@_case
def argument_patterns() -> Files:
    return _one_line(
        filled(
            f"{_HEAD}capabilities:\n  tools:\n",
            lambda n: f"    t{n}: {{args: {{a: {{pattern: '(\\w{{40}}|x{n}){{8}}'}}}}}}\n",
        )
    )


@_case
def argument_patterns_of_one_rule() -> Files:
    every = ", ".join(f"{{pattern: '(\\w{{40}}|x{n}){{8}}'}}" for n in range(450))
    return _one_line(f"{_HEAD}capabilities:\n  tools:\n    t: {{args: {{a: {{anyOf: [{every}]}}}}}}\n")


@_case
def one_long_pattern() -> Files:
    return _one_line(f"{_HEAD}capabilities:\n  tools:\n    t: {{args: {{a: {{pattern: '{'(a|b)?' * 170_000}'}}}}}}\n")


@_case
def costly_patterns() -> Files:
    every = "".join(f"    t{n}: {{args: {{a: {{pattern: 'x{n}|\\w{{30}}'}}}}}}\n" for n in range(500))
    return _one_line(f"{_HEAD}capabilities:\n  tools:\n{every}")


@_case
def arguments_of_one_tool() -> Files:
    return _one_line(
        filled(f"{_HEAD}capabilities:\n  tools:\n    t:\n      args:\n", lambda n: f"        a{n}: {{type: string}}\n")
    )


@_case
def unknown_keywords() -> Files:
    return _one_line(
        filled(f"{_HEAD}capabilities:\n  tools:\n    t:\n      args:\n", lambda n: f"        a{n}: {{paterns: x}}\n")
    )


@_case
def arguments_that_a_tool_has_not() -> Files:
    parameters = ", ".join(f"argument_number_{n}: str" for n in range(9000))
    source = (
        "from licet import Context, tool\n\n@tool(capabilities={}, effect='read_only', sandbox='restricted')\n"
        f"async def t(ctx: Context, *, {parameters}) -> str: ...\n"
    )
    text = filled(
        f"{_HEAD}tools: {{t: {{from: 'm:t'}}}}\ncapabilities:\n  tools:\n    t:\n      args:\n",
        lambda n: f"        argument_numbers_{n}: {{type: string}}\n",
    )
    return {"agent.yaml": text, "m.py": source}


# How it is written ----------------------------------------------------------------------------------------------------


@_case
def unknown_keys() -> Files:
    return _one_line(filled(_HEAD, lambda n: f"k{n}:\n"))


@_case
def unknown_keys_of_tools() -> Files:
    return _one_line(filled(f"{_HEAD}tools:\n", lambda n: f"  t{n}: {{a: b}}\n"))


@_case
def wrong_rules() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  deny:\n", lambda _: "  - x\n"))


@_case
def wrong_hosts() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  destinations:\n    allow:\n", lambda _: "    - http://x.com/y\n"))


@_case
def wrong_paths() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  fs_reach:\n    read:\n", lambda n: f"    - ../x{n}\n"))


@_case
def wrong_numbers() -> Files:
    return _one_line(filled(f"{_HEAD}capabilities:\n  tools:\n", lambda n: f"  - {n}\n"))


@_case
def hidden_characters() -> Files:
    return _one_line(filled(_HEAD, lambda n: f"k{n}: \u200b\u202e\n"))


@_case
def nested_lists() -> Files:
    return _one_line("a: " + "[" * (MOST // 2 - 3) + "]" * (MOST // 2 - 3))


@_case
def nested_to_the_limit() -> Files:
    return _one_line(filled(f"{_HEAD}servers:\n", lambda n: f"  s{n}: {'[' * 29}{']' * 29}\n"))


@_case
def empty_lists() -> Files:
    return _one_line(f"{_HEAD}servers: [{'[],' * 349_000}]\n")


@_case
def empty_items() -> Files:
    return _one_line(f"{_HEAD}servers: [{'a,' * 524_000}]\n")


@_case
def empty_items_where_names_belong() -> Files:
    return _one_line(f"{_HEAD}capabilities: {{tools: [{'a,' * 524_000}]}}\n")


@_case
def anchors() -> Files:
    return _one_line(filled(f"{_HEAD}servers:\n", lambda n: f"- &a{n} b\n- *a{n}\n"))


@_case
def aliases_of_a_large_list() -> Files:
    items = "a," * 100_000
    return _one_line(filled(f"{_HEAD}x: &a [{items}]\ny:\n", lambda _: "- *a\n"))


@_case
def one_scalar() -> Files:
    return _one_line(f"agent: {'a' * (MOST - 20)}\n")


@_case
def one_scalar_of_escapes() -> Files:
    return _one_line('agent: "' + "\\u00e4" * 174_000 + '"\n')


@_case
def one_host() -> Files:
    return _one_line(f"{_HEAD}capabilities: {{destinations: {{allow: ['{'a.' * 520_000}']}}}}\n")


@_case
def one_path() -> Files:
    return _one_line(f"{_HEAD}capabilities: {{fs_reach: {{read: ['{'/a' * 520_000}']}}}}\n")


@_case
def one_number() -> Files:
    return _one_line(f"{_HEAD}capabilities: {{budget: {{max_cost_usd: 0.{'1' * 1_000_000}}}}}\n")


@_case
def one_version() -> Files:
    return _one_line(f"{_HEAD}capabilities: {{connectors: [{{connector: c, version: '{'>=1,' * 260_000}>=1'}}]}}\n")


@_case
def one_version_of_digits() -> Files:
    return _one_line(f"{_HEAD}capabilities: {{connectors: [{{connector: c, version: '>={'1.' * 520_000}1'}}]}}\n")


@_case
def comments() -> Files:
    return _one_line(_HEAD + "#\n" * (MOST // 2 - 10))


@_case
def documents() -> Files:
    return _one_line(filled("", lambda _: "---\n"))


@_case
def tags() -> Files:
    return _one_line(filled(f"{_HEAD}servers:\n", lambda _: "- !!str a\n"))


@_case
def an_open_quote_after_many_lines() -> Files:
    return _one_line(filled(f"{_HEAD}servers:\n", lambda n: f"- a{n}\n", "- '"))


@_case
def json_tools() -> Files:
    text = filled('{"agent": "a", "capabilities": {"tools": ["x"', lambda n: f',"t{n}"', "]}}")
    return {"agent.json": text}


@_case
def json_numbers() -> Files:
    return {"agent.json": '{"agent": "a", "servers": [' + "1," * 520_000 + "1]}"}


@_case
def json_lists() -> Files:
    return {"agent.json": '{"agent": "a", "servers": [' + "[]," * 340_000 + "1]}"}


@_case
def json_whitespace() -> Files:
    return {"agent.json": '{"agent": "a"' + " \n" * 520_000 + "}"}


# Sources --------------------------------------------------------------------------------------------------------------


@_case
def missing_modules() -> Files:
    return _one_line(
        shared(
            ("tools:\n", lambda n: f"  t{n}: {{from: 'm{n}:f'}}\n"),
            ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
        )
    )


@_case
def missing_functions_of_one_large_module() -> Files:
    text = shared(
        ("tools:\n", lambda n: f"  t{n}: {{from: 'm:f{n}'}}\n"),
        ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
    )
    return {"agent.yaml": text, "m.py": filled("", lambda n: f"def g{n}(): pass\n", size=500_000)}


@_case
def large_modules() -> Files:
    module = filled("", lambda n: f"x{n} = [1, 2, 3]\n", size=500_000)
    names = [f"m{n}" for n in range(12)]
    tools = "".join(f"  {name}: {{from: '{name}:f'}}\n" for name in names)
    text = f"{_HEAD}tools:\n{tools}capabilities: {{tools: [{', '.join(names)}]}}\n"
    return {"agent.yaml": text, **{f"{name}.py": module for name in names}}


@_case
def tools_of_one_module() -> Files:
    head = "from licet import Context, tool\n"
    source = filled(
        head,
        lambda n: f"@tool(capabilities={{}})\ndef t{n}(ctx: Context): ...\n",
        size=500_000,
    )
    text = shared(
        ("tools:\n", lambda n: f"  t{n}: {{from: 'm:t{n}'}}\n"),
        ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
    )
    return {"agent.yaml": text, "m.py": source}


@_case
def a_whole_agent() -> Files:
    lines = [
        ("tools:\n", lambda n: f"  t{n}: {{needs: [], effect: read_only, sandbox: restricted}}\n"),
        ("capabilities:\n  tools:\n", lambda n: f"  - t{n}\n"),
        ("  destinations:\n    allow:\n", lambda n: f"    - h{n}.x.com\n"),
    ]
    return _one_line(shared(*lines))


def cases() -> Iterator[tuple[str, Files]]:
    """Every case with its files."""
    for name, make in CASES.items():
        yield name, make()
