"""The description and the JSON Schema of tools that run Python written by a model."""

from typing import Any

# The names are those that the guest loads: a test compares them.
MODULES = (
    "abc argparse array ast asyncio base64 binascii bisect calendar cmath codecs collections colorsys "
    "concurrent.futures configparser contextlib contextvars copy csv dataclasses datetime decimal difflib dis "
    "doctest email enum errno filecmp fileinput fnmatch fractions functools gc getopt gettext glob graphlib gzip "
    "hashlib heapq hmac html http importlib inspect io ipaddress itertools json keyword linecache locale logging "
    "math mimetypes numbers operator optparse os pathlib pickle platform plistlib pprint pydoc queue quopri "
    "random re reprlib sched secrets shlex shutil sqlite3 stat statistics string stringprep struct symtable sys "
    "tarfile textwrap time timeit token tokenize tomllib traceback types typing unicodedata unittest urllib uuid "
    "warnings wave weakref xml zipfile zlib zoneinfo"
)

DESCRIPTION = f"""Run Python 3.14 and return its result, what it printed, and its error.
The result is the value of the last expression, or of the variable `result`. Values that are not JSON are returned as \
their repr.
The argument `data` is the variable `data`. Each call starts afresh: variables and imports do not stay.
Only the standard library is there; no packages, threads, processes or sockets. These modules can be imported:
{MODULES}
What touches the world is blocking (no await) and works as far as the policy allows; a refusal is a PermissionError.
- Files: open(), pathlib and os as usual, or ctx.fs.read(path), read_bytes, write(path, data), exists, list, stat, \
mkdir, delete, rename. What is written to a file is there when it is closed.
- HTTP: fetch(url, method="GET", headers=…, json=…, body=…, params=…, timeout=…) returns an answer with status, ok, \
text, content, headers, url and json().
- ctx.kv.get(key), set(key, value), delete, list: values that stay between calls.
- ctx.env.get(name).
Paths are relative to the working directory. A directory that may not be listed looks empty to glob and os.walk.
stdout and stderr are cut after 256 KB each. asyncio.run and top-level await work for coroutines."""

ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "description": "Python source. End it with the expression to return."},
        "data": {"description": "Any JSON value, which the code finds as `data`.", "default": None},
    },
    "required": ["code"],
    "additionalProperties": False,
}
