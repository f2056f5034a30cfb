"""The one table of `licet lint`: which callables touch what, and which calls return values whose methods do.

Each line of `USES` is an effect and the full names of callables that have it. `@0` says in which argument the path,
host, program or variable is; `@self` is the object of the method. Full names of methods start with the type of their
object. A name that is not here is taken to touch nothing, so a missing line is silence and never a wrong finding.

Two effects have no rule that could declare them: `import` (code chosen at run time) and `foreign` (code that is not
Python). `eval` is the third.

One use in the source, and the rule that would declare it, as far as the arguments of the call show it.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache

from msgspec import Struct

from licet.core.algebra.domains import STORAGE_KINDS, method_word
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed
from licet.source.literals import (
    ANY,
    ExpressionValues,
    TextPrefix,
    host_scope,
    path_scope,
    program_scope,
    variable_scope,
)

OPEN = "open"  # the effect of `open`: what it does depends on the mode, in the next argument

USES = """
open@0          builtins.open io.open codecs.open gzip.open bz2.open lzma.open io.FileIO gzip.GzipFile bz2.BZ2File
open@0          lzma.LZMAFile zipfile.ZipFile tarfile.open tarfile.TarFile wave.open aiofiles.open anyio.open_file
open@0          tarfile.TarFile.open os.open
open@self       pathlib.Path.open anyio.Path.open
fs:read@0       os.listdir os.scandir os.stat os.lstat os.walk os.fwalk os.readlink os.access os.statvfs os.getxattr
fs:read@0       os.listxattr os.path.exists os.path.lexists os.path.isfile os.path.isdir os.path.islink
fs:read@0       os.path.ismount
fs:read@0       os.path.getsize os.path.getmtime os.path.getatime os.path.getctime os.path.samefile shutil.disk_usage
fs:read@0       glob.glob glob.iglob linecache.getline linecache.getlines fileinput.input filecmp.cmp filecmp.dircmp
fs:read@0       io.open_code
fs:read@0       mimetypes.read_mime_types runpy.run_path tokenize.open zipfile.is_zipfile tarfile.is_tarfile
fs:read@0       configparser.ConfigParser.read configparser.RawConfigParser.read netrc.netrc
fs:read@0       os.path.sameopenfile aiofiles.os.stat aiofiles.os.listdir aiofiles.os.scandir aiofiles.os.path.exists
fs:read@0       aiofiles.os.path.isfile aiofiles.os.path.isdir aiofiles.os.path.getsize pandas.read_csv
fs:read@0       pandas.read_excel
fs:read@0       pandas.read_parquet pandas.read_pickle numpy.load numpy.fromfile numpy.loadtxt
fs:read@0       zipfile.ZipFile.write tarfile.TarFile.add email.message_from_file shutil.unpack_archive
fs:read@self    pathlib.Path.read_text pathlib.Path.read_bytes pathlib.Path.iterdir pathlib.Path.glob
fs:read@self    pathlib.Path.rglob
fs:read@self    pathlib.Path.walk pathlib.Path.exists pathlib.Path.is_file pathlib.Path.is_dir pathlib.Path.is_symlink
fs:read@self    pathlib.Path.is_mount pathlib.Path.is_socket pathlib.Path.is_fifo pathlib.Path.is_block_device
fs:read@self    pathlib.Path.is_char_device pathlib.Path.stat pathlib.Path.lstat pathlib.Path.readlink
fs:read@self    pathlib.Path.owner
fs:read@self    pathlib.Path.group pathlib.Path.samefile
fs:read@self    anyio.Path.read_text anyio.Path.read_bytes anyio.Path.iterdir anyio.Path.glob anyio.Path.rglob
fs:read@self    anyio.Path.exists anyio.Path.is_file anyio.Path.is_dir anyio.Path.stat
fs:write@0      os.mkdir os.makedirs os.mknod os.mkfifo os.truncate os.chmod os.chown os.lchown os.utime os.setxattr
fs:write@0      os.removexattr sqlite3.connect shelve.open dbm.open logging.FileHandler
fs:write@0      logging.handlers.WatchedFileHandler
fs:write@0      logging.handlers.RotatingFileHandler logging.handlers.TimedRotatingFileHandler aiosqlite.connect
fs:write@0      aiofiles.os.mkdir aiofiles.os.makedirs numpy.save numpy.savez numpy.savetxt shutil.chown
fs:write@1      os.symlink os.link
fs:write@self   pathlib.Path.write_text pathlib.Path.write_bytes pathlib.Path.mkdir pathlib.Path.touch
fs:write@self   pathlib.Path.chmod
fs:write@self   pathlib.Path.symlink_to pathlib.Path.hardlink_to pathlib.Path.lchmod
fs:write@self   anyio.Path.write_text anyio.Path.write_bytes anyio.Path.mkdir anyio.Path.touch
fs:delete@0     os.remove os.unlink os.rmdir os.removedirs shutil.rmtree aiofiles.os.remove aiofiles.os.unlink
fs:delete@0     aiofiles.os.rmdir
fs:delete@self  pathlib.Path.unlink pathlib.Path.rmdir pathlib.Path.rename pathlib.Path.replace
fs:delete@self  anyio.Path.unlink anyio.Path.rmdir anyio.Path.rename anyio.Path.replace
fs:write@0      pathlib.Path.rename pathlib.Path.replace anyio.Path.rename anyio.Path.replace shutil.make_archive
fs:delete@0     os.rename os.replace os.renames shutil.move aiofiles.os.rename aiofiles.os.replace
fs:write@1      os.rename os.replace os.renames shutil.move aiofiles.os.rename aiofiles.os.replace
fs:read@0       shutil.copy shutil.copy2 shutil.copyfile shutil.copytree shutil.copymode shutil.copystat
fs:write@1      shutil.copy shutil.copy2 shutil.copyfile shutil.copytree shutil.copymode shutil.copystat
fs:write@1      shutil.unpack_archive urllib.request.urlretrieve
scratch         tempfile.TemporaryFile tempfile.NamedTemporaryFile tempfile.TemporaryDirectory tempfile.mkstemp
scratch         tempfile.mkdtemp tempfile.SpooledTemporaryFile

