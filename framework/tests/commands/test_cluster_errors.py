"""A cluster that cannot be read: one line that names context and server and says what to do, and an exit code."""

from __future__ import annotations

import asyncio
import io
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangline import main
from gangline.certificates import issue
from gangline.commands.options import Connection
from gangline.commands.reaching import reached
from gangline.errors import ClusterError
from gangline_e2e.forked_programs import Forking

from .cluster_over_http import ClusterOverHttp

READING = [
    ("status",),
    ("topology",),
    ("explain", "p"),
    ("explain", "-A", "-l", "a=b"),
    ("whatif", "--gang", "2x1"),
    ("whatif", "--drain", "a"),
    ("snapshot", "save", "/nowhere/cluster.gz"),
    ("simulate", "--from-cluster", "--drain", "a"),
    ("defrag", "plan"),
    ("defrag", "apply", "--yes"),
]
CERTS = ("certs", "ensure", "--namespace", "gpu", "--service", "hook", "--secret", "s")
ASKING = [*READING, ("version",), CERTS]
"""With the commands that ask, and show nothing of the cluster."""
COMPONENTS = [("run",), ("agent", "--node-name", "a", "--simulate", "dgx-h100")]
NOWHERE = "http://127.0.0.1:9"
SEEING = ("ui", "--no-browser")


