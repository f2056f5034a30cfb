"""What a program can do through a unix socket of the host, in words: be root, use keys, see the screen.

The words are for reviewers, and decide nothing: a socket is granted by its exact path, whatever its name. They go by
the components of that path, so a socket that is named otherwise is called `UNKNOWN`.
"""

from typing import Final, Literal

Power = Literal[
    "root on this machine",
    "commands as you, outside of the walls",
    "use of your keys",
    "your screen and keyboard",
    "what the program behind it does for you",
]
ROOT: Final[Power] = "root on this machine"
COMMANDS: Final[Power] = "commands as you, outside of the walls"
KEYS: Final[Power] = "use of your keys"
SCREEN: Final[Power] = "your screen and keyboard"
UNKNOWN: Final[Power] = "what the program behind it does for you"

# How components of the path begin, the most powerful first.
_BEGINNINGS: tuple[tuple[Power, tuple[str, ...]], ...] = (
    # The service managers and buses of a person are in /run/user, and are told apart below.
    (ROOT, ("docker", "podman", "containerd", "crio", "buildkit", "libvirt", "snapd", "lxd", "incus", "system_bus")),
    (ROOT, ("systemd", "dbus", "dockershim", "nix-daemon", "daemon-socket", "packagekit", "udev")),
    (COMMANDS, ("bus", "tmux-", "screens", "S-", "emacs", "nvim", "vscode-", "code-", "kitty", "ssh-mux", "cm-")),
    (
        KEYS,
        ("S.gpg-agent", "S.scdaemon", "S.keyboxd", "S.dirmngr", "gnupg", "ssh-", "agent.", "keyring", "gcr", "pcscd"),
    ),
    (SCREEN, (".X11-unix", "wayland-", "pipewire", "sway", "i3", "hypr", "pulse")),
)
_OF_A_PERSON = "/run/user/"


def socket_power(path: str) -> Power:
    """What the program behind a socket lets its clients do, as far as the path tells."""
    components = path.split("/")
    for power, beginnings in _BEGINNINGS:
        if any(component.startswith(beginnings) for component in components):
            # A container engine or service manager of a person runs commands as that person.
            return COMMANDS if power == ROOT and path.startswith(_OF_A_PERSON) else power
    return UNKNOWN
