"""A server takes new certificates while it runs, and keeps the old ones when the new ones are no good."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from gangline.errors import ConfigError
from gangline.process.certificate_files import Certificates
from gangline_e2e.certificates import Authority, Pair


class Files:
    """The pair that the server reads, as it changes; ``authority`` signs all of them."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "pki", "authority")
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self._made = 0
        self.put(self.new())

    def new(self) -> Pair:
        """A pair that no file holds yet."""
        self._made += 1
        return self.authority.server(f"server-{self._made}")

    def put(self, pair: Pair) -> None:
        """Both files hold this pair now."""
        shutil.copy(pair.certificate, self.certificate)
        shutil.copy(pair.key, self.key)


class Served:
    """A TLS server on the context of ``certificates``."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.certificates = Certificates(files.certificate, files.key)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        context = self.certificates.context
        self._server = await asyncio.start_server(self._echo, "127.0.0.1", 0, ssl=context)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._server is not None
        context = ssl.create_default_context(cafile=self.files.authority.certificate)
        return await asyncio.open_connection(*self._server.sockets[0].getsockname(), ssl=context)

    async def shown(self) -> bytes:
        """The certificate that a new connection is shown, as DER."""
        _, writer = await self.connect()
        try:
            return peer(writer)
        finally:
            writer.close()
            await writer.wait_closed()

    async def until_shown(self, pair: Pair) -> None:
        """Connect again and again until the server shows this pair."""
        while True:
            if await self.shown() == der(pair):
                return
            await asyncio.sleep(0.05)

    @staticmethod
    async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()


def peer(writer: asyncio.StreamWriter) -> bytes:
    tls = writer.get_extra_info("ssl_object")
    found = tls.getpeercert(binary_form=True)
    assert isinstance(found, bytes)
    return found


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(Files(tmp_path))
    await made.start()
    yield made
    await made.stop()


async def test_new_connections_are_shown_the_new_certificate_and_open_ones_go_on(served: Served) -> None:
    reader, writer = await served.connect()
    new = served.files.new()
    served.files.put(new)

    assert served.certificates.look()
    assert await served.shown() == der(new)
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    writer.close()
    await writer.wait_closed()


async def test_files_that_have_not_changed_are_not_taken_again(served: Served) -> None:
    assert not served.certificates.look()


@pytest.mark.parametrize("half", ["certificate", "key"])
async def test_half_a_change_is_not_taken_and_the_whole_one_is(
    served: Served, half: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = await served.shown()
    new = served.files.new()
    shutil.copy(getattr(new, half), getattr(served.files, half))

    assert not served.certificates.look()
    assert not served.certificates.look()
    assert await served.shown() == before
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "the old one stays" in caplog.text

    served.files.put(new)
    assert served.certificates.look()
    assert await served.shown() == der(new)


@pytest.mark.parametrize("text", [b"", b"nonsense", None], ids=["empty", "nonsense", "gone"])
async def test_a_file_that_is_no_certificate_leaves_the_old_one(served: Served, text: bytes | None) -> None:
    before = await served.shown()
    if text is None:
        served.files.certificate.unlink()
    else:
        served.files.certificate.write_bytes(text)

    assert not served.certificates.look()
    assert await served.shown() == before


async def test_the_files_are_looked_at_again_and_again(served: Served) -> None:
    new = served.files.new()
    served.files.put(new)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        looking = group.create_task(served.certificates.run())
        await served.until_shown(new)
        looking.cancel()


def test_without_a_file_it_does_not_start_and_says_which(tmp_path: Path) -> None:
    files = Files(tmp_path)

    with pytest.raises(ConfigError, match=r"/none\.crt: No such file or directory$"):
        Certificates(tmp_path / "none.crt", files.key)


def test_with_another_certificates_key_it_does_not_start(tmp_path: Path) -> None:
    files = Files(tmp_path)

    with pytest.raises(ConfigError, match="no usable pair"):
        Certificates(files.certificate, files.new().key)


def test_an_encrypted_key_is_an_error_and_nobody_is_asked_for_a_password(tmp_path: Path) -> None:
    files = Files(tmp_path)
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))

    with pytest.raises(ConfigError, match="no usable pair"):
        Certificates(files.certificate, files.key)
