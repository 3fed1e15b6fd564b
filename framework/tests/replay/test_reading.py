"""Traces are read line by line, and what is wrong with one is said with its file, line and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gangline.errors import TraceError
from gangline.replay.reading import counted, faster, read
from gangline.replay.trace import TraceJob, TraceNode

OWN = "arrival,duration,pods,gpus,fraction,cpu,memory,priority,models\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PHILLY = "vc,job,gpus,submit_s,duration_s,job_type\n"


def written(path: Path, text: str, name: str = "trace.csv") -> Path:
    file = path / name
    file.write_text(text)
    return file


def padded(text: str) -> str:
    """A trace in CSV whose lines have as many columns as the header."""
    header, *lines = text.splitlines()
    missing = (header.count(",") - line.count(",") for line in lines)
    return "\n".join([header, *(line + "," * more for line, more in zip(lines, missing, strict=True))])


def test_a_file_of_our_own_format_is_read_and_what_may_be_missing_is(tmp_path: Path) -> None:
    text = OWN + "70,600,2,8,,16,64Gi,100,T4|A10\n60,,,1,0.25,500m,,,\n"

    assert list(read([written(tmp_path, text)]).jobs) == [
        TraceJob(0.0, None, 1, 1, 250, 500),
        TraceJob(10.0, 600.0, 2, 8, 1000, 16_000, 64 * 1024, 100, ("A10", "T4")),
    ]


def test_json_lines_say_the_same(tmp_path: Path) -> None:
    in_csv = read([written(tmp_path, "arrival,gpus,memory,priority\n5,8,64Gi,-1\n9,,,\n")])
    text = '{"arrival": 5, "gpus": 8, "memory": "64Gi", "priority": -1}\n\n{"arrival": 9.0, "gpus": null}\n'

    assert read([written(tmp_path, text, "trace.jsonl")]) == in_csv


def test_pods_and_nodes_of_openb_are_read_as_one_trace(tmp_path: Path) -> None:
    pods = PODS + "p0,4000,1024,1,460,T4|G2,LS,Running,110,300,120\np1,2000,512,0,0,,BE,Pending,100,,\n"
    nodes = NODES + "a,16000,65536,2,T4\n"
    trace = read([written(tmp_path, pods), written(tmp_path, nodes, "nodes.csv")])

    assert list(trace.jobs) == [
        TraceJob(0.0, None, 1, 0, 0, 2000, 512),
        TraceJob(10.0, 180.0, 1, 1, 460, 4000, 1024, 0, ("G2", "T4")),
    ]
    assert trace.nodes == [TraceNode("a", 16000, 65536, 2, "T4")]


def test_pods_without_times_come_one_after_another_and_stay(tmp_path: Path) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,0,0\np1,1,1,0,0\n"

    assert [(job.arrival, job.duration) for job in read([written(tmp_path, text)]).jobs] == [(0.0, None), (1.0, None)]


@pytest.mark.parametrize(("gpus", "pods", "of_each"), [(1, 1, 1), (8, 1, 8), (12, 2, 6), (20, 4, 5), (64, 8, 8)])
def test_a_job_of_philly_with_more_gpus_than_a_server_is_a_gang(
    tmp_path: Path, gpus: int, pods: int, of_each: int
) -> None:
    trace = read([written(tmp_path, f"{PHILLY}v,0,{gpus},7,600,ResNet\n")])

    assert list(trace.jobs) == [TraceJob(0.0, 600.0, pods, of_each, 1000)]


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        (OWN + "0,5,1,1\nx,5,1,1\n", "trace.csv:3: column 1 (arrival)", '"x": not a number of seconds'),
        (OWN + "0,nan,1,1\n", "trace.csv:2: column 2 (duration)", "nan: not a number of seconds between"),
        (OWN + "-1,5,1,1\n", "trace.csv:2: column 1 (arrival)", "-1: not a number"),
        (OWN + ",5,1,1\n", "trace.csv:2: column 1 (arrival)", "is missing"),
        (OWN + "0,5,0,1\n", "trace.csv:2: column 3 (pods)", "0: not between 1 and 4096"),
        (OWN + "0,5,99999,1\n", "trace.csv:2: column 3 (pods)", "99999: not between 1 and 4096"),
        (OWN + "0,5,1,-1\n", "trace.csv:2: column 4 (gpus)", "-1: not between 0 and 64"),
        (OWN + f"0,5,1,{10**20}\n", "trace.csv:2: column 4 (gpus)", f'"{10**20}": not between 0 and 64'),
        (OWN + "0,5,1,1.5\n", "trace.csv:2: column 4 (gpus)", '"1.5": not a whole number'),
        (OWN + "0,5,1,1,1.5\n", "trace.csv:2: column 5 (fraction)", "1.5: not more than 0 and at most 1"),
        (OWN + "0,5,1,1,,lots\n", "trace.csv:2: column 6 (cpu)", '"lots": not a quantity'),
        (OWN + "0,5,1,1,,1,1e17\n", "trace.csv:2: column 7 (memory)", "1e17: negative, or too much"),
        (OWN + "0,5,1,1,,1,1,5e3\n", "trace.csv:2: column 8 (priority)", '"5e3": not a whole number'),
        (OWN + "0,5,1,1,,,,,,,\n", "trace.csv:2: column 10", "the header has 9 columns"),
        (OWN + '0,5,1,"1\n', "trace.csv:2: column 1", "no CSV: unexpected end of data"),
        ("arrival,gpu\n0,1\n", "trace.csv:1: column 2 (gpu)", "not known here; there are arrival, duration, pods"),
        ("arrival,gpus,gpus\n0,1,1\n", "trace.csv:1: column 3 (gpus)", "another column has the same name"),
        ("a,b\n0,1\n", "trace.csv:1: column 1", "no trace that is known has these columns"),
        ("a\n0,1\n", "trace.csv:1: column 1", "no trace that is known has these columns"),
        (OWN, "trace.csv", "there are no pods in the trace"),
        ("", "trace.csv", "the file is empty"),
        ("\n \n", "trace.csv", "the file is empty"),
        (PODS + "p,x,1,1,1000\n", "trace.csv:2: column 2 (cpu_milli)", '"x": not a whole number'),
        (PODS + "p,1,1,1,1001\n", "trace.csv:2: column 5 (gpu_milli)", "1001: not between 0 and 1000"),
        (PODS + "p,1,1,1,0\n", "trace.csv:2: column 5 (gpu_milli)", "is 0 for a pod with GPUs"),
        (PODS + "p,1,1,0,0,,,,9,8,9\n", "trace.csv:2: column 10 (deletion_time)", "is before the pod was scheduled"),
        (NODES + "A_b,1,1,1,T4\n", "trace.csv:2: column 1 (sn)", "not the name of a node"),
        (NODES + "a,1,1,1,T4\na,1,1,1,T4\n", "trace.csv:3: column 1 (sn)", "the node a was named before"),
        (NODES + "a,1,1,1,T4\n", "trace.csv", "there are no pods in the trace"),
        (PHILLY + "v,0,0,7,600,\n", "trace.csv:2: column 3 (gpus)", "0: not between 1 and 4096"),
        ('{"arrival": 1}\n{"arrival": ]}\n', "trace.csv:2: column 13", "no JSON: Expecting value"),
        ('{"arrival": 1, "gpu": 1}\n', "trace.csv:1: field gpu", "not known here"),
        ('{"arrival": 1, "\\u001b[31m": 1}\n', 'trace.csv:1: field "\\u001b[31m"', "not known here"),
        ('{"gpus": 1}\n', "trace.csv:1: field arrival", "is missing"),
        ('{"arrival": true}\n', "trace.csv:1: field arrival", "is neither a text nor a number"),
        ('{"arrival": NaN}\n', "trace.csv:1: field arrival", "nan: not a number of seconds between"),
        ('{"arrival": 1, "gpus": 1, "gpus": 2}\n', "trace.csv:1: field gpus", "another field has the same name"),
        ('{"arrival": 1}\n[]\n', "trace.csv:2: column 1", "no JSON object"),
        ('{"arrival": ' + "[" * 60_000 + "\n", "trace.csv:1: column 1", "no JSON that can be read"),
        ('{"arrival": 1' + "0" * 5000 + "}\n", "trace.csv:1: column 1", "no JSON that can be read"),
        (OWN + "x" * 70_000, "trace.csv:2: column 65537", "the line has more than 65536 characters"),
    ],
)
def test_a_broken_line_is_named_with_its_file_line_and_column(tmp_path: Path, text: str, where: str, why: str) -> None:
    with pytest.raises(TraceError) as caught:
        read([written(tmp_path, padded(text) if text.startswith((OWN, PODS)) else text)])

    assert f"{caught.value}".startswith(f"{tmp_path}/{where}: {why}")


def test_a_line_that_ends_too_early_is_no_line_without_the_last_values(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read([written(tmp_path, "arrival,duration,pods,gpus\n0,60,1,8\n5,60,1\n")])

    assert f"{caught.value}" == f"{tmp_path}/trace.csv:3: column 4 (gpus): the header has 4 columns, and the line 3"


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"\xff\xfe\x00", ":1: column 1"),
        (b"arrival,\xff\n0,1\n", ":1: column 2"),
        (b"arrival,gpus,models\n0,1,A100\n0,1,\xc3\xa9\xe9\n", ":3: column 3 (models)"),
        (b'arrival,models\n0,"a,\xff"\n', ":2: column 2 (models)"),
        (b'{"arrival": 0}\n{"arrival": \xff}\n', ":2: column 13"),
        (b"\xef\xbb\xbfarrival,models\n0,\xed\xa0\x80\n", ":2: column 2 (models)"),
    ],
    ids=["utf-16", "header", "cell", "quoted", "json", "surrogate"],
)
def test_bytes_that_are_no_text_are_named_with_their_line_and_column(tmp_path: Path, data: bytes, where: str) -> None:
    (tmp_path / "trace.csv").write_bytes(data)

    with pytest.raises(TraceError) as caught:
        read([tmp_path / "trace.csv"])
    assert str(caught.value) == f"{tmp_path}/trace.csv{where}: no text in UTF-8"


def test_the_first_broken_file_of_several_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"bad\.csv:2: column 1 \(arrival\)"):
        read([written(tmp_path, padded(OWN + "0\n")), written(tmp_path, padded(OWN + "-\n"), "bad.csv")])


def test_nodes_can_be_counted(tmp_path: Path) -> None:
    made = counted("3x4")

    assert made is not None
    assert [(node.name, node.gpus) for node in made] == [("node-00000", 4), ("node-00001", 4), ("node-00002", 4)]
    assert [counted(text) for text in ("0x8", "3x0", "3x65", "30000x8", "3", "x", "3x8x2")] == [None] * 7


def test_arrivals_can_follow_each_other_faster(tmp_path: Path) -> None:
    trace = read([written(tmp_path, padded(OWN + "0,5\n60,5\n"))])

    assert [(job.arrival, job.duration) for job in faster(trace, 3.0).jobs] == [(0.0, 5.0), (20.0, 5.0)]


def test_a_trace_that_is_compressed_is_named_so(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv.gz"
    file.write_bytes(gzip.compress(b"arrival,gpus\n0,1\n"))

    with pytest.raises(TraceError, match=r"trace\.csv\.gz:1: column 1: compressed by gzip: unpack the file first"):
        read([file])
