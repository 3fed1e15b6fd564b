"""A command that fails names the file and the place, on one line, whatever the file says."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from gangline import main
from gangline.errors import ConfigError

from ..invoking import invoked


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("pod: {metadata: {name: p}, spec: {containers: 7}}", "pod.spec.containers: Expected `array`, got `int`"),
        ("pod: [1]", "pod: Expected `object`, got `array`"),
        ("nodes: 1\npod: {metadata: {name: p}}", "nodes: Expected `array`, got `int`"),
        (
            "pod: {metadata: {name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: much}}}]}}",
            "spec.containers[0].resources.requests[cpu]: 'much': not a quantity",
        ),
    ],
)
def test_a_case_with_an_object_that_cannot_be_used_is_named_with_the_place(tmp_path: Path, case: str, why: str) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(case)

    with pytest.raises(ConfigError) as caught:
        invoked("explain", "-f", file)

    assert str(caught.value).startswith(f"{file}: {why}")


def test_a_failure_is_one_line_whatever_the_file_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.gz"
    file.write_bytes(gzip.compress(b'{"apiVersion": "v9\\nand more", "kind": "A\\u2028B"}'))

    monkeypatch.setattr(sys, "argv", ["gangline", "whatif", "--gang", "1x1", "--snapshot", str(file)])

    with pytest.raises(SystemExit) as ended:
        main.main()

    err = capsys.readouterr().err
    assert ended.value.code == 1 and len(err.splitlines()) == 1
    assert "is a A\\u2028B of v9\\nand more, and this program reads" in err
