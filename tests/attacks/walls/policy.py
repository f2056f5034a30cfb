"""What the host trusts: its policy, its state, its own code and the code of tools."""

import os
import sysconfig
from pathlib import Path

import licet
from attacks.behind_walls import Outside, attack, exactly, holds

MORE = "max_side_effect_class: destructive"


@attack(holds("tester"))
def read_the_manifest(manifest: str) -> str:
    """A tool reads its manifest, to learn what to ask for."""
    with open(manifest, encoding="utf-8") as file:
        return file.read()


@attack(lambda _, outside: MORE in Path(outside.manifest).read_text(), needs=["fs:write:{outside.place}"])
def rewrite_the_manifest(manifest: str) -> None:
    """A tool that may write the directory of its manifest gives itself more."""
    with open(manifest, "a", encoding="utf-8") as file:
        file.write(MORE)


@attack(needs=["fs:read:{outside.place}"])
def read_the_state(state: str) -> str:
    """A tool that may read everything around the state of the host reads keys and records."""
    with open(state, encoding="utf-8") as file:
        return file.read()


@attack(lambda _, outside: Path(outside.state).read_text() == "changed", needs=["fs:write:{outside.place}"])
def write_the_state(state: str) -> None:
    """A tool that may write everything around the state of the host changes the records."""
    with open(state, "w", encoding="utf-8") as file:
        file.write("changed")


@attack(exactly("written"), rare=True)
def own_framework() -> str:
    """A tool rewrites the framework on the disk, for the next start of the host."""
    path = os.path.join(os.path.dirname(licet.__file__), f"licet-test-{os.getpid()}.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("here")
    os.unlink(path)
    return "written"


def compiled(outside: Outside) -> str:
    return os.path.join(os.path.dirname(outside.target), "__pycache__")


@attack(lambda _, outside: os.listdir(compiled(outside)), before=lambda outside: os.mkdir(compiled(outside)))
def compiled_source(target: str) -> None:
    """A tool plants compiled code for a module that somebody else will load: its source is not looked at."""
    folder = os.path.join(os.path.dirname(target), "__pycache__")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "module.cpython-311.pyc"), "wb") as file:
        file.write(b"code")


@attack(exactly("written"), rare=True)
def libraries_of_everybody() -> str:
    """A tool puts code among the libraries that every Python on this machine loads when it starts."""
    path = os.path.join(sysconfig.get_paths()["purelib"], f"licet-test-{os.getpid()}.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("here")
    os.unlink(path)
    return "written"
