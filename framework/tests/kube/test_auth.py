"""Credentials from every source that kubectl knows, and what broken ones say."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.errors import ConfigError, Unavailable
from gangline.kube.access import Access
from gangline.kube.auth import Credentials, load
from gangline.kube.client import HttpClient

from .certificates import Certificates
from .fake_api_server import FakeApiServer

SERVER = "https://127.0.0.1:6443"
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a kubeconfig with one context, cluster and user; returns its path."""

    def written(user: dict[str, Any], cluster: dict[str, Any] | None = None, name: str = "config") -> str:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "lab", "user": "me"}}],
            "clusters": [{"name": "lab", "cluster": {"server": SERVER, **(cluster or {})}}],
            "users": [{"name": "me", "user": user}],
        }
        path = tmp_path / name
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return written


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    """A user whose credentials come from a shell script."""
    path = tmp_path / "plugin.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh"}}


def credential(**status: str) -> str:
    """A shell command that prints what an exec plugin has to print."""
    inside = ", ".join(f'"{key}": "{value}"' for key, value in status.items())
    api = "client.authentication.k8s.io/v1"
    return f"""echo '{{"apiVersion": "{api}", "kind": "ExecCredential", "status": {{{inside}}}}}'"""


async def test_a_token_is_sent_as_a_bearer(write: Write) -> None:
    credentials = load(write({"token": "secret"}), environ={})

    assert credentials.server == SERVER
    assert await credentials.authorization() == "Bearer secret"


