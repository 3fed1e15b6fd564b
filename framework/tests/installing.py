"""Distributions for tests, written into a folder as an installer does."""

from __future__ import annotations

from pathlib import Path

from gangline.profile.registry import GROUP


def install(
    folder: Path, distribution: str, entries: dict[str, str], modules: dict[str, str], group: str = GROUP
) -> None:
    """Write an installed distribution into a folder."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