network@0       urllib.request.urlopen urllib.request.urlretrieve urllib.request.OpenerDirector.open
network@0       requests.get requests.head requests.options requests.post requests.put requests.patch requests.delete
network@0       httpx.get httpx.head httpx.options httpx.post httpx.put httpx.patch httpx.delete
network@0       httpx2.get httpx2.head httpx2.options httpx2.post httpx2.put httpx2.patch httpx2.delete
network@1       requests.request httpx.request httpx.stream httpx2.request httpx2.stream urllib3.request
network@0       requests.Session.get requests.Session.head requests.Session.options requests.Session.post
network@0       requests.Session.put requests.Session.patch requests.Session.delete
network@0       httpx.Client.get httpx.Client.head httpx.Client.options httpx.Client.post httpx.Client.put
network@0       httpx.Client.patch httpx.Client.delete
network@0       aiohttp.ClientSession.get aiohttp.ClientSession.head aiohttp.ClientSession.options
network@0       aiohttp.ClientSession.post aiohttp.ClientSession.put aiohttp.ClientSession.patch
network@0       aiohttp.ClientSession.delete aiohttp.ClientSession.ws_connect
network@1       requests.Session.request httpx.Client.request httpx.Client.stream aiohttp.ClientSession.request
network@1       urllib3.PoolManager.request urllib3.PoolManager.urlopen
network         requests.Session.send httpx.Client.send
network@0       websockets.connect websocket.create_connection socketserver.TCPServer socketserver.UDPServer
network         http.server.HTTPServer http.server.ThreadingHTTPServer socket.socket socket.create_server
network         http.client.HTTPConnection.request http.client.HTTPConnection.connect
network         xmlrpc.server.SimpleXMLRPCServer
network         smtplib.SMTP.connect smtplib.SMTP.sendmail smtplib.SMTP.send_message ftplib.FTP.connect
network         asyncio.start_server asyncio.open_unix_connection asyncio.start_unix_server
network@0=host  socket.create_connection socket.getaddrinfo socket.gethostbyname socket.gethostbyname_ex
network@0=host  socket.gethostbyaddr socket.getfqdn asyncio.open_connection smtplib.SMTP smtplib.SMTP_SSL ftplib.FTP
network@0=host  ftplib.FTP_TLS imaplib.IMAP4 imaplib.IMAP4_SSL poplib.POP3 poplib.POP3_SSL telnetlib.Telnet
network@0=host  nntplib.NNTP
network@0=host  ssl.get_server_certificate anyio.connect_tcp trio.open_tcp_stream
network         asyncio.AbstractEventLoop.create_connection asyncio.AbstractEventLoop.create_server
network         asyncio.AbstractEventLoop.create_datagram_endpoint asyncio.AbstractEventLoop.sock_connect
network         asyncio.AbstractEventLoop.create_unix_connection asyncio.AbstractEventLoop.create_unix_server
network         socket.SocketType socket.fromfd socketserver.UnixStreamServer socketserver.ThreadingTCPServer
network         asyncpg.connect asyncpg.create_pool psycopg.connect psycopg2.connect pymysql.connect pg8000.connect
network         paramiko.SSHClient.connect

