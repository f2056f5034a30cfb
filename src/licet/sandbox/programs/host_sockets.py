"""The unix sockets of the host that a program may connect to, and what leads clients of ssh to the proxy.

A socket is granted by its exact path. It is looked up when the program starts, and the file that was found then is the
one that the program reaches: a service that makes its socket anew is reached by the next program.
"""

import os
import shlex
import stat
from collections.abc import Mapping
from typing import Final, NamedTuple

from licet.core.algebra.domains import TCP
from licet.core.algebra.rules import Use
from licet.core.algebra.scope import TOP, inside
from licet.core.decision.reach import Reach
from licet.guard.held_paths import held_paths
from licet.guard.import_path import changeable, followed

SSH_PORT: Final = 22
_KNOWN_HOSTS: Final = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
# Speaks to the proxy as a client, and then copies both ways. It is bash, because every machine with git and ssh has it.
_TUNNEL: Final = r"""proxy=${https_proxy#*://}; proxy=${proxy%/}; login=
case $proxy in *@*) login=${proxy%@*}; proxy=${proxy##*@};; esac
exec 3<>"/dev/tcp/${proxy%:*}/${proxy##*:}" || exit 1
{ printf "CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n" "$1" "$2" "$1" "$2"
  [ -z "$login" ] || printf "Proxy-Authorization: Basic %s\r\n" "$(printf %s "$login" | base64 -w0)"
  printf "\r\n"; } >&3
IFS= read -r status <&3
case $status in *" 200 "*) ;; *) echo "licet: the proxy refuses $1:$2: ${status%?}" >&2; exit 1;; esac
while IFS= read -r line <&3 && [ -n "${line%?}" ]; do :; done
cat <&3 & exec >&-; cat >&3; wait"""


class HostSocket(NamedTuple):
    """A socket of the host: the path in the rule, its real path, and the file that was there."""

    path: str
    real: str
    device: int
    inode: int


def granted_sockets(reach: Reach) -> tuple[HostSocket, ...]:
    """The sockets that a grant names and that are there; without those that a tool could have put there."""
    sockets = []
    for rule in reach.grant.allow:
        if rule.domain != "socket" or rule.key == TOP or not reach.grant.has(Use(f"socket:connect:{rule.key}")):
            continue
        try:
            real, links = followed(rule.key)
            about = os.lstat(real)
        except OSError:  # it is not there, and the program finds that out itself
            continue
        closed = inside(real, held_paths(reach.grant).denied("read"))
        # What a program may write it could have moved or linked there: another socket of the host, too.
        changed = any(changeable(path, reach.manifest.ceiling) for path in (real, *links))
        if stat.S_ISSOCK(about.st_mode) and about.st_nlink == 1 and not closed and not changed:
            sockets.append(HostSocket(rule.key, real, about.st_dev, about.st_ino))
    return tuple(sockets)


def socket_variables(sockets: tuple[HostSocket, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """The variable of an ssh agent, if its socket is granted: no client looks for the agent anywhere else."""
    agent = environment.get("SSH_AUTH_SOCK", "")
    return {"SSH_AUTH_SOCK": agent} if any(agent in (one.path, one.real) for one in sockets) else {}


def reaches_ssh(reach: Reach) -> bool:
    """Whether a rule allows connections to the port of ssh and names the port."""
    return any(rule.domain == "network" and rule.atoms & TCP and rule.port == SSH_PORT for rule in reach.grant.allow)


def known_hosts(home: str) -> tuple[str, ...]:
    """The lists of host keys that ssh reads, without links."""
    paths = (os.path.join(home, path[2:]) if path[0] == "~" else path for path in _KNOWN_HOSTS)
    return tuple(path for path in paths if os.path.isfile(path) and os.path.realpath(path) == path)


def ssh_variables(lists: tuple[str, ...]) -> dict[str, str]:
    """The variables with which git starts ssh through the proxy. A person is not there to be asked for a password."""
    options = ["-o", 'ProxyCommand=bash -c "$LICET_SSH_TUNNEL" - %h %p', "-o", "BatchMode=yes"]
    options += ["-o", f"UserKnownHostsFile={' '.join(lists)}", "-o", "GlobalKnownHostsFile=none"] if lists else []
    return {"GIT_SSH_COMMAND": f"ssh {shlex.join(options)}", "GIT_SSH_VARIANT": "ssh", "LICET_SSH_TUNNEL": _TUNNEL}
