"""Files are written as a whole or not at all, and nothing that is no regular file is replaced."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from gangline.process.whole_files import write_to, write_whole


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"text")

        assert pipe.is_fifo()
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)


def test_a_device_that_is_full_stays(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")

    with pytest.raises(OSError, match="No space left on device"):
        write_whole(link, b"text")

    assert link.is_char_device()


def test_a_symbolic_link_stays_one_and_leads_to_the_new_file(tmp_path: Path) -> None:
    file, link = tmp_path / "of-today", tmp_path / "latest"
    link.symlink_to(file)

    write_whole(link, b"text")

    assert link.is_symlink()
    assert file.read_bytes() == b"text"


def test_when_the_disk_is_full_the_file_of_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report"
    file.write_bytes(b"of before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gangline.process.whole_files.Path.replace", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_whole(file, b"text")

    assert file.read_bytes() == b"of before"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("before", "is_private", "mode"), [(None, False, 0o640), (0o604, False, 0o604), (0o644, True, 0o600)]
)
def test_who_may_read_the_file(tmp_path: Path, before: int | None, is_private: bool, mode: int) -> None:
    file = tmp_path / "file"
    if before is not None:
        file.write_bytes(b"")
        file.chmod(before)
    mask = os.umask(0o027)
    try:
        write_whole(file, b"text", is_private)
    finally:
        os.umask(mask)

    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_a_dash_is_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdout", written)

    write_to("-", b"\x1f\x8b")
    write_to("./-", b"text")

    assert written.buffer.getvalue() == b"\x1f\x8b"
    assert (tmp_path / "-").read_bytes() == b"text"
