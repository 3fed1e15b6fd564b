"""Commands that read a cluster have kubectl's habits: context, namespace, selector, watch and forms of output."""

from __future__ import annotations

import asyncio
import io
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from gangline import main
from gangline.commands.output import drawn, put, table
from gangline.commands.watching import PAUSE, follow
from gangline.kube.resources import NODES, PODS
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import make_node, make_pod
from gangline.testing.gangs import GROUP

from ..invoking import invoked
from .cluster_over_http import ClusterOverHttp
from .terminal import Terminal

READING = [
    ("status",),
    ("topology",),
    ("explain",),
    ("whatif",),
    ("snapshot", "save"),
    ("ui",),
    ("defrag", "plan"),
    ("defrag", "apply"),
]
OPTIONS = {"--kubeconfig", "--context"}


def two_teams(lab: ClusterOverHttp) -> None:
    """A gang and a pod that wait in each of two namespaces."""
    lab.add_nodes("a", "b")
    for team in ("red", "blue"):
        lab.add_gang(f"{team}-gang", team, 3, team=team)
        lab.add_pod(f"{team}-pod", team, gpus=9, labels={"team": team})


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_every_command_that_reads_a_cluster_takes_a_kubeconfig_and_a_context(words: tuple[str, ...]) -> None:
    text = invoked(*words, "--help")

    assert all(option in text for option in OPTIONS)


@pytest.mark.parametrize("words", [("status",), ("explain",)], ids=" ".join)
def test_commands_about_pods_take_namespaces_and_labels(words: tuple[str, ...]) -> None:
    text = invoked(*words, "--help")

    for option in ("-n, --namespace", "-A, --all-namespaces", "-l, --selector", "-w, --watch"):
        assert option in text


# Namespaces and labels


async def test_the_namespace_of_the_context_is_shown_and_the_rest_counted(lab: ClusterOverHttp) -> None:
    two_teams(lab)
    lab.write_kubeconfig(namespace="red")

    text = await lab.said("status")

    assert "red/red-gang" in text and "red/red-pod" in text and "blue/" not in text
    assert "not shown: 1 gang and 1 waiting pod (-A: all namespaces)" in text


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-n", "blue"], ["podgroup/blue-gang", "pod/blue-pod"]),
        (["-A"], ["podgroup/blue-gang", "podgroup/red-gang", "pod/blue-pod", "pod/red-pod"]),
        (["-A", "-n", "red", "-l", "team=blue"], ["podgroup/blue-gang", "pod/blue-pod"]),
        (["-A", "-l", "team in (red),!nothing"], ["podgroup/red-gang", "pod/red-pod"]),
        ([], []),
    ],
    ids=["namespace", "all", "labels", "set", "default"],
)
async def test_gangs_and_pods_are_chosen_as_kubectl_chooses_them(
    lab: ClusterOverHttp, words: list[str], names: list[str]
) -> None:
    two_teams(lab)

    assert (await lab.said("status", "-o", "name", *words)).split() == names


async def test_what_labels_hide_is_not_said_to_be_in_other_namespaces(lab: ClusterOverHttp) -> None:
    two_teams(lab)

    text = await lab.said("status", "-A", "-l", "team=red")

    assert "not shown: 1 gang and 1 waiting pod (they have other labels than -l asks for)\n" in text


async def test_the_gpus_are_those_of_the_whole_cluster_in_every_namespace(lab: ClusterOverHttp) -> None:
    two_teams(lab)
    lab.add_pod("there", "red", gpus=4, node="a")

    text = await lab.said("status", "-n", "blue")

    assert text.startswith("4 of 16 GPUs on 2 nodes in use")


