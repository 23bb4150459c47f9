"""The statistical evidence on little data: our noise passes, and the tests can see that the bad derivations do not."""

import re
import subprocess
import sys

import pytest
from support import ROOT

pytest.importorskip("scipy", reason="the evidence needs scipy: pip install -r evidence/requirements.txt")
pytest.importorskip("matplotlib", reason="the evidence needs matplotlib: pip install -r evidence/requirements.txt")


def test_quick_evidence(tmp_path):
    command = [sys.executable, ROOT / "evidence/noise_quality.py", "--quick", "--out", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    verdicts = dict(re.findall(r"^(.+): (passes|fails) \(", result.stdout, flags=re.MULTILINE))
    assert verdicts == {
        "derive_chunk_seed": "passes",
        "one torch.randn": "passes",
        "seed + chunk_index": "fails",
        "same seed": "fails",
    }, result.stdout + result.stderr
    assert result.returncode == 0
    report = (tmp_path / "statistics.md").read_text()
    assert all(word in report for word in ("Kolmogorov-Smirnov", "Anderson-Darling", "periodicity", "Holm"))
    pictures = re.findall(r"\((images/.+?)\)", report)
    assert len(pictures) == 5
    assert all((tmp_path / name).stat().st_size < 150_000 for name in pictures)
