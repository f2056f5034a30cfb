"""Small wheels: written, and installed as installers do it."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """Write a wheel with some files."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},{record_hash(text.encode())},{len(text.encode())}" for path, text in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return place


def install(built: Path, site: Path, installer: str = "pip") -> Path:
    """Unpack a wheel, with what an installer adds; return the `.dist-info` directory."""
    with zipfile.ZipFile(built) as archive:
        archive.extractall(site)
    info = site / f"{'-'.join(built.name.split('-')[:2])}.dist-info"
    (info / "INSTALLER").write_text(f"{installer}\n")
    (info / "REQUESTED").write_text("")
    (info / "direct_url.json").write_text(f'{{"url": "file:///{installer}"}}')
    added = [f"{info.name}/INSTALLER,,", f"{info.name}/REQUESTED,,", f"{info.name}/direct_url.json,,"]
    added += [f"../../../bin/{installer}-script,sha256=abc,3", "pkg/__pycache__/gone.cpython-311.pyc,,"]
    record = (info / "RECORD").read_text().splitlines()
    (info / "RECORD").write_text("\n".join([*added, *reversed(record), ""]))
    return info


def record_hash(data: bytes) -> str:
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')}"
