"""Every review shows that a manifest allows programs without some walls."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from licet.cli.app import licet

TEXT = """agent: a
capabilities:
  tools: {t: {sandbox: restricted, side_effect_class: read_only}}
  sandbox: {allow_degraded: %s}
tools: {t: {needs: []}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for said in ("true", "false"):
        Path(f"{said}.yaml").write_text(TEXT % said)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["check"], 0, "4:3: warning: found `allow_degraded: true`, expected false, unless"),
        (["surface"], 0, "sandbox  programs may run without namespaces"),
        (["surface", "--json"], 0, '"allow_degraded": true'),
        (["diff", "false.yaml"], 1, "+ allow_degraded: false → true"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_report_allow_degraded(words: list[str], code: int, said: str) -> None:
    ended = CliRunner().invoke(licet, [*words, "true.yaml"])
    assert (ended.exit_code, said in ended.output) == (code, True), ended.output
    assert said not in CliRunner().invoke(licet, [*words, "false.yaml"]).output


def test_taking_it_back_is_no_growth() -> None:
    assert CliRunner().invoke(licet, ["diff", "true.yaml", "false.yaml"]).exit_code == 0
