"""How `licet learn` makes few rules of many uses. Nothing else is generalised.

- Three siblings or more, used with the same action, become their directory. Inside the working directory that repeats:
  three such directories become theirs, up to the working directory itself.
- A file that was written and is gone becomes its directory: the next run creates another one there. See `learn`.
- Three names or more below one domain become `*.domain`, only where that is asked for, and never below a public suffix.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from licet.core.algebra.scope import is_address

SIBLINGS = 3


def widened_paths(
    paths: Iterable[str], may_cover: Callable[[str], bool], repeats: Callable[[str], bool]
) -> dict[str, str]:
    """For each path, the path of the rule that covers it: itself, or a directory above.

    `may_cover` says of a directory whether a rule may cover all of it, `repeats` whether directories that were made of
    their siblings count as siblings in it.
    """
    used = set(paths)
    levels: dict[int, set[str]] = defaultdict(set)
    for path in used:
        levels[path.count("/")].add(path)
    covering = set(used)
    for depth in range(max(levels, default=0), 1, -1):
        siblings: dict[str, int] = defaultdict(int)
        for path in levels.pop(depth, ()):
            above = path.rpartition("/")[0]
            siblings[above] += path in used or repeats(above)
        found = {above for above, number in siblings.items() if number >= SIBLINGS and may_cover(above)}
        levels[depth - 1] |= found
        covering |= found
    return {path: _topmost(path, covering) for path in used}


def _topmost(path: str, covering: set[str]) -> str:
    found, above = path, path.rpartition("/")[0]
    while above:
        if above in covering:
            found = above
        above = above.rpartition("/")[0]
    return "/" if "/" in covering else found


def widened_hosts(hosts: Iterable[str], is_suffix: Callable[[str], bool], apart: Iterable[str]) -> Mapping[str, str]:
    """For each host, the host or pattern of the rule that covers it. No pattern covers a host in `apart`."""
    every = set(hosts)
    below: dict[str, set[str]] = defaultdict(set)
    for host in every:
        domain = host.partition(".")[2]
        if "." in domain and not is_address(host) and not is_suffix(domain):
            below[domain].add(host)
    closed = [f".{host}" for host in apart]
    wide = {
        domain
        for domain, names in below.items()
        if len(names) >= SIBLINGS and not any(host.endswith(f".{domain}") for host in closed)
    }
    return {host: f"*.{domain}" if (domain := host.partition(".")[2]) in wide else host for host in every}