process@0       subprocess.run subprocess.call subprocess.check_call subprocess.check_output subprocess.Popen
process@0       asyncio.create_subprocess_exec os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp
process@0       os.execvpe os.posix_spawn os.posix_spawnp anyio.run_process anyio.open_process trio.run_process
process@0       pty.spawn
process@1       asyncio.AbstractEventLoop.subprocess_exec
process=/bin/sh asyncio.AbstractEventLoop.subprocess_shell
process@1       os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe
process=/bin/sh os.system os.popen subprocess.getoutput subprocess.getstatusoutput asyncio.create_subprocess_shell
process         os.fork os.forkpty os.kill os.killpg os.startfile pty.fork webbrowser.open webbrowser.open_new
process         webbrowser.open_new_tab
process         _posixsubprocess.fork_exec
process         multiprocessing.Pool multiprocessing.Manager multiprocessing.pool.Pool
process         multiprocessing.Process.start concurrent.futures.ProcessPoolExecutor.submit
process         concurrent.futures.ProcessPoolExecutor.map

env@0           os.getenv os.getenvb os.putenv os.unsetenv os.environ.get os.environ.pop os.environ.setdefault
env@0           os.environb.get dotenv.get_key
env             os.environ os.environb dotenv.load_dotenv dotenv.dotenv_values os.path.expandvars

