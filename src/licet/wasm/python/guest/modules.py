"""The modules that model-written Python can import. The component has no files: these are loaded when it is built."""

MODULES = (
    "abc", "argparse", "array", "ast", "asyncio", "base64", "binascii", "bisect", "calendar", "cmath", "codecs",
    "collections", "colorsys", "concurrent.futures", "configparser", "contextlib", "contextvars", "copy", "csv",
    "dataclasses", "datetime", "decimal", "difflib", "dis", "doctest", "email", "enum", "errno", "filecmp",
    "fileinput", "fnmatch", "fractions", "functools", "gc", "getopt", "gettext", "glob", "graphlib", "gzip",
    "hashlib", "heapq", "hmac", "html", "http", "importlib", "inspect", "io", "ipaddress", "itertools", "json",
    "keyword", "linecache", "locale", "logging", "math", "mimetypes", "numbers", "operator", "optparse", "os",
    "pathlib", "pickle", "platform", "plistlib", "pprint", "pydoc", "queue", "quopri", "random", "re", "reprlib",
    "sched", "secrets", "shlex", "shutil", "sqlite3", "stat", "statistics", "string", "stringprep", "struct",
    "symtable", "sys", "tarfile", "textwrap", "time", "timeit", "token", "tokenize", "tomllib", "traceback",
    "types", "typing", "unicodedata", "unittest", "urllib", "uuid", "warnings", "wave", "weakref", "xml", "zipfile",
    "zlib", "zoneinfo",
)  # fmt: skip