def ended(*words: str) -> tuple[int, str]:
    """The exit code of the program, and what it writes to standard error."""
    errors = io.StringIO()
    with redirect_stderr(errors), redirect_stdout(io.StringIO()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gangline", *words])
        try:
            main.main()
        except SystemExit as end:
            return int(end.code or 0), errors.getvalue()
        return 0, errors.getvalue()


async def of(lab: ClusterOverHttp, *words: str) -> tuple[int, str]:
    """The end of a command that reads the cluster; what it says is one line without a traceback."""
    code, said = await asyncio.to_thread(ended, *words, "--kubeconfig", str(lab.kubeconfig))
    assert said.count("\n") == 1 and "Traceback" not in said, said
    return code, said


async def of_program(forking: Forking, lab: ClusterOverHttp, *words: str) -> tuple[int, str]:
    """As `of`, for a command that needs a process of its own, or whose log counts."""
    environment = {**os.environ, "KUBECONFIG": str(lab.kubeconfig)}
    done = await asyncio.to_thread(forking.run, words, environment)
    assert (done.stdout, done.stderr.count(b"\n")) == (b"", 1), done.stderr
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
async def test_a_server_that_does_not_answer(lab: ClusterOverHttp, words: tuple[str, ...]) -> None:
    lab.write_kubeconfig(server=NOWHERE)

    code, said = await of(lab, *words)

    assert code == 4
    assert said.startswith(f"gangline: context lab ({NOWHERE}): no API server answers: Connection refused; ")
    assert "choose another context with --context" in said


@pytest.mark.parametrize(
    "server", ["https://127.0.0.1:99999", "https://127.0.0.1:port", "https://[::1", "127.0.0.1:6443", "https://"]
)
async def test_an_address_that_is_none_is_named_in_one_line_by_the_program_itself(
    forking: Forking, lab: ClusterOverHttp, server: str
) -> None:
    lab.write_kubeconfig(server=server)

    code, said = await of_program(forking, lab, "status")

    assert code == 4 and f"{lab.kubeconfig}: " in said and "--context" in said


async def test_a_server_whose_name_is_unknown(lab: ClusterOverHttp) -> None:
    lab.write_kubeconfig(server="http://no-such-name.invalid")

    code, said = await of(lab, "status")

    assert code == 4 and "context lab (http://no-such-name.invalid): no API server answers: " in said


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
async def test_a_context_that_the_kubeconfig_does_not_have(lab: ClusterOverHttp, words: tuple[str, ...]) -> None:
    code, said = await of(lab, *words, "--context", "prod")

    assert code == 4
    assert said.startswith("gangline: context prod: ") and "no such context; there are: lab" in said
    assert str(lab.kubeconfig) in said


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
async def test_no_kubeconfig_at_all(words: tuple[str, ...], tmp_path: Path) -> None:
    kubeconfig = str(tmp_path / "missing")

    code, said = await asyncio.to_thread(ended, *words, "--kubeconfig", kubeconfig)

    assert code == 4 and said.splitlines()[-1].startswith(f"gangline: no API server is known: {kubeconfig}: ")
    assert "no such file; name a kubeconfig with --kubeconfig or $KUBECONFIG" in said


@pytest.mark.parametrize("words", [SEEING, *COMPONENTS], ids=" ".join)
async def test_a_process_that_would_go_on_ends_without_a_kubeconfig(
    forking: Forking, lab: ClusterOverHttp, words: tuple[str, ...]
) -> None:
    lab.kubeconfig.unlink()

    code, said = await of_program(forking, lab, *words)

    assert code == 4 and said.startswith(f"gangline: no API server is known: {lab.kubeconfig}: no such file (from $KUB")


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
async def test_credentials_that_the_server_does_not_accept(lab: ClusterOverHttp, words: tuple[str, ...]) -> None:
    for path in ("/version", "/api/v1/namespaces/gpu/secrets/s"):
        lab.refused[path] = 401, "Unauthorized"

    code, said = await of(lab, *words)

    assert code == 4 and "context lab" in said and lab.url in said and "does not accept these credentials" in said


async def test_the_certificates_may_not_be_read(lab: ClusterOverHttp) -> None:
    lab.refused["/api/v1/namespaces/gpu/secrets/s"] = 403, "secrets is forbidden"

    code, said = await of(lab, *CERTS)

    assert code == 5 and f"context lab ({lab.url}): secrets is forbidden; ask for the right" in said


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
async def test_a_certificate_that_is_not_trusted(lab: ClusterOverHttp, words: tuple[str, ...], untrusted: str) -> None:
    lab.write_kubeconfig(server=untrusted)

    code, said = await of(lab, *words)

    assert code == 4
    assert f"context lab ({untrusted}): the certificate of the API server is not trusted: " in said
    assert "correct certificate-authority in the kubeconfig, or choose another context" in said


@pytest.fixture
async def untrusted(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a server whose certificate nobody knows."""
    for name, content in issue(["localhost"], datetime.now(UTC), timedelta(days=1)).data.items():
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}"


async def test_a_server_that_takes_the_connection_and_says_nothing(lab: ClusterOverHttp) -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as silent:
        lab.write_kubeconfig(server=f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}")

        with pytest.raises(
            ClusterError, match=r"context lab \(http.*no API server answers: .*no answer in time; check"
        ):
            async with reached(Connection(str(lab.kubeconfig)), patience=0.1):
                raise AssertionError("it has answered")


@pytest.mark.parametrize("words", READING, ids=" ".join)
async def test_what_the_user_may_not_read(lab: ClusterOverHttp, words: tuple[str, ...]) -> None:
    lab.refused["/api/v1/nodes"] = 403, 'nodes is forbidden: User "me" cannot list resource "nodes"'

    code, said = await of(lab, *words)

    assert code == 5
    assert f'context lab ({lab.url}): nodes is forbidden: User "me" cannot list resource "nodes"; ask for' in said
    assert "kubectl auth can-i --list" in said


async def test_all_rights_that_are_missing_are_named_at_once(lab: ClusterOverHttp) -> None:
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/services", "/apis/batch/v1/jobs"):
        plural = path.rpartition("/")[2]
        lab.refused[path] = 403, f'{plural} is forbidden: User "me" cannot list resource "{plural}"'

    for words in READING:
        code, said = await of(lab, *words)

        assert code == 5, words
        for plural in ("nodes", "pods", "services", "jobs"):
            assert said.count(f'cannot list resource "{plural}"') == 1, words


async def test_missing_rights_of_one_kind_are_one_sentence(lab: ClusterOverHttp) -> None:
    user = "system:serviceaccount:default:few"
    for path, group in (("/api/v1/nodes", ""), ("/api/v1/pods", ""), ("/apis/batch/v1/jobs", "batch")):
        plural = path.rpartition("/")[2]
        full = f"{plural}.{group}" if group else plural
        lab.refused[path] = (
            403,
            f'{full} is forbidden: User "{user}" cannot list resource "{plural}"'
            f' in API group "{group}" at the cluster scope',
        )

    code, said = await of(lab, "status")

    refused = f'User "{user}" cannot list at the cluster scope: jobs.batch, pods, nodes'
    assert code == 5 and said.startswith(f"gangline: context lab ({lab.url}): {refused}; ask for")


async def test_a_scheduler_that_refuses_or_does_not_answer_has_the_exit_code_of_the_reason(
    forking: Forking,
    lab: ClusterOverHttp,
) -> None:
    for status, code in ((403, 5), (401, 4), (500, 1)):
        lab.refused["/configz"] = status, "no"

        found, said = await of(lab, "status", "--scheduler", lab.url)

        assert found == code and said.startswith(f"gangline: context lab: {lab.url}/") and f"answers {status}" in said

    for status in (404, 200):
        lab.refused["/configz"] = status, "no"
        code, said = await of(lab, "status", "--scheduler", lab.url)
        assert code == 1 and "something answers there that is no scheduler; correct the address of --scheduler" in said
    assert (await of(lab, "status", "--scheduler", NOWHERE))[0] == 4
    assert (await of_program(forking, lab, *SEEING, "--scheduler", "https://127.0.0.1:9"))[0] == 4


async def test_the_page_needs_the_right_to_list_the_pods_of_the_scheduler(
    forking: Forking, lab: ClusterOverHttp
) -> None:
    lab.refused["/api/v1/pods"] = 403, 'pods is forbidden: User "me" cannot list resource "pods"'

    code, said = await of_program(forking, lab, *SEEING)

    assert code == 5 and "--scheduler URL says where the scheduler answers; ask for the right" in said


async def test_a_page_without_a_scheduler_names_the_cluster_that_has_none(
    forking: Forking, lab: ClusterOverHttp
) -> None:
    code, said = await of_program(forking, lab, *SEEING)

    assert code == 1 and said.startswith(f"gangline: context lab ({lab.url}): no running pod has the labels ")


async def test_a_version_that_could_not_be_asked_for_is_only_not_known(lab: ClusterOverHttp) -> None:
    assert "Scheduler Version: not known: no scheduler of the chart was found\n" in await lab.said("version")
    lab.write_kubeconfig(server=NOWHERE)

    assert (await lab.run("version")).stdout.endswith("Scheduler Version: not known\n")


async def test_a_scheduler_that_may_not_be_seen_is_not_said_to_be_missing(lab: ClusterOverHttp) -> None:
    lab.refused["/api/v1/configmaps"] = 403, "configmaps is forbidden"

    assert (await lab.said("version")).endswith("not known: its ConfigMap cannot be read: configmaps is forbidden\n")


async def test_who_may_not_read_the_version_is_told_the_rest(lab: ClusterOverHttp) -> None:
    lab.refused["/version"] = 403, "forbidden"
    lab.add_nodes("a")

    assert "0 of 8 GPUs" in await lab.said("status")


async def test_a_server_that_is_no_api_server(lab: ClusterOverHttp) -> None:
    lab.write_kubeconfig(server=f"{lab.url}/elsewhere")

    code, said = await of(lab, "status")

    assert code == 4 and "something answers there that is no API server" in said


async def test_a_server_in_trouble(lab: ClusterOverHttp) -> None:
    lab.refused["/version"] = 503, "etcd is away"

    code, said = await of(lab, "status")

    assert code == 4 and "the API server answers 503 Refused: etcd is away; try again" in said


@pytest.mark.parametrize("name", ["p", "job/p", "podgroup/p"])
async def test_a_pod_that_is_not_there(lab: ClusterOverHttp, name: str) -> None:
    lab.add_nodes("a")

    code, said = await of(lab, "explain", name)

    assert code == 1
    assert f"context lab ({lab.url}): " in said and "default/p: " in said
    assert "-n names another namespace" in said


async def test_a_node_that_is_not_there(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a")
    lab.add_pod("p", gpus=1)

    code, said = await of(lab, "explain", "p", "--why-not", "b")

    assert code == 1 and f"context lab ({lab.url}): there is no node 'b'; the nodes are a" in said


async def test_a_gang_that_is_not_there(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a")

    code, said = await of(lab, "defrag", "plan", "--group", "train")

    assert code == 1 and "there is no gang default/train" in said


@pytest.mark.parametrize("words", READING[:2], ids=" ".join)
async def test_a_cluster_without_nodes(lab: ClusterOverHttp, words: tuple[str, ...]) -> None:
    code, said = await of(lab, *words)

    assert code == 0
    assert (
        said
        == f"context lab ({lab.url}): the cluster has no nodes; add nodes, or choose another context with --context\n"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("status",), f"context lab ({NOWHERE}): no API server answers"),
        (SEEING, f"context lab ({NOWHERE}): no API server answers"),
        ((*SEEING, "--context", "prod"), "no such context; there are: lab"),
        ((*SEEING, "--context", "prod", "--scheduler", "https://127.0.0.1:9"), "no such context; there are: lab"),
    ],
)
async def test_the_program_itself_ends_so(
    forking: Forking, lab: ClusterOverHttp, words: tuple[str, ...], why: str
) -> None:
    lab.write_kubeconfig(server=NOWHERE)

    code, said = await of_program(forking, lab, *words)

    assert code == 4 and why in said


async def test_a_pod_on_a_cluster_without_nodes_gets_one_answer(lab: ClusterOverHttp) -> None:
    lab.add_pod("p", gpus=1)

    result = await lab.run("explain", "p")

    assert result.exit_code == 0 and "REJECTED" not in result.stdout and "change" not in result.stdout
    assert "default/p has no node to go to: there are no nodes.\n" in result.stdout
