"""Reading and replaying a trace, on a small one."""

from __future__ import annotations

from pathlib import Path

import pytest

from openb.policies import POLICIES
from openb.replay import replay
from openb.trace import TraceError, arrival, read_nodes, read_pods, typical_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,16000,65536,2,T4\nb,16000,65536,2,G2\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "p0,4000,1024,1,1000,T4\np1,2000,1024,1,500,\np2,2000,1024,0,0,\np3,8000,1024,2,1000,G2|T4\n"
)


def folder(path: Path, pods: str = PODS, orders: str = "") -> Path:
    (path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (path / "openb_pod_list_small.csv").write_text(pods)
    if orders:
        (path / "orders").mkdir()
        (path / "orders" / "orders_small.csv").write_text(orders)
    return path


def test_pods_are_read_with_the_models_that_will_do(tmp_path: Path) -> None:
    pods = read_pods(folder(tmp_path), "small")

    assert [pod.size for pod in pods] == ["1", "part", "CPU", "2"]
    assert pods[3].models == ("G2", "T4")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("p9,x,1024,1,1000,", r'openb_pod_list_small.csv:2: column cpu_milli: "x" is not a whole number'),
        ("p9,1000,1024,1,1001,", r"small.csv:2: column gpu_milli: 1001 is more than 1000"),
        ("p9,1000,1024,1,0,", r"small.csv:2: column gpu_milli: is 0 for a pod with GPUs"),
        ("p9,1000", r"small.csv:2: column num_gpu: is missing"),
        ("p9,1000,1024,1,1000,,1", r"small.csv:2: column 7: is one too many"),
    ],
    ids=["not a number", "too much", "no thousandths", "too short", "too long"],
)
def test_a_broken_line_is_named_with_its_file_and_column(tmp_path: Path, row: str, message: str) -> None:
    header = PODS.splitlines()[0]
    with pytest.raises(TraceError, match=message):
        read_pods(folder(tmp_path, f"{header}\n{row}\n"), "small")


def test_a_missing_trace_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"not there; download the trace from https://github\.com/hkust-adsl"):
        read_nodes(tmp_path)


def test_recorded_orders_are_used(tmp_path: Path) -> None:
    path = folder(tmp_path, orders="7,pods,3 1\n7,noderank,1 0\n")
    found = arrival(path, "small", 7, read_nodes(path), read_pods(path, "small"))

    assert (found.pods, found.nodes, found.is_recorded) == ([3, 1], [1, 0], True)


def test_an_order_that_names_no_pod_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, orders="7,pods,3 9\n7,noderank,1 0\n")
    with pytest.raises(TraceError, match=r'orders_small.csv:1: column 3: "9" is not a row of the list, 0 to 3'):
        arrival(path, "small", 7, read_nodes(path), read_pods(path, "small"))


def test_without_recorded_orders_pods_come_until_they_have_asked_for_enough(tmp_path: Path) -> None:
    path = folder(tmp_path)
    nodes, pods = read_nodes(path), read_pods(path, "small")
    found = arrival(path, "small", 1, nodes, pods)

    asked = sum(pods[row].demand for row in found.pods)
    assert set(found.pods) == {0, 1, 2, 3}
    assert 1.3 * 4000 - 2000 < asked <= 1.3 * 4000


def test_typical_pods_sum_to_one(tmp_path: Path) -> None:
    found = typical_pods(read_pods(folder(tmp_path), "small"))

    assert sum(pod.popularity for pod in found) == pytest.approx(1.0)


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_places_what_fits(tmp_path: Path, name: str) -> None:
    path = folder(tmp_path, orders="7,pods,0 1 2 1 1 1 0\n7,noderank,1 0\n")
    nodes, pods = read_nodes(path), read_pods(path, "small")
    outcome = replay(nodes, pods, typical_pods(pods), arrival(path, "small", 7, nodes, pods), POLICIES[name])

    assert outcome.idle == pytest.approx(4 - outcome.allocated * 4 / 100)
    assert outcome.pods == 7
    assert sum(outcome.lost.values()) <= 1


def test_a_pod_that_has_no_place_is_lost(tmp_path: Path) -> None:
    path = folder(tmp_path, orders="7,pods,3 3 3\n7,noderank,1 0\n")
    nodes, pods = read_nodes(path), read_pods(path, "small")
    outcome = replay(nodes, pods, typical_pods(pods), arrival(path, "small", 7, nodes, pods), POLICIES["FirstFit"])

    assert (outcome.lost, outcome.allocated) == ({"2": 1}, 100.0)
