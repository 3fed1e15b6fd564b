"""Programs of a kubeconfig that print credentials (`users[].user.exec`), run as the official client runs them.

Where nobody sits at a terminal, such a program has a deadline: without one a program that hangs would hold all requests
that need new credentials, and the end of this process, too.
"""

# mypy: allow-untyped-calls
# The official client is not annotated.

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from kubernetes.config import ConfigException
from kubernetes.config.exec_provider import ExecProvider

DEADLINE = 60.0
"""Seconds that a program may take; somebody at a terminal may take longer, for example to log in."""
_EXTENSION = "client.authentication.k8s.io/exec"


class ExecPlugin(ExecProvider):
    """One such program."""

    def run(self, previous_response: Any = None) -> dict[str, Any]:
        """The status that the program prints. Raises ConfigException and OSError."""
        if _is_attended():
            attended: dict[str, Any] = super().run(previous_response)
            return attended
        self.env["KUBERNETES_EXEC_INFO"] = json.dumps(self._asked())
        code, output, errors = _ran(self.args, self.cwd, self.env)
        if code:
            raise ConfigException(f"exec: process returned {code}. {errors.strip()}".removesuffix(". "))
        try:
            data = json.loads(output)
        except ValueError as error:
            raise ConfigException(f"exec: failed to decode process output: {error}") from error
        for key in ("apiVersion", "kind", "status"):
            if key not in data:
                raise ConfigException(f"exec: malformed response. missing key '{key}'")
        if data["apiVersion"] != self.api_version:
            raise ConfigException(f"exec: plugin api version {data['apiVersion']} does not match {self.api_version}")
        status: dict[str, Any] = data["status"]
        return status

    def _asked(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster:
            spec["cluster"] = cluster = self.cluster.value
            extensions = cluster.get("extensions") or ()
            config = [each["extension"] for each in extensions if each["name"] == _EXTENSION]
            if config:
                cluster["config"] = config[0]
        return {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}


def _is_attended() -> bool:
    """Whether somebody may answer a question of the program."""
    return any([stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)])


def _ran(command: list[str], folder: str | None, environ: dict[str, str]) -> tuple[int, str, str]:
    """The exit code, the output and the errors of a program. Raises ConfigException if the program takes too long."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, cwd=folder, env=environ, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the programs that it has started
            raise ConfigException(f"exec: no answer within {DEADLINE:g} s") from None
    return process.returncode, output, errors
