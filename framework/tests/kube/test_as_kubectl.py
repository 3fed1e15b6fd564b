"""Where the official client reads a kubeconfig differently from kubectl, Gangline does what kubectl does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from gangline.errors import ConfigError
from gangline.kube.access import Access
from gangline.kube.auth import Credentials, load
from gangline.kube.client import HttpClient

from .certificates import Certificates
from .fake_api_server import FakeApiServer


def kubeconfig(path: Path, name: str = "lab", **config: Any) -> str:
    """A kubeconfig with one context, cluster and user of this name; returns its path."""
    path.parent.mkdir(exist_ok=True)
    whole = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"}}],
        "users": [{"name": name, "user": {"token": name}}],
        **config,
    }
    path.write_text(yaml.safe_dump(whole))
    return str(path)


def of(kind: str, name: str = "lab", **value: Any) -> list[dict[str, Any]]:
    """A list of clusters or users with one entry."""
    return [{"name": name, kind: value}]


@pytest.mark.parametrize("second", ["lab", ""], ids=["set", "empty"])
async def test_of_several_files_the_first_current_context_counts(tmp_path: Path, second: str) -> None:
    first = kubeconfig(tmp_path / "first", "one")
    other = kubeconfig(tmp_path / "second", **{"current-context": second})

    credentials = load(environ={"KUBECONFIG": f"{first}:{other}"})

    assert (credentials.context, credentials.server) == ("one", "https://one:6443")
    assert await credentials.authorization() == "Bearer one"


@pytest.mark.parametrize("order", [("empty", "first"), ("first", "empty")])
def test_of_several_files_one_may_be_empty(tmp_path: Path, order: tuple[str, str]) -> None:
    kubeconfig(tmp_path / "first", "one")
    (tmp_path / "empty").write_text("")

    credentials = load(environ={"KUBECONFIG": ":".join(str(tmp_path / name) for name in order)})

    assert credentials.server == "https://one:6443"


@pytest.mark.parametrize("order", [("empty", "first"), ("first", "empty")])
def test_beside_an_empty_file_a_token_that_was_renewed_is_written_to_its_own_file(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """The official client does so for users with an auth-provider."""
    from gangline.kube import sources  # loads the client of Kubernetes

    kubeconfig(tmp_path / "first", "one")
    (tmp_path / "empty").write_text("")
    files = sources._FilesInOrder(":".join(str(tmp_path / name) for name in order))
    config: Any = files.config
    config["users"].get_with_name("one")["user"].value["token"] = "new"

    files.save_changes()  # type: ignore[no-untyped-call]

    assert yaml.safe_load((tmp_path / "first").read_text())["users"] == of("user", "one", token="new")
    assert not (tmp_path / "empty").read_text()


def test_a_relative_path_begins_at_the_folder_of_the_file_that_has_the_user(
    tmp_path: Path, certificates: Certificates
) -> None:
    cluster = kubeconfig(tmp_path / "a" / "config", users=[])
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    user = kubeconfig(tmp_path / "b" / "config", users=of("user", **files), contexts=[], clusters=[])
    (tmp_path / "b" / "client.crt").write_bytes(certificates.client.read_bytes())
    (tmp_path / "b" / "client.key").write_bytes(certificates.client_key.read_bytes())

    assert load(environ={"KUBECONFIG": f"{cluster}:{user}"}).ssl_context is not None


@pytest.mark.parametrize("key", ["as", "as-uid", "as-groups", "as-user-extra"])
def test_a_user_who_is_to_be_impersonated_is_refused_and_not_passed_over(tmp_path: Path, key: str) -> None:
    path = kubeconfig(tmp_path / "config", users=[{"name": "lab", "user": {"token": "x", key: ["somebody"]}}])

    with pytest.raises(ConfigError, match=rf"users\[lab\]\.{key}: impersonation is not supported"):
        load(path, environ={})


def test_the_environment_makes_no_exception_from_the_proxy_of_a_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "lab")
    cluster = {"server": "https://lab:6443", "proxy-url": "http://proxy:3128"}
    path = kubeconfig(tmp_path / "config", clusters=of("cluster", **cluster))

    assert load(path, environ={}).proxy == "http://proxy:3128"


@pytest.mark.parametrize("more", [{}, {"insecure-skip-tls-verify": True}], ids=["plain", "official"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_no_proxy_of_the_environment_stands_before_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, more: dict[str, Any]
) -> None:
    for name in ("NO_PROXY", "no_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    path = kubeconfig(tmp_path / "config", clusters=of("cluster", server=f"https://{host}:6443", **more))

    assert load(path, environ={}).proxy is None


@pytest.mark.parametrize("more", [{}, {"insecure-skip-tls-verify": True}], ids=["plain", "official"])
@pytest.mark.parametrize(
    ("content", "sent"),
    [("\n fresh \n", "Bearer fresh"), ("", "Bearer old"), (" \n", "Bearer old"), (None, "Bearer old")],
)
async def test_a_token_in_a_file_counts_more_than_the_token_beside_it(
    tmp_path: Path, content: str | None, sent: str, more: dict[str, Any]
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    path = kubeconfig(
        tmp_path / "config",
        users=of("user", token="old", tokenFile="token"),
        clusters=of("cluster", server="https://lab:6443", **more),
    )

    assert await load(path, environ={}).authorization() == sent


async def test_a_certificate_whose_key_is_not_written_yet_leaves_the_old_pair_in_use(
    certificates: Certificates,
) -> None:
    """A rotation replaces two files, one after the other."""
    server = FakeApiServer()
    await server.start(certificates.of_server())
    server.answers("GET", "/api/v1", {"resources": [{"name": "pods"}]})
    ca, key = str(certificates.ca), str(certificates.client_key)
    whole = Access(server.url, ca_file=ca, cert_file=str(certificates.client), key_file=key, valid_for=0.0)
    readings = [whole, replace(whole, cert_file=str(certificates.server))]

    async with HttpClient(Credentials(lambda: readings.pop(0))) as client:
        assert await client.served("", "v1") == {"pods"}

    assert not readings
    await server.stop()
