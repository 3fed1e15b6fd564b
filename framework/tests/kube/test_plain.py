"""What is read without the official client is what the official client would have read."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.kube import plain
from gangline.kube.access import Access

PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()
ODD = st.sampled_from(["", None, 7, True, ["a"], {"a": "b"}, "a.pem", "bm8=", "é", "not base64!", " padded ", "."])
FILES = st.sampled_from(["a.pem", "./in/../a.pem", "gone.pem", "a folder", "empty"])
HERE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

certificate = {
    "client-certificate": FILES,
    "client-key": FILES,
    "client-certificate-data": st.sampled_from([PEM, "bm8=", "x"]),
    "client-key-data": st.just(PEM),
    "token": st.sampled_from(["secret", "secret\n"]),
    "tokenFile": FILES,
}
authority = {
    "certificate-authority": FILES,
    "certificate-authority-data": st.sampled_from([PEM, "x"]),
    "tls-server-name": st.just("api"),
}


def some(keys: dict[str, st.SearchStrategy[Any]], odd: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """A mapping with some of the keys, at times with one that is odd or has an odd value."""
    plainly = st.fixed_dictionaries({}, optional=keys)
    oddly = st.dictionaries(st.sampled_from([*keys, *odd]), ODD, max_size=1)
    return st.one_of(plainly, plainly, st.builds(lambda a, b: {**a, **b}, plainly, oddly), ODD)


users = some(certificate, {"username": ODD, "exec": ODD, "auth-provider": ODD, "as": ODD})
servers = st.sampled_from(["https://a:6443", "https://a/", "http://a", "a", ""])
clusters = st.builds(
    lambda server, rest: {"server": server, **rest} if isinstance(rest, dict) else rest,
    servers,
    some(authority, {"insecure-skip-tls-verify": ODD, "proxy-url": ODD, "extensions": ODD}),
)
names = st.sampled_from(["here", "here", "here", "there", "", None, 3])


def entries(kind: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A list of named values, mostly one."""
    one = st.builds(lambda name, value: {"name": name, kind: value}, names, values)
    return st.one_of(one.map(lambda entry: [entry]), st.lists(st.one_of(one, ODD), max_size=3))