import          importlib.reload importlib.util.spec_from_file_location importlib.machinery.SourceFileLoader
import          importlib.machinery.ExtensionFileLoader importlib.machinery.SourcelessFileLoader
import          importlib.util.module_from_spec
import          imp.load_module imp.load_source imp.load_dynamic zipimport.zipimporter
import@0        importlib.__import__ importlib.import_module builtins.__import__ runpy.run_module pkgutil.resolve_name
eval            builtins.eval builtins.exec builtins.compile runpy.run_path code.interact code.InteractiveInterpreter
eval            code.InteractiveConsole builtins.breakpoint pdb.set_trace
foreign         ctypes.CDLL ctypes.PyDLL ctypes.WinDLL ctypes.OleDLL ctypes.cdll.LoadLibrary ctypes.pydll.LoadLibrary
foreign         ctypes.windll.LoadLibrary ctypes.util.find_library ctypes.pythonapi ctypes.cdll ctypes.windll
foreign         cffi.FFI.dlopen cffi.FFI.verify
"""

# A type, and the calls, methods and attributes whose value is of that type.
VALUES = """
pathlib.Path                pathlib.Path pathlib.PosixPath pathlib.WindowsPath pathlib.Path.cwd pathlib.Path.home
pathlib.Path                pathlib.Path.parent pathlib.Path.joinpath pathlib.Path.with_name pathlib.Path.with_stem
pathlib.Path                pathlib.Path.with_suffix pathlib.Path.resolve pathlib.Path.absolute pathlib.Path.expanduser
pathlib.Path                pathlib.Path.relative_to pathlib.Path.readlink pathlib.Path.rename pathlib.Path.replace
anyio.Path                  anyio.Path anyio.Path.cwd anyio.Path.home anyio.Path.parent anyio.Path.joinpath
requests.Session            requests.Session requests.session requests.sessions.Session
httpx.Client                httpx.Client httpx.AsyncClient httpx2.Client httpx2.AsyncClient
aiohttp.ClientSession       aiohttp.ClientSession
urllib3.PoolManager         urllib3.PoolManager urllib3.ProxyManager
urllib.request.OpenerDirector urllib.request.build_opener
http.client.HTTPConnection  http.client.HTTPConnection http.client.HTTPSConnection
smtplib.SMTP                smtplib.SMTP smtplib.SMTP_SSL
ftplib.FTP                  ftplib.FTP ftplib.FTP_TLS
configparser.ConfigParser   configparser.ConfigParser configparser.RawConfigParser
multiprocessing.Process     multiprocessing.Process multiprocessing.context.Process
concurrent.futures.ProcessPoolExecutor concurrent.futures.ProcessPoolExecutor
concurrent.futures.ProcessPoolExecutor concurrent.futures.process.ProcessPoolExecutor
asyncio.AbstractEventLoop                asyncio.get_running_loop asyncio.get_event_loop asyncio.new_event_loop
asyncio.AbstractEventLoop                asyncio.AbstractEventLoop
zipfile.ZipFile             zipfile.ZipFile
tarfile.TarFile             tarfile.open tarfile.TarFile tarfile.TarFile.open
cffi.FFI                    cffi.FFI
paramiko.SSHClient          paramiko.SSHClient
licet.fetch                 licet.Context.fetch licet.Fetch
licet.fs                    licet.Context.fs licet.FileSystem
licet.secrets               licet.Context.secrets licet.SecretStore
licet.kv                    licet.Context.kv licet.Store licet.kv.of
licet.env                   licet.Context.env licet.Environment
licet.process               licet.Context.process licet.Programs
licet.Context               licet.Context
"""

# Iterating over the result of these gives values of a type.
ITEMS = {
    "pathlib.Path": ("pathlib.Path.iterdir", "pathlib.Path.glob", "pathlib.Path.rglob", "pathlib.Path.parents"),
    "anyio.Path": ("anyio.Path.iterdir", "anyio.Path.glob", "anyio.Path.rglob"),
}

# Methods of the handles, and what each uses. These uses are checked when they happen.
HANDLES = """
network@0       licet.fetch licet.fetch.stream
fs:read@0       licet.fs.read licet.fs.read_bytes licet.fs.exists licet.fs.stat licet.fs.list
fs:write@0      licet.fs.write licet.fs.mkdir
fs:delete@0     licet.fs.delete licet.fs.rename
fs:write@1      licet.fs.rename
open@0          licet.fs.open
secret@0        licet.secrets.get licet.secrets.ref
env@0           licet.env.get
process@0       licet.process.spawn
storage         licet.kv.get licet.kv.list licet.kv.set licet.kv.delete
"""

# Functions that call their first argument with the others.
FORWARDING = frozenset(
    {"asyncio.to_thread", "anyio.to_thread.run_sync", "trio.to_thread.run_sync", "builtins.map", "builtins.filter"}
)

# Names of other modules for the same things.
_SAME = {
    "posixpath": "os.path",
    "ntpath": "os.path",
    "posix": "os",
    "nt": "os",
    "_io": "io",
    "asyncio.subprocess": "asyncio",
    "_socket": "socket",
    "logging.handlers.FileHandler": "logging.FileHandler",
    "licet.SyncContext": "licet.Context",
    "licet.handles.SyncFetch": "licet.Fetch",
    "licet.handles.SyncFileSystem": "licet.FileSystem",
    "licet.handles.SyncSecretStore": "licet.SecretStore",
    "licet.handles.SyncStore": "licet.Store",
    "licet.handles.SyncPrograms": "licet.Programs",
    "licet.handles.SyncContext": "licet.Context",
}

# Modules that do nothing but input and output, by what they touch. There is no other reason to import one.
_ONLY_TOUCHES: Mapping[str, tuple[str, ...]] = {
    "fs:write": ("shutil", "fileinput", "shelve", "dbm", "aiofiles"),
    "fs:read": ("glob", "linecache"),
    "network": (
        "socket", "socketserver", "http.client", "http.server", "urllib.request", "xmlrpc.client", "smtplib", "ftplib",
        "imaplib", "poplib", "requests", "httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "urllib3", "websockets",
        "paramiko", "pycurl", "grpc", "asyncpg", "psycopg", "psycopg2", "pymysql", "redis", "zmq", "botocore",
        "xmlrpc.server", "telnetlib", "nntplib", "websocket", "asyncssh", "boto3", "pymongo", "aiosqlite", "pg8000",
    ),
    "process": ("subprocess", "multiprocessing", "pty", "pexpect", "webbrowser", "_posixsubprocess"),
}  # fmt: skip
# The rule that covers everything of a kind.
EVERYTHING = {"fs:read": "fs:read:*", "fs:write": "fs:write:*", "network": "network:*:*", "process": "process:exec:*"}
_ALL_NAMES = frozenset({"__dict__", "__getattribute__", "__getattr__", "__builtins__", "__loader__"})  # of a module


class Effect(Struct, frozen=True):
    """What a callable touches, and where the call says which path, host, program or variable it is."""

    kind: str  # `fs:read`, `fs:write`, `fs:delete`, `network`, `process`, `env`, `import`, `eval`, `foreign` or `open`
    argument: int | None = None
    of_object: bool = False  # the object of the method is the path
    fixed: str = ""  # the program, where it is always the same
    is_host: bool = False  # the argument is a host and not a URL


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        first, *names = line.split() or [""]
        for name in names:
            yield first, name


def _effect(word: str) -> Effect:
    kind, _, where = word.partition("@")
    kind, _, fixed = kind.partition("=")
    where, _, note = where.partition("=")
    return Effect(kind, int(where) if where.isdigit() else None, where == "self", fixed, note == "host")


@cache
def uses() -> Mapping[str, tuple[Effect, ...]]:
    """The effects of each callable."""
    return _effects(USES)


@cache
def handles() -> Mapping[str, tuple[Effect, ...]]:
    """The effects of each method of a handle."""
    return _effects(HANDLES)


def _effects(text: str) -> Mapping[str, tuple[Effect, ...]]:
    words = {word: _effect(word) for word, _ in _rows(text)}
    found: dict[str, tuple[Effect, ...]] = {}
    for word, name in _rows(text):
        found[name] = (*found.get(name, ()), words[word])
    return found


@cache
def values() -> Mapping[str, str]:
    """The type of what a call, a method or an attribute gives, by its full name."""
    return {name: kind for kind, name in _rows(VALUES)}


@cache
def items() -> Mapping[str, str]:
    """The type of the items of what a method gives, by its full name."""
    return {name: kind for kind, names in ITEMS.items() for name in names}


@cache
def roots() -> frozenset[str]:
    """The first parts of all names in the table: a module that imports none of them can touch nothing by itself."""
    return frozenset(name.partition(".")[0] for name in (*uses(), *values(), *_SAME))


@cache
def function_in(name: str) -> str:
    """The callable of the table that a name is, or is an attribute of; empty if there is none."""
    while name and name not in uses():
        name = name.rpartition(".")[0]
        if name in values():  # an attribute of a type may be anything
            return ""
    return name


@cache
def _modules() -> frozenset[str]:
    """The modules whose callables are in the table, and the tables of all modules and of all names."""
    found = {name.rpartition(".")[0] for name in uses()} - uses().keys() - values().keys() - set(values().values())
    return frozenset(name for name in found if _is_standard(name) or only_touches(name)) | {"sys.modules"}


def _is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


@cache
def hides(name: str) -> bool:
    """Whether a value hides which callable of the table is used: a module, or the names in it."""
    parent, _, last = name.rpartition(".")
    if parent in _modules():
        return name in _modules() or parent == "sys.modules" or last in _ALL_NAMES
    return name in _modules() or (parent.endswith(".__dict__") and hides(parent))


@cache
def only_touches(module: str) -> str:
    """What a module touches that does nothing but input and output, such as `network`; empty for any other module."""
    for kind, names in _ONLY_TOUCHES.items():
        if any(module == name or module.startswith(f"{name}.") for name in names):
            return kind
    return ""


@cache
def same(dotted: str) -> str:
    """The name in this table of a name that has several."""
    for other, name in _SAME.items():
        if dotted == other or dotted.startswith(f"{other}."):
            return name + dotted[len(other) :]
    for private in ("licet.declare.", "licet.handles."):
        if dotted.startswith(private):
            return f"licet.{dotted[len(private) :]}"
    return _through_another(dotted)


def _through_another(dotted: str) -> str:
    """The name of something that was reached through a module that imports it, such as `shutil.os.remove`."""
    parts = dotted.split(".")
    if not _is_standard(parts[0]):
        return dotted
    for number in range(len(parts) - 1, 0, -1):
        inner = ".".join(parts[number:])
        top = parts[number].lstrip("_") if _is_standard(parts[number].lstrip("_")) else parts[number]
        if top in roots() and _is_standard(top) and not _is_submodule(".".join(parts[: number + 1])):
            return same(top + inner[len(parts[number]) :])
    return dotted


@cache
def _is_submodule(dotted: str) -> bool:
    """Whether a name is the beginning of a name in the table, so that it means what it says."""
    known = (*uses(), *values(), *_SAME)
    return any(name == dotted or name.startswith(f"{dotted}.") for name in known)


_NAMED_ARGUMENTS = {
    "fs": ("path", "file", "filename", "name", "src", "source", "top", "pathname", "database", "dirname"),
    "fs1": ("dst", "dest", "target"),
    "network": ("url", "host", "address"),
    "process": ("args", "program", "cmd", "path", "file", "name"),
    "env": ("key", "name"),
    "secret": ("reference",),
    "import": ("name", "mod_name"),
}
_READING = frozenset(
    f"O_{name}" for name in ("RDONLY", "CLOEXEC", "DIRECTORY", "NOFOLLOW", "NONBLOCK", "NOATIME", "NOCTTY", "BINARY")
)
_METHODS = ("get", "head", "options", "post", "put", "patch", "delete")


class Use(Struct, frozen=True):
    """One thing that a line of source uses."""

    kind: str  # as in `table.Effect`, and `secret` and `storage` of handles
    rule: str  # the rule that would declare it; empty for what no rule can declare
    exact: bool  # the source shows the complete path, host, program or variable
    what: str  # the call, such as `os.remove`
    line: int
    offset: int
    end_line: int
    is_raw: bool  # not through a handle
    called: bool = True  # False if it only stands as a value, which somebody else may call


def shown_name(what: str) -> str:
    """A full name as a reader of the source would write it."""
    for prefix, word in (("builtins.", ""), ("licet.Context.", "ctx."), ("licet.", "ctx.")):
        if what.startswith(prefix):
            return word + what.removeprefix(prefix)
    return what.removeprefix("pathlib.") if what.startswith("pathlib.Path.") else what


def argument_of(
    effect: Effect, call: ast.Call | None, given: list[ast.expr], of: list[ast.expr] | None
) -> ast.expr | None:
    """The argument that says which path, host, program or variable it is."""
    if effect.of_object:
        if of is not None:
            return of[0] if of else None
        return call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if effect.argument is None:
        return None
    before = given[: effect.argument + 1]
    if len(before) > effect.argument and not any(isinstance(one, ast.Starred) for one in before):
        return before[-1]
    domain = effect.kind.partition(":")[0]
    names = _NAMED_ARGUMENTS.get(f"{domain}{effect.argument or ''}") or _NAMED_ARGUMENTS.get(
        "fs" if domain == OPEN else domain, ()
    )
    return next((one.value for one in call.keywords if one.arg in names), None) if call is not None else None


def _keyword(call: ast.Call | None, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None) if call is not None else None


Rule = tuple[str, str, bool]  # the kind of use, the rule that declares it, and whether it is exact


def rules_of(
    effect: Effect,
    what: str,
    argument: ast.expr | None,
    call: ast.Call | None,
    given: list[ast.expr],
    values: ExpressionValues,
) -> Iterator[Rule]:
    """The rules that would declare what a call does; more than one if it does several things."""
    domain = effect.kind.partition(":")[0]
    prefix = values.prefix_of(argument) if argument is not None else None
    if domain == OPEN:
        yield from _opened(effect, what, call, given, prefix, argument, values)
    elif domain == "fs":
        if not (_in_memory(what, prefix) or _is_descriptor(argument)):
            yield _file_rule(effect.kind, prefix)
    elif domain == "network":
        yield _network_rule(effect, what, prefix, call, given, values)
    elif domain == "process":
        shell = _keyword(call, "shell")
        through_shell = isinstance(shell, ast.Constant) and bool(shell.value)
        program = effect.fixed or ("/bin/sh" if through_shell else "")
        scope = program or (program_scope(argument, values) if argument is not None else ANY)
        yield "process", f"process:exec:{scope}", scope != ANY
    elif domain == "env":
        scope = variable_scope(prefix)
        yield "env", f"env:read:{scope}", scope != ANY
    elif domain == "secret":
        yield _checked("secret", "secret:read", prefix.text if prefix and prefix.complete else ANY)
    elif domain == "storage":
        yield _storage_rule(what, call, values)
    elif domain == "import":
        yield "import", "", prefix is not None and prefix.complete and not prefix.text.startswith(".")
    elif domain == "scratch":
        folder = _keyword(call, "dir")
        yield ("scratch", "fs:write:*", False) if folder is None else ("fs:write", "fs:write:*", False)
    else:
        yield effect.kind, "", False


def _opened(
    effect: Effect,
    what: str,
    call: ast.Call | None,
    given: list[ast.expr],
    prefix: TextPrefix | None,
    argument: ast.expr | None,
    values: ExpressionValues,
) -> Iterator[Rule]:
    if _is_descriptor(argument) or _keyword(call, "fileobj") is not None:
        return  # an open file: it was opened elsewhere
    place = 0 if effect.of_object else 1
    mode = given[place] if len(given) > place else _keyword(call, "mode")
    stated = values.prefix_of(mode) if mode is not None else None
    letters = stated.text.partition(":")[0] if stated and stated.complete else "r" if mode is None else "r+"
    if call is None or what == "os.open":
        letters = "r" if call is not None and mode is not None and _only_reads(mode) else "r+"
    if set(letters) & set("wax+"):
        yield _file_rule("fs:write", prefix)
    if "r" in letters or not set(letters) & set("wax"):
        yield _file_rule("fs:read", prefix)


def _only_reads(flags: ast.expr) -> bool:
    """Whether the flags of `os.open` are names, and none of them lets it write."""
    names = [
        getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(flags) if not isinstance(part, ast.BinOp)
    ]
    return "O_RDONLY" in names and not any(name.startswith("O_") and name not in _READING for name in names)


def _is_descriptor(argument: ast.expr | None) -> bool:
    return isinstance(argument, ast.Constant) and isinstance(argument.value, int)


def _in_memory(what: str, prefix: TextPrefix | None) -> bool:
    return what in ("sqlite3.connect", "aiosqlite.connect") and prefix is not None and prefix.text == ":memory:"


def _file_rule(kind: str, prefix: TextPrefix | None) -> Rule:
    scope = path_scope(prefix)
    return kind, f"{kind}:{scope}", prefix is not None and prefix.complete and scope != ANY


def _network_rule(
    effect: Effect,
    what: str,
    prefix: TextPrefix | None,
    call: ast.Call | None,
    given: list[ast.expr],
    values: ExpressionValues,
) -> Rule:
    host = ANY
    if effect.is_host:
        host = prefix.text if prefix and prefix.complete and prefix.text else ANY
    elif prefix is not None:
        host = host_scope(prefix)
    last = what.rpartition(".")[2]
    method = last if last in _METHODS else ""
    if what.startswith("licet."):
        stated = given[1] if len(given) > 1 else _keyword(call, "method")
        text = values.prefix_of(stated) if stated is not None else None
        method = "get" if stated is None else text.text if text and text.complete else ""
        if stated is None and call is None:
            method = ""
    if method:
        try:
            return _checked("network", "network:*", f"{method_word(method)}@{host}", host != ANY)
        except Malformed:
            pass
    return _checked("network", "network:*", host, host != ANY)


def _storage_rule(what: str, call: ast.Call | None, values: ExpressionValues) -> Rule:
    of = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr == "of" and of.args:
        kind = values.prefix_of(of.args[0])
        if kind and kind.complete and kind.text in STORAGE_KINDS:
            return "storage", f"storage:*:{kind.text}", True
    return "storage", "storage:*:*", False


def _checked(kind: str, beginning: str, scope: str, exact: bool | None = None) -> Rule:
    try:
        Capability(f"{beginning}:{scope}")
    except Malformed:
        return kind, f"{beginning}:{ANY}", False
    return kind, f"{beginning}:{scope}", scope != ANY if exact is None else exact
