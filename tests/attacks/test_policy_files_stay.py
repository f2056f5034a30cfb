"""An agent that may write its own directory edits its own ceiling: policy files are in no write grant."""

import asyncio
from pathlib import Path

from attacks.granted import agree, both_ways, granted, refused
from licet import load_manifest
from licet.backends.files.local import LocalFiles
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Request
from licet.core.policy.tool import ToolSpec
from licet.guard.grant import Grant
from licet.guard.handles.files import ScopedFiles

MANIFEST = """\
agent: clerk
capabilities:
  tools: [t]
  max_side_effect_class: full
  budget: {max_calls_per_session: 5}
  fs_reach: {read: ["${workdir}"], write: ["${workdir}"]}
"""


@both_ways
def test_the_manifest_is_read_and_never_changed(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    policy = root / "conf" / "clerk.yaml"
    policy.parent.mkdir()
    policy.write_text(MANIFEST)

    policy.write_text(MANIFEST.replace("full", "destructive"))  # as any code of this user can
    policy.write_text(MANIFEST)

    spec = ToolSpec("t", CapabilitySet(["fs:*:*"]), "full", "restricted")
    manifest = load_manifest(policy).declare([spec]).expand(str(root), "/home/nobody")
    reach = reach_of(manifest, "t")
    assert reach is not None
    fs = ScopedFiles(Grant(Request("t"), reach, manifest.digest, (), agree), LocalFiles(openat2=openat2), str(root))

    assert asyncio.run(fs.read("conf/clerk.yaml")) == MANIFEST
    (root / "link").symlink_to("conf")
    (root / "new").write_text("x")
    for path in ("conf/clerk.yaml", "link/clerk.yaml"):
        for act in (fs.write(path, "x"), fs.open(path, "w"), fs.open(path, "a"), fs.open(path, "r+"), fs.delete(path)):
            assert refused(act) == "PATH_NOT_REACHABLE"
        assert refused(fs.rename("new", path)) == "PATH_NOT_REACHABLE"
        assert refused(fs.rename(path, "new")) == "PATH_NOT_REACHABLE"
    assert refused(fs.rename("conf", "old")) == "PATH_NOT_REACHABLE"
    assert policy.read_text() == MANIFEST