async def test_a_token_file_is_read_without_its_last_newline(write: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")

    credentials = load(write({"tokenFile": "token"}), environ={})

    assert await credentials.authorization() == "Bearer secret"


async def test_a_password_is_sent_as_basic(write: Write) -> None:
    credentials = load(write({"username": "me", "password": "secret"}), environ={})

    expected = base64.b64encode(b"me:secret").decode()
    assert await credentials.authorization() == f"Basic {expected}"


async def test_an_exec_plugin_gives_the_token(write: Write, tmp_path: Path) -> None:
    user = plugin(tmp_path, credential(token="from-plugin"))

    credentials = load(write(user), environ={})

    assert await credentials.authorization() == "Bearer from-plugin"


async def test_an_exec_plugin_runs_again_before_its_token_ends(write: Write, tmp_path: Path) -> None:
    end = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    count = f'echo x >> {tmp_path}/runs; n=$(wc -l < {tmp_path}/runs | tr -d " ")\n'
    script = credential(token="TOKEN", expirationTimestamp=end).replace("TOKEN", "'$n'")
    path = write(plugin(tmp_path, count + script))
    now = 0.0
    from gangline.kube import sources  # loads the client of Kubernetes, which takes 0.2 s

    credentials = Credentials(lambda: sources.from_kubeconfig([path], None), clock=lambda: now)
    first = await credentials.authorization()
    now = 3500.0
    unchanged = await credentials.authorization()
    now = 3595.0
    second = await credentials.authorization()

    assert (first, unchanged, second) == ("Bearer 1", "Bearer 1", "Bearer 2")


async def test_old_credentials_stay_in_use_when_new_ones_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = iter([Access("http://x", authorization="Bearer 1", valid_for=60.0)])
    now = 0.0

    def read() -> Access:
        for access in answers:
            return access
        raise ConfigError("config", "", "no such file")

    credentials = Credentials(read, clock=lambda: now)
    now = 61.0

    assert await credentials.authorization() == "Bearer 1"
    assert "config: no such file" in caplog.text


async def test_credentials_are_not_read_again_for_every_refusal() -> None:
    reads: list[int] = []

    def read() -> Access:
        reads.append(1)
        return Access("http://x", authorization=f"Bearer {len(reads)}")

    now = 0.0
    credentials = Credentials(read, clock=lambda: now)
    now = 11.0

    assert await credentials.renewed("Bearer 1") == "Bearer 2"
    assert await credentials.renewed("Bearer 1") == "Bearer 2"
    assert await credentials.renewed("Bearer 2") is None
    assert len(reads) == 2


async def test_kubeconfigs_of_the_environment_are_merged(write: Write, tmp_path: Path) -> None:
    first = write({"token": "first"}, name="first")
    second = write({"token": "second"}, name="second")
    missing = str(tmp_path / "missing")

    credentials = load(environ={"KUBECONFIG": f"{missing}:{first}:{second}"})

    assert await credentials.authorization() == "Bearer first"


async def test_the_home_folder_comes_before_the_service_account(write: Write, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write({"token": "home"}, name=".kube/config")
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}

    assert await load(environ=environ).authorization() == "Bearer home"


async def test_a_pod_uses_its_service_account_and_follows_its_token(tmp_path: Path, certificates: Certificates) -> None:
    (tmp_path / "ca.crt").write_bytes(certificates.ca.read_bytes())
    (tmp_path / "token").write_text("one\n")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    environ["HOME"] = str(tmp_path)
    now = 0.0
    from gangline.kube import sources  # loads the client of Kubernetes, which takes 0.2 s

    credentials = Credentials(lambda: sources.from_service_account(tmp_path, environ), clock=lambda: now)
    one = await credentials.authorization()
    (tmp_path / "token").write_text("two\n")
    now = 61.0
    two = await credentials.authorization()

    assert load(environ=environ, service_account=tmp_path).server == "https://[fd00::1]:443"
    assert (one, two) == ("bearer one", "bearer two")


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("form", ["files", "data", "plugin", "insecure"])
async def test_a_client_certificate_opens_the_connection(
    tls_server: FakeApiServer,
    certificates: Certificates,
    write: Write,
    tmp_path: Path,
    form: str,
) -> None:
    crt, key, ca = certificates.client, certificates.client_key, certificates.ca
    user: dict[str, Any] = {"client-certificate": str(crt), "client-key": str(key)}
    cluster: dict[str, Any] = {"server": tls_server.url, "certificate-authority": str(ca)}
    if form == "data":
        user = {"client-certificate-data": data(crt), "client-key-data": data(key)}
        cluster = {"server": tls_server.url, "certificate-authority-data": data(ca)}
    if form == "plugin":
        texts = {"Certificate": crt, "Key": key}
        lines = {n: p.read_text().replace("\n", "\\n") for n, p in texts.items()}
        status = {f"client{name}Data": text for name, text in lines.items()}
        user = plugin(tmp_path, credential(**status).replace("echo", "printf %s", 1))
    if form == "insecure":
        cluster = {"server": tls_server.url, "insecure-skip-tls-verify": True}

    async with HttpClient(load(write(user, cluster), environ={})) as client:
        assert await client.served("", "v1") == {"pods"}


async def test_a_server_of_another_authority_is_refused(tls_server: FakeApiServer, write: Write) -> None:
    credentials = load(write({"token": "x"}, {"server": tls_server.url}), environ={})

    async with HttpClient(credentials) as client:
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await client.bind("default", "a", "", "n", {})


@pytest.mark.parametrize("insecure", [False, True])
def test_without_an_authority_those_of_the_system_are_read_unless_nobody_asks_them(
    certificates: Certificates, write: Write, monkeypatch: pytest.MonkeyPatch, insecure: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    path = write({"token": "x"}, {"server": "https://api", "insecure-skip-tls-verify": insecure})

    context = load(path, environ={}).ssl_context

    assert context is not None and len(context.get_ca_certs()) == (0 if insecure else 1)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "nothing"), environ={})

    assert str(caught.value) == f"{tmp_path}/nothing: no such file"


def test_a_missing_file_of_the_environment_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/b"})

    assert str(caught.value) == f"{tmp_path}/a:{tmp_path}/b: no such file (from $KUBECONFIG)"


def test_without_any_source_the_error_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"HOME": str(tmp_path)})

    assert str(caught.value) == (
        f"{tmp_path}/.kube/config: no such file, $KUBECONFIG is not set, and this is not a pod"
    )