contexts = st.fixed_dictionaries(
    {"cluster": names, "user": names}, optional={"namespace": st.one_of(st.just("team"), st.just("team"), ODD)}
)
kubeconfigs = st.fixed_dictionaries(
    {
        "contexts": entries("context", contexts),
        "clusters": entries("cluster", clusters),
        "users": entries("user", users),
    },
    optional={"current-context": names, "extensions": ODD},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files lie that kubeconfigs name."""
    (tmp_path / "a.pem").write_text("content\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "a folder").mkdir()
    (tmp_path / "in").mkdir()
    return tmp_path


def shown(access: Access) -> dict[str, Any]:
    """The access, with the content of files in place of the names of those that hold what the kubeconfig held."""
    values = msgspec.structs.asdict(access)
    for key in ("ca_file", "cert_file", "key_file"):
        values[key] = Path(values[key]).read_bytes() if values[key] else None
    return values


def official(path: Path, context: str | None) -> dict[str, Any] | None:
    """What the official client reads, None where it refuses to."""
    from gangline.kube import sources  # loads the official client, which takes 0.2 s

    try:
        return shown(sources.from_kubeconfig([str(path)], context))
    except ConfigError:
        return None


@HERE
@given(config=kubeconfigs, context=st.sampled_from([None, "here"]))
def test_a_kubeconfig_that_is_read_plainly_is_read_as_the_official_client_does(
    folder: Path, config: dict[str, Any], context: str | None
) -> None:
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))

    read = plain.from_kubeconfig([str(path)], context)

    if read is not None:
        assert shown(read) == official(path, context)


@HERE
@given(
    user=st.fixed_dictionaries({}, optional={**certificate, "tokenFile": st.just("a.pem")}),
    cluster=st.fixed_dictionaries({"server": st.just("https://a:6443")}, optional=authority),
)
def test_certificates_and_tokens_are_read_plainly_and_so_is_a_user_without_them(
    folder: Path, user: dict[str, str], cluster: dict[str, str]
) -> None:
    path = write(folder, user, cluster)

    read = plain.from_kubeconfig([str(path)], None)

    assert (shown(read) if read else None) == official(path, None)


def write(folder: Path, user: dict[str, str], cluster: dict[str, str]) -> Path:
    """A kubeconfig with one context, cluster and user."""
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "here", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


ADDRESSES = st.sampled_from(["10.0.0.1", "fd00::1", "fe80::1%eth0", "api", ""])
CONTENTS = st.sampled_from(["one\n", "one", "", " two ", None])


@HERE
@given(host=ADDRESSES, port=st.sampled_from(["443", "", None]), token=CONTENTS, authority=CONTENTS)
def test_a_service_account_is_read_as_the_official_client_does(
    tmp_path: Path, host: str, port: str | None, token: str | None, authority: str | None
) -> None:
    for name, content in (("token", token), ("ca.crt", authority)):
        (tmp_path / name).unlink(missing_ok=True)
        if content is not None:
            (tmp_path / name).write_text(content)
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    found = {key: value for key, value in environ.items() if value is not None}
    from gangline.kube import sources  # loads the official client, which takes 0.2 s

    try:
        expected = sources.from_service_account(tmp_path, found)
    except ConfigError:
        expected = None

    assert plain.from_service_account(tmp_path, found) == expected


PROXY = st.sampled_from(["http://proxy:3128", "proxy:3128", "", None])
RULES = [*("a", "A:6443", ".a", "b", "*", " ", "10.0.0.0/8", "10.0.0.1/8", "10.0.0.1", "10.0.0.1:6443", "fd00::/8")]
RULES += ["fd00::1", "1/x", "é", ".local", "."]
NO_PROXY = st.none() | st.lists(st.sampled_from(RULES), max_size=3).map(",".join)
PROXIES = st.fixed_dictionaries({"https_proxy": PROXY, "HTTP_PROXY": PROXY, "all_proxy": PROXY, "NO_PROXY": NO_PROXY})
HOSTS = ["a", "x.a", "a.local", "10.0.0.1", "[fd00::1]", "[fe80::1%eth0]"]
SERVERS = st.sampled_from(
    [f"{scheme}{host}:6443" for scheme in ("https://", "HTTP://") for host in HOSTS] + ["a", "x://a"]
)


@contextmanager
def environment(values: dict[str, str | None]) -> Iterator[None]:
    """The environment names these proxies, and no others."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            patch.delenv(name)
        for name, value in values.items():
            if value is not None:
                patch.setenv(name, value)
        yield


@HERE
@given(proxies=PROXIES, server=SERVERS)
def test_proxies_in_the_environment_are_read_as_the_official_client_does(
    folder: Path, proxies: dict[str, str | None], server: str
) -> None:
    path = write(folder, {"token": "secret"}, {"server": server})

    with environment(proxies):
        read = plain.from_kubeconfig([str(path)], None)

        assert read is not None and shown(read) == official(path, None)


@HERE
@given(proxies=PROXIES, host=st.sampled_from(["a", "10.0.0.1", "fd00::1", "a]", "[a", "fe80::1%eth0"]))
def test_a_service_account_behind_a_proxy_is_read_as_the_official_client_does(
    tmp_path: Path, proxies: dict[str, str | None], host: str
) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_text("-")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"}
    from gangline.kube import sources  # loads the official client, which takes 0.2 s

    with environment(proxies):
        read = plain.from_service_account(tmp_path, environ)

        assert read is None or read == sources.from_service_account(tmp_path, environ)
        assert read is not None or host in ("a]", "[a")


def test_several_kubeconfigs_are_left_to_the_official_client(folder: Path) -> None:
    path = str(write(folder, {"token": "secret"}, {"server": "https://a:6443"}))

    assert plain.from_kubeconfig([path, path], None) is None


def test_a_key_out_of_a_kubeconfig_is_readable_by_this_user_alone_and_goes_with_the_process(folder: Path) -> None:
    path = write(folder, {"client-certificate-data": PEM, "client-key-data": PEM}, {"server": "https://a:6443"})
    code = (
        "import sys; from gangline.kube import plain; read = plain.from_kubeconfig([sys.argv[1]], None); "
        "import os; print(oct(os.stat(read.key_file).st_mode), read.key_file)"
    )

    mode, name = run(code, str(path)).split()

    assert mode == "0o100600"
    assert not Path(name).exists()


@pytest.mark.parametrize("kind", ["kubeconfig", "service account"])
def test_the_official_client_is_not_imported_for_what_is_plain(folder: Path, kind: str) -> None:
    write(folder, {"token": "secret"}, {"server": "http://a"})
    (folder / "token").write_text("secret")
    (folder / "ca.crt").write_text("-")
    code = (
        "import sys; from pathlib import Path; from gangline.kube import auth; kind, folder = sys.argv[1:]; "
        "environ = {'KUBERNETES_SERVICE_HOST': 'a', 'KUBERNETES_SERVICE_PORT': '443'}; "
        "read = auth._from_kubeconfig([folder + '/config'], None) if kind == 'kubeconfig' "
        "else auth._from_service_account(Path(folder), environ); "
        "print('kubernetes' in sys.modules, read.authorization)"
    )

    assert run(code, kind, str(folder)).split()[0] == "False"


def run(code: str, *args: str) -> str:
    """What a process of its own prints, behind a proxy."""
    environ = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environ["HTTPS_PROXY"] = "http://proxy:3128"
    return subprocess.run(
        [sys.executable, "-c", code, *args], env=environ, check=True, capture_output=True, text=True
    ).stdout
