"""Runs npm so that it starts no script, whatever packages and configuration say, and fetches archives with it."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from licet.backends.packages.clients import advice, client_environment, find_on_path, run_client
from licet.backends.packages.errors import PackageError
from licet.core.algebra.scope import visible

__all__ = ["choose_versions", "fetch_tarballs", "run_npm"]

_CERTIFICATES = "name its file: `npm config set cafile FILE`"
_WAYS = "`npm config set https-proxy URL` names the proxy of your network, and `registry` your registry"
_MOST_WRITTEN = 2 << 30  # bytes of a single command: metadata, archives, and bundles

# Whatever the configuration of the user says: no scripts, the ordinary layout, and registries only.
_FORCED = (
    *("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error"),
    *("--omit=dev", "--include=optional", "--include=peer", "--no-legacy-peer-deps", "--install-strategy=hoisted"),
    *("--no-global", "--no-workspaces", "--package-lock", "--lockfile-version=3", "--no-dry-run", "--no-bin-links"),
    *("--allow-git=none", "--allow-file=none", "--allow-directory=none", "--git=false"),
    "--omit-lockfile-registry-resolved",  # so a package with an address is one that came from elsewhere
    "--location=project",
    # npm tries again after any failure, also a certificate that it does not trust, and would wait for over a minute.
    *("--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000"),
)
# npm takes the `.npmrc` of the nearest directory with this file. `--prefix` would do too, but also moves the file with
# the settings of all users, where a network has its registry and its certificates.
_DESCRIBED = '{"name": "licet-package", "private": true}'

# No address that a dependency names is asked for. With this option alone, npm refuses to open archives of its registry
# too, to see what they bundle (npm/cli#9800): what the registry itself said is let through. Should npm be made in
# another way one day, packages that bundle others are refused.
_REGISTRY_ONLY = "--allow-remote=none"
_HOOK = "archives-of-the-registry.cjs"
_HOOK_TEXT = """const Module = require("module")
const load = Module._load
const known = new Set()
Module._load = function (name, ...rest) {
  const found = load.call(this, name, ...rest)
  if (name !== "pacote") return found
  return {
    ...found,
    manifest: async (spec, options) => {
      const told = await found.manifest(spec, options)
      known.add(told._resolved)
      return told
    },
    extract: (spec, place, options) =>
      found.extract(spec, place, known.has(spec) ? { ...options, allowRemote: "all" } : options),
  }
}
"""


def choose_versions(directory: Path, wanted: Sequence[str], doing: str) -> None:
    """Write `package-lock.json` for packages of the registry. Raises `PackageError` if one needs any other source.

    An npm that is older than 11.14 knows no such option: it asks for archives at addresses that dependencies name.
    """
    (directory / _HOOK).write_text(_HOOK_TEXT, encoding="utf-8")
    arguments = ["install", "--package-lock-only", _REGISTRY_ONLY, "--", *wanted]
    run_npm(directory, arguments, doing, f"--require=./{_HOOK}")


def run_npm(directory: Path, arguments: Sequence[str], doing: str, node_option: str = "") -> None:
    """Run npm in a directory. To choose versions, it unpacks packages that bundle others, and bounds that badly."""
    npm = find_on_path("npm")
    if npm is None:
        raise PackageError(f"{doing} failed: `npm` is not on PATH; install Node with npm, and run `licet lock` again")
    described = directory / "package.json"
    if not described.exists():
        described.write_text(_DESCRIBED, encoding="utf-8")
    command, *rest = arguments
    command_line = [npm, command, *_FORCED, *rest]
    environment = client_environment()
    if node_option:
        environment["NODE_OPTIONS"] = f"{environment.get('NODE_OPTIONS', '')} {node_option}".strip()
    try:
        run_client(command_line, directory, environment, doing, most_written=_MOST_WRITTEN)
    except PackageError as wrong:
        raise PackageError(f"{wrong}{advice(str(wrong), _CERTIFICATES, _WAYS)}") from None


def fetch_tarballs(directory: Path, wanted: Mapping[str, str], doing: str) -> Mapping[str, Path]:
    """Fetch archives from the registry: `wanted` has each `name@version` by its sha512, and the result its file.

    Raises `PackageError` if the registry has other ones. Nothing is unpacked.
    """
    missing, found = dict(wanted), dict[str, Path]()
    # At first from what npm has in its cache. Two packages may have archives of the same name: then the other is next.
    for number in range(len(wanted) + 2):
        if not missing:
            break
        place = directory / f"tarballs-{number}"
        place.mkdir()
        flags = ("--prefer-offline",) if number == 0 else ()
        try:
            options = (*flags, "--allow-remote=all", "--pack-destination", place.name)  # else npm refuses its own
            run_npm(directory, ["pack", *options, "--", *missing.values()], doing)
        except PackageError:
            if flags:
                continue
            raise
        fetched = {_sha512(tarball): tarball for tarball in place.iterdir()}
        if not (flags or missing.keys() & fetched.keys()):
            other = visible(next(iter(missing.values())))
            raise PackageError(f"{doing} failed: the registry has another {other} than the lock pins")
        found |= {integrity: tarball for integrity, tarball in fetched.items() if integrity in missing}
        missing = {integrity: spec for integrity, spec in missing.items() if integrity not in found}
    return found


def _sha512(path: Path) -> str:
    with open(path, "rb") as file:
        return f"sha512-{base64.b64encode(hashlib.file_digest(file, 'sha512').digest()).decode()}"
