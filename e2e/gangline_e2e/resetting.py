"""An API server whose connections break: it resets each connection, unless it has an answer for the request."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import yaml

from gangline_e2e.errors import WaitedTooLong

AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: a close is a reset."""
POLL_S = 0.02
NO_ANSWERS: Mapping[str, Any] = MappingProxyType({})


class ResettingServer:
    """Listens on loopback until the block ends.

    Without answers the server resets each connection as soon as it has accepted it. With answers, JSON by path, it
    resets a connection after it has read a request for any other path.
    """

    def __init__(self, answers: Mapping[str, Any] = NO_ANSWERS) -> None:
        self.resets = 0
        self._answers = answers
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._thread = threading.Thread(target=self._serve)

    def kubeconfig(self, file: Path) -> Path:
        """Write a kubeconfig that leads here; without answers over TLS, which breaks in the handshake."""
        scheme = "http" if self._answers else "https"
        server = f"{scheme}://127.0.0.1:{self._listening.getsockname()[1]}"
        cluster = {"server": server, **({} if self._answers else {"insecure-skip-tls-verify": True})}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": "none"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
        file.write_text(yaml.safe_dump(document))
        return file

    def wait_for(self, resets: int, timeout_s: float = 30.0) -> None:
        """Wait until so many connections were reset."""
        deadline = time.monotonic() + timeout_s
        while self.resets < resets:
            if time.monotonic() > deadline:
                raise WaitedTooLong(f"{self.resets} of {resets} connections were reset within {timeout_s:g} s")
            time.sleep(POLL_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):  # it is closed: the test is over
            while True:
                connection, _ = self._listening.accept()
                with connection, suppress(OSError):
                    if not self._answer(connection):
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                        self.resets += 1

    def _answer(self, connection: socket.socket) -> bool:
        if not self._answers:
            return False
        connection.settimeout(5.0)
        request = b""
        while b"\r\n\r\n" not in request:
            got = connection.recv(65536)
            if not got:
                return False
            request += got
        path = request.split()[1].decode("latin-1")
        if path.partition("?")[0] not in self._answers or "watch=true" in path:
            return False
        body = json.dumps(self._answers[path.partition("?")[0]]).encode()
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        )
        connection.sendall(head.encode() + b"\r\n" + body)
        return True
