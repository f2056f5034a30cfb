"""Which uses a draft of a policy must not allow by itself: keys, secrets, the home, private addresses, deletes.

`licet learn` writes a rule for such a use as a comment, with the reason, for a person to decide.
"""

import re
from collections.abc import Container, Iterable

from msgspec import Struct

from licet.core.algebra.scope import inside, is_address
from licet.core.algebra.use import Use
from licet.core.decision.foreseen import has_no_public_address
from licet.core.policy.addresses import address_kind

# Directories of keys and credentials, wherever they are.
_KEY_DIRECTORIES = frozenset(
    (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".gcloud", ".oci", ".terraform.d")
)
# Files that hold secrets by custom, wherever they are. Lower case is compared.
_SECRET_FILE = re.compile(
    r"\.env(?:\..+)?|\.netrc|_netrc|\.pgpass|\.my\.cnf|\.npmrc|\.pypirc|\.git-credentials|\.htpasswd|\.vault-token"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|.+\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)"
    r"|credentials(?:\.json|\.toml|\.db)?|secrets?\.(?:ya?ml|json|toml)"
)
_SECRET_OF_SYSTEM = re.compile(r"/etc/g?shadow-?|/etc/sudoers(?:\.d)?(?:/.*)?|/proc/[^/]+/(?:environ|mem)")
# The working directory may be a top-level directory, as `/app` in a container, but none of these.
_SYSTEM_DIRECTORIES = frozenset(
    f"/{name}"
    for name in (
        *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc"),
        *("root", "run", "sbin", "sys", "tmp", "usr", "var", "Users", "Library", "System"),
    )
)
_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|KEY|APIKEY)(?:_|$)", re.IGNORECASE
)
# Examples, and the public certificates that every TLS client reads.
_HARMLESS = frozenset({".env.example", ".env.sample", ".env.template", "cacert.pem", "ca-bundle.pem", "roots.pem"})


class Whereabouts(Struct, frozen=True):
    """The working directory and the home of a recording; the home may be empty."""

    workdir: str
    home: str

    def has_workdir(self, path: str) -> bool:
        """Whether a path is the working directory or inside it."""
        return inside(path, (self.workdir,))

    @property
    def is_project(self) -> bool:
        """Whether the working directory is a directory of its own, and neither the home nor above it."""
        return not self.home or not inside(self.home, (self.workdir,))

    def short(self, path: str) -> str:
        """The path as a policy writes it, with `${workdir}` or `~`."""
        for name, place in (("${workdir}", self.workdir), ("~", self.home)):
            if place not in ("", "/") and inside(path, (place,)):
                return name + path[len(place) :]
        return path


def is_wide_directory(path: str, where: Whereabouts) -> bool:
    """Whether a directory holds more than one matter: `/`, a top-level directory, the home, or what is above it.

    The working directory is not wide, unless it is one of these; what is above it is.
    """
    if path in ("/", where.home):
        return True
    if path.count("/") < 2 and (path != where.workdir or path in _SYSTEM_DIRECTORIES):
        return True
    return any(place != path and inside(place, (path,)) for place in (where.home, where.workdir) if place)


def why_sensitive(use: Use, where: Whereabouts, directories: Container[str] = ()) -> str:
    """Why a person must decide on a use; empty if it is ordinary. `directories` are paths known to be directories."""
    if use.effect == "delete":
        return "a delete"
    match use.domain:
        case "secret":
            return "a secret"
        case "env":
            return "a variable that may hold a secret" if _SECRET_VARIABLE.search(use.target) else ""
        case "network":
            return _why_host(use)
        case "fs":
            return why_path(use.target, where, directories)
        case _:
            return ""


def _why_host(use: Use) -> str:
    host = use.target
    if is_address(host):
        kind = address_kind(host.strip("[]"))
        if kind.metadata:
            return "a metadata service"
        if kind.closed:
            return f"an address that is {kind.title}"
    elif has_no_public_address(host):
        return "a name of a private network"
    return "a method whose effect is not known, for which the class must be full" if use.method == "other" else ""


def why_path(path: str, where: Whereabouts, directories: Container[str] = ()) -> str:
    """Why a person must decide on a path; empty if it is ordinary. A rule for a path covers everything below it."""
    if is_wide_directory(path, where):
        return "a directory of many things: a rule for it covers all of them"
    parts = path.split("/")[1:]
    if not _KEY_DIRECTORIES.isdisjoint(parts):
        return "keys or credentials"
    name = parts[-1].lower()
    is_named_so = _SECRET_FILE.fullmatch(name) and name not in _HARMLESS and path not in directories
    if is_named_so or _SECRET_OF_SYSTEM.fullmatch(path):
        return "a file that may hold secrets"
    if where.home and not (where.is_project and where.has_workdir(path)):
        below = path.removeprefix(f"{where.home.rstrip('/')}/")
        if below != path and below.startswith("."):
            return "a dot-file or dot-directory of the home"
    return ""


def above_each(paths: Iterable[str]) -> set[str]:
    """Paths with every directory above them."""
    found: set[str] = set()
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found