async def test_a_namespace_with_nothing_in_it_says_so(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a")

    assert "there is no gang and no waiting pod to show" in await lab.said("status", "-n", "empty")


async def test_a_selector_that_cannot_be_read_is_wrong_usage(lab: ClusterOverHttp) -> None:
    result = await lab.run("status", "-l", "a=(b")

    assert result.exit_code == 2 and "unable to parse label selector" in result.stderr


async def test_topology_shows_the_nodes_with_the_labels(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a", "b", labels={"pool": "train"})
    lab.add_nodes("c", labels={"pool": "serve"})

    assert (await lab.said("topology", "-o", "name", "-l", "pool=train")).split() == ["node/a", "node/b"]
    assert (await lab.said("topology", "-l", "pool=serve")).count("░") == 8
    result = await lab.run("topology", "-l", "pool=none")
    assert result.stdout == "" and "no node has the labels of --selector" in result.stderr


async def test_a_picture_of_the_topology_loads_nothing_from_another_server(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a")

    picture = await lab.said("topology", "-o", "svg")

    assert ET.fromstring(picture).tag.endswith("svg")
    assert 'src: local("FiraCode-Regular");' in picture and "url(" not in picture.replace("url(#", "")


# Names


@pytest.mark.parametrize(
    "words",
    [
        ["red/red-pod"],
        ["pod/red-pod", "-n", "red"],
        ["red-pod", "--namespace", "red"],
        ["-A", "-l", "team=red,!scheduling.x-k8s.io/pod-group"],
    ],
    ids=lambda words: " ".join(words),
)
async def test_a_pod_is_named_as_in_kubectl(lab: ClusterOverHttp, words: list[str]) -> None:
    two_teams(lab)

    report = msgspec.json.decode(await lab.said("explain", *words, "-o", "json"))

    assert report["pod"] == "red/red-pod"


async def test_a_pod_is_looked_for_in_the_namespace_of_the_context(lab: ClusterOverHttp) -> None:
    two_teams(lab)
    lab.write_kubeconfig(namespace="blue")

    assert msgspec.json.decode(await lab.said("explain", "blue-pod", "-o", "json"))["pod"] == "blue/blue-pod"


@pytest.mark.parametrize("name", ["podgroup/red-gang", "pg/red-gang", "podgroup.scheduling.x-k8s.io/red-gang"])
async def test_a_gang_is_named_by_its_group(lab: ClusterOverHttp, name: str) -> None:
    two_teams(lab)

    found = msgspec.json.decode(await lab.said("explain", name, "-n", "red", "-o", "json"))

    assert found["about"] == "podgroup red/red-gang" and found["gang"]["name"] == "red/red-gang"


async def test_a_name_across_all_namespaces_is_wrong_usage(lab: ClusterOverHttp) -> None:
    result = await lab.run("explain", "red-pod", "-A")

    assert result.exit_code == 2 and "cannot be named across all namespaces" in result.stderr


@pytest.mark.parametrize("words", [["red/red-gang"], ["podgroup/red-gang", "-n", "red"], ["red-gang", "-n", "red"]])
async def test_the_gang_of_a_plan_is_named_in_the_same_ways(lab: ClusterOverHttp, words: list[str]) -> None:
    two_teams(lab)

    found = msgspec.json.decode(await lab.said("defrag", "plan", "-o", "json", "--group", *words))

    assert "red/red-gang" in found["goal"]


# Forms


@pytest.mark.parametrize(
    "words", [("status", "-A"), ("topology",), ("explain", "red/red-pod"), ("defrag", "plan")], ids=" ".join
)
async def test_yaml_says_the_same_as_json(lab: ClusterOverHttp, words: tuple[str, ...]) -> None:
    two_teams(lab)

    as_json = msgspec.json.decode(await lab.said(*words, "-o", "json"))

    assert yaml.safe_load(await lab.said(*words, "-o", "yaml")) == as_json


async def test_the_nodes_that_would_do_are_named_the_best_first(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a", "b")
    lab.add_pod("there", gpus=6, node="b")
    lab.add_pod("p", gpus=2)

    assert (await lab.said("explain", "p", "-o", "name")).split() == ["node/b", "node/a"]
    assert (await lab.said("explain", "there", "-o", "name")).split() == ["node/b"]


async def test_wide_shows_every_pod_that_waits(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a")
    for number in range(25):
        lab.add_pod(f"p{number:02}", gpus=1)

    assert "and 5 more: -o wide shows all" in await lab.said("status")
    assert "default/p24" in await lab.said("status", "-o", "wide")


async def test_wide_shows_each_node_with_its_state(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a", unschedulable=True)

    (row,) = (line for line in (await lab.said("topology", "-o", "wide")).splitlines() if line.startswith("a "))

    assert row.split() == ["a", "8", "0", "NotReady,SchedulingDisabled", "-"]


async def test_a_row_is_one_line_where_the_output_is_no_terminal_and_brackets_are_kept(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a")
    message = "waiting for scheduling gates: [quota] " + "and many more words " * 30
    lab.add_pod("p", gpus=1)
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
    lab.server.patch(PODS, "p", {"status": {"conditions": [condition]}}, namespace="default", subresource="status")

    (row,) = (line for line in (await lab.said("status")).splitlines() if line.startswith("default/p"))

    assert row.endswith(message.strip())


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_reason_has_the_width_that_the_names_leave(width: int) -> None:
    shown = table("PENDING", "SCHEDULER", "WHY")
    shown.add_row("default/a-pod-with-a-name", "gpu-scheduler", "why " * 100)
    screen = Console(width=width, file=io.StringIO(), color_system=None)

    put(screen, shown)

    assert isinstance(screen.file, io.StringIO)
    lines = [line.rstrip() for line in screen.file.getvalue().splitlines()]
    assert lines[1].startswith("default/a-pod-with-a-name  gpu-scheduler  why why")
    assert width - 4 <= max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [25, 40, 60, 80, 100])
def test_no_word_of_a_heading_is_broken(width: int) -> None:
    headings = ("GANG", "DIALECT", "PLACED", "WAITING", "WHERE", "ESTIMATED START", "WHY")
    shown = table(*headings)
    shown.add_row(
        "default/align-with-a-long-name", "scheduler-plugins", "12/16", "4", "spine-0/leaf-1", "-", "why " * 9
    )
    screen = Console(width=width, file=io.StringIO(), color_system=None)

    put(screen, shown)

    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert set(" ".join(lines[:2]).split()) >= {word for heading in headings for word in heading.split()}
    assert max(map(len, lines)) <= width or len(lines) == 2
    assert screen.width == width


async def test_only_what_there_is_is_counted(lab: ClusterOverHttp) -> None:
    prefix = "network.topology.nvidia.com"
    lab.add_nodes("a", "b", labels={f"{prefix}/spine": "s", f"{prefix}/leaf": "l"})  # which are not ready
    lab.add_gang("train", "red", 2)

    shown, hidden = await lab.said("status", "-n", "red"), await lab.said("status")

    assert "not yet tried" in next(line for line in shown.splitlines() if line.startswith("red/train"))
    assert "ready nodes: s 0/2, s/l 0/2\n" in hidden and "not shown: 1 gang (-A: all namespaces)" in hidden


async def test_a_gang_whose_size_is_not_known_says_so(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a")
    lab.add_pod("p", gpus=8, labels={GROUP: "nobody"}, node="a")

    (row,) = [line for line in (await lab.said("status")).splitlines() if line.startswith("default/nobody")]

    assert "1/?" in row and "1/0" not in row


# Wrong usage


@pytest.mark.parametrize(
    "selector", ["a in (", "a in (b", "a in", "=b", "a b", "a=b=c", ",", "a==b,"], ids=lambda each: each or "empty"
)
def test_the_fault_of_a_selector_is_named(selector: str) -> None:
    result = CliRunner().invoke(main.cli, ["status", "-l", selector])

    said = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2 and "is not a requirement" in said and selector in said
    assert "400" not in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["whatif", "--gang", "2"], "'2': expected MEMBERSxGPUS, as in 32x8"),
        (["whatif", "--gang", ""], "'': expected MEMBERSxGPUS, as in 32x8"),
        (["explain", ""], "'': expected POD, NAMESPACE/POD or KIND/NAME"),
        (["explain", "/p"], "'/p': expected POD, NAMESPACE/POD or KIND/NAME"),
        (["explain", "job/"], "'job/': expected POD, NAMESPACE/POD or KIND/NAME"),
        (["explain", "jop/p", "-n", "x"], "'jop' is not one of the kinds"),
        (["explain", "pod", "p"], "unexpected 'p' after 'pod': join kind and name: pod/p"),
        (["-n", "x", "status"], "No such option '-n' before the command: write `cli status -n ...`"),
        (["explain", "p", "q"], "unexpected 'q' after 'p': name one pod, workload or gang"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_cannot_be_read_is_wrong_usage(words: list[str], why: str) -> None:
    result = CliRunner().invoke(main.cli, words)

    assert result.exit_code == 2 and why in " ".join(result.stderr.replace("│", " ").split())


def test_a_node_is_named_as_other_commands_print_it() -> None:
    case = str(Path(__file__).parents[3] / "examples" / "explain" / "case.yaml")

    shown = invoked("explain", "-f", case, "--why-not", "node/c")

    assert "untolerated taint" in shown and shown == invoked("explain", "-f", case, "--why-not", "c")


def test_colours_are_left_out_where_nobody_wants_or_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def coloured() -> str:
        return drawn(lambda screen: screen.print("x", style="red"))

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert "\x1b[" in coloured()
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured() == "x\n"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert coloured() == "x\n"


# Watching


def test_a_watch_shows_each_other_view_once() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"))
    client, views, looks = SimulatedClient(cluster.server), list[str](), list[float]()

    async def look() -> str:
        looks.append(cluster.clock.monotonic())
        return ", ".join(pod.metadata.name for pod in (await client.list(PODS)).items)

    async def story() -> None:
        following = asyncio.create_task(follow(client, look, views.append, clock=cluster.clock.monotonic))
        await cluster.until(lambda: views == [""])
        cluster.create(PODS, make_pod("p"))
        await cluster.until(lambda: views == ["", "p"])
        cluster.server.patch(NODES, "a", {"metadata": {"labels": {"heard": "of"}}})
        await cluster.until(lambda: len(looks) == 3)
        await asyncio.sleep(60)  # of virtual time, in which it watches
        cluster.server.disconnect()
        await cluster.until(lambda: len(looks) == 4)
        following.cancel()

    cluster.play(story)

    assert views == ["", "p"]
    assert all(late - early >= PAUSE for early, late in pairwise(looks))


def test_a_case_file_needs_no_cluster_and_takes_the_same_forms(tmp_path_factory: pytest.TempPathFactory) -> None:
    case = tmp_path_factory.mktemp("case") / "case.yaml"
    case.write_text(
        yaml.safe_dump({"nodes": [msgspec.to_builtins(make_node("a"))], "pod": {"metadata": {"name": "p"}}})
    )

    result = CliRunner().invoke(main.cli, ["explain", "-f", str(case), "-o", "name"])

    assert (result.exit_code, result.stdout) == (0, "node/a\n")