def test_a_missing_context_is_named_with_those_that_exist(write: Write) -> None:
    path = write({"token": "x"})

    with pytest.raises(ConfigError) as caught:
        load(path, "prod", environ={})

    assert str(caught.value) == f"{path}: contexts[prod]: no such context; there are: here"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("a: [", "bad YAML: while parsing a flow node", id="bad YAML"),
        pytest.param("a: " + "[" * 1_000, "nested too deeply", id="too deep"),
        pytest.param("", "{path} file is empty", id="empty"),
        pytest.param("just text", "this is not a kubeconfig", id="not a mapping"),
        pytest.param("contexts: []", "current-context: is not set, and no context was named", id="no context"),
    ],
)
def test_a_broken_kubeconfig_says_what_is_wrong(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(str(path), environ={})

    assert str(caught.value).startswith(f"{path}: ")
    assert why.format(path=path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param(
            "echo no network >&2; exit 3",
            "users[me].exec: exec: process returned 3. no network",
            id="fails",
        ),
        pytest.param(
            "echo hello",
            "users[me].exec: exec: failed to decode process output: Expecting value: line 1 column 1 (char 0)",
            id="prints something else",
        ),
        pytest.param(
            credential(),
            "users[me].exec: the plugin gave neither a token nor a certificate",
            id="prints nothing of use",
        ),
        pytest.param(
            credential(token="x", expirationTimestamp="soon"),
            "users[me].exec: expirationTimestamp: Invalid isoformat string: 'soon'",
            id="prints a bad time",
        ),
    ],
)
def test_a_failing_exec_plugin_says_why(write: Write, tmp_path: Path, script: str, why: str) -> None:
    path = write(plugin(tmp_path, script))

    with pytest.raises(ConfigError) as caught:
        load(path, environ={})

    assert str(caught.value) == f"{path}: {why}"


def test_an_exec_plugin_that_does_not_exist_is_named(write: Write) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-tool"}}
    path = write(user)

    with pytest.raises(ConfigError) as caught:
        load(path, environ={})

    assert str(caught.value) == f"{path}: users[me].exec.command: no-such-tool: No such file or directory"


@pytest.mark.parametrize(
    ("user", "cluster", "why"),
    [
        pytest.param(
            {"client-certificate": "gone.crt", "client-key": "gone.key"},
            {},
            "File does not exist: {folder}/gone.crt",
            id="missing certificate",
        ),
        pytest.param(
            {"client-certificate-data": "bm8=", "client-key-data": "bm8="},
            {},
            "client-certificate and client-key: cannot be used: ",
            id="certificate is no PEM",
        ),
        pytest.param(
            {"token": "x"},
            {"certificate-authority-data": "bm8="},
            "certificate-authority: cannot be used: ",
            id="authority is no PEM",
        ),
        pytest.param(
            {"token": "x"},
            {"certificate-authority-data": "x"},
            "a value that should be base64 is not: ",
            id="authority is no base64",
        ),
    ],
)
def test_an_unusable_certificate_is_named(
    write: Write, tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], why: str
) -> None:
    path = write(user, cluster)

    with pytest.raises(ConfigError) as caught:
        load(path, environ={})

    assert str(caught.value).startswith(f"{path}: {why.format(folder=tmp_path)}")


@pytest.mark.parametrize("missing", ["authority", "client"])
def test_a_certificate_whose_file_is_gone_is_named(write: Write, tmp_path: Path, missing: str) -> None:
    gone = tmp_path / "gone.pem"
    is_authority = missing == "authority"
    user = {"token": "x"} if is_authority else {"client-certificate": str(gone), "client-key": str(gone)}
    path = write(user, {"certificate-authority": str(gone)} if is_authority else {})

    with pytest.raises(ConfigError, match=f"{gone}: No such file or directory|File does not exist: {gone}"):
        load(path, environ={})
