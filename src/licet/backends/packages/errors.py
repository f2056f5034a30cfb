"""Why a package is not installed, or not started."""

from licet.errors import LicetError

__all__ = ["PackageChanged", "PackageError"]


class PackageError(LicetError):
    """A package that is not installed, or not started. The text has the reason and the fix."""


class PackageChanged(PackageError):
    """A package in the store is not as it was installed. `licet lock` installs it again."""
