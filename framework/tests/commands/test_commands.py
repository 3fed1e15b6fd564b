"""The command line: what it writes, and how it ends."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from gangline import config, main
from gangline.commands.explain import read_case
from gangline.errors import ConfigError
from gangline.profile.registry import Catalog
from gangline.testing import cluster, make_node, make_pod, run_score
from gangline_e2e.forked_programs import Forking

from ..installing import install, install_source
from ..invoking import invoked

HEAD = "apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n"
SMALL = """\
profiles:
- schedulerName: small
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeResourcesFit}]
"""


ENDS = "third_command_that_ends"
"""A module that ends the process when it is imported."""


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: Sequence[str]) -> tuple[int, str]:
    """The exit code of a whole run, and what it wrote to standard error."""
    monkeypatch.setattr(sys, "argv", ["gangline", *words])
    try:
        main.main()
    except SystemExit as end:
        return int(end.code or 0), capsys.readouterr().err
    return 0, capsys.readouterr().err


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(HEAD.format(version="v1") + SMALL)
    return path


@pytest.fixture
def with_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands that a distribution adds: two that cannot be imported, one that is none, and one by the name of ours."""
    wrong = {
        "broken": "no_such_package:command",
        "ends": f"{ENDS}:command",
        "odd": "gangline.main:SUMMARIES",
        "run": "gangline.main:SUMMARIES",
    }
    (tmp_path / f"{ENDS}.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = [EntryPoint(name, where, "gangline.commands") for name, where in wrong.items()]
    monkeypatch.setattr(main, "entry_points", lambda group: found)
    monkeypatch.setattr(main, "added", cache(main.added.__wrapped__))


def test_a_command_that_a_distribution_adds_stands_beside_ours() -> None:
    assert "defrag" in main.added() and "defrag" not in main.COMMANDS
    assert "Make room by moving running pods" in " ".join(invoked("--help").split())


@pytest.mark.usefixtures("with_added")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken", "needs the package no_such_package"),
        ("ends", f"cannot be loaded from {ENDS}:command: SystemExit(0)"),
        ("odd", "is no click.Command at gangline.main:SUMMARIES"),
    ],
)
def test_an_added_command_that_cannot_be_used_harms_itself_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    assert why in " ".join(invoked("--help").split())
    assert "Schedule pods until SIGTERM" in invoked("run", "--help")

    code, err = ended(monkeypatch, capsys, [name])

    assert code == 1 and why in err


def test_help_lists_the_commands_without_importing_them() -> None:
    text = " ".join(invoked("--help").split())

    assert main.SUMMARIES.keys() == main.COMMANDS.keys()
    assert all(name in text and summary in text for name, summary in main.SUMMARIES.items())


@pytest.mark.parametrize("group", ["certs", "config", "defrag", "plugins", "profiles", "snapshot"])
def test_help_of_a_group_is_not_cut(group: str) -> None:
    assert "..." not in invoked(group, "--help").replace("[ARGS]...", "")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--help"], 0, ""),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["config", "validate"], 2, "Missing argument 'FILE...'"),
        (["config", "validate", "missing.yaml"], 1, "missing.yaml"),
        (["simul"], 2, "No such command 'simul'. Did you mean 'simulate'?"),
        (["explain", "-f", "case.yaml", "--snapshot", "s.gz"], 2, "a case file is no cluster"),
        (["explain", "-f", "case.yaml", "--watch"], 2, "a case file is no cluster"),
        (["plugins", "new", "lower"], 2, "'lower' is no name for a plugin"),
    ],
    ids=["success", "command", "usage", "failure", "misspelt", "case-snapshot", "case-watch", "name"],
)
def test_the_exit_code_is_0_1_or_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], code: int, line: str
) -> None:
    found, err = ended(monkeypatch, capsys, words)

    assert found == code and line in err


def test_a_case_of_several_documents_is_told_what_a_case_is(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text("pod: {}\n---\npod: {}\n")

    with pytest.raises(ConfigError, match=": 2:1: a case is one document of YAML or JSON: there is more than one"):
        read_case(file)


def test_a_case_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text("pod: " + "[" * 1_000)

    with pytest.raises(ConfigError, match="a case is one document of YAML or JSON: nested too deeply"):
        read_case(file)


def test_a_failure_is_one_line_that_names_the_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], small: Path
) -> None:
    small.write_text(small.read_text().replace("PrioritySort", "PrioritySorts"))

    code, err = ended(monkeypatch, capsys, ["config", "validate", str(small)])

    assert code == 1 and err.count("\n") == 1
    assert err.startswith(f"gangline: {small}: profiles[0].plugins.multiPoint.enabled[0].name: unknown plugin")


def test_validate_names_every_file_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [b")
    small.write_text(small.read_text().replace("PrioritySort", "PrioritySorts"))
    files = ["missing.yaml", str(broken), str(small), str(tmp_path)]

    code, err = ended(monkeypatch, capsys, ["config", "validate", *files])

    assert code == 1
    assert sorted(line.split(": ")[1] for line in err.splitlines()) == sorted(
        ["missing.yaml", f"{broken}", str(small), str(tmp_path)]
    )


def test_validate_names_what_files_are_only_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], small: Path
) -> None:
    code, err = ended(monkeypatch, capsys, ["config", "validate", str(small), str(small), "missing.yaml"])

    assert code == 1 and err.count("\n") == 2
    assert "missing.yaml: cannot be read" in err and "small" in err.replace(str(small), "")


def test_validate_builds_every_profile(small: Path) -> None:
    assert invoked("config", "validate", small) == "small: 3 plugins\n"


def test_convert_writes_the_current_version_that_reads_back_the_same(small: Path) -> None:
    small.write_text(HEAD.format(version="v1beta3") + SMALL)

    text = invoked("config", "convert", small)

    assert "apiVersion: kubescheduler.config.k8s.io/v1\n" in text
    assert config.load(text, "converted").profiles[0].scheduler_name == "small"
    assert "podMaxBackoffSeconds" not in text


def test_show_spells_out_every_default(small: Path) -> None:
    text = invoked("config", "show", small)

    assert "podMaxBackoffSeconds: 10" in text and "podInitialBackoffSeconds: 1" in text
    assert config.load(text, "shown").pod_max_backoff_seconds == 10


def test_list_names_every_plugin_with_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")

    lines = {line.split()[0]: line for line in invoked("plugins", "list").splitlines()}

    assert set(Catalog.discover().names) <= lines.keys()
    assert "queue_sort" in lines["PrioritySort"]
    assert "filter, score" in lines["NodeResourcesFit"]
    assert "gangline_plugins.default_binder:DefaultBinder" in lines["DefaultBinder"]


def skeleton(folder: Path, name: str) -> type[Any]:
    """Write a new plugin and import it as its entry point says."""
    invoked("plugins", "new", name, "--directory", folder)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    module, attribute = project["entry-points"]["gangline.plugins"][name].split(":")
    assert project["name"] == module.replace("_", "-") and "gangline" in project["dependencies"]
    spec = importlib.util.spec_from_file_location(module, folder / f"{module}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    plugin: type[Any] = getattr(loaded, attribute)
    return plugin


def test_a_new_plugin_scores_as_it_says(tmp_path: Path) -> None:
    plugin = skeleton(tmp_path / "prefer-rack", "PreferRack")
    cache = cluster([make_node("a", labels={"fast": ""}), make_node("b")])

    assert run_score(plugin, make_pod("p", annotations={"example.com/prefer-label": "fast"}), cache) == {
        "a": 100.0,
        "b": 0.0,
    }
    assert run_score(plugin, make_pod("q"), cache) == {"a": 0.0, "b": 0.0}


def test_the_profile_of_a_new_plugin_enables_it_beside_the_defaults(tmp_path: Path) -> None:
    plugin = skeleton(tmp_path / "prefer-rack", "PreferRack")
    (profile,) = config.load_files([tmp_path / "prefer-rack" / "profile.yaml"]).profiles
    points = Catalog.discover().with_classes(plugin).points()

    expanded = config.expand(profile, points, config.default_plugins(points))

    assert config.PluginRef("PreferRack", 2) in expanded["score"]
    assert "NodeResourcesFit" in {ref.name for ref in expanded["filter"]}


def test_a_new_plugin_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    code, err = ended(monkeypatch, capsys, ["plugins", "new", "PreferRack", "--directory", str(tmp_path)])

    assert code == 1 and err == f"Error: {tmp_path}: is not empty; choose another folder with --directory\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_module_of_a_command_of_ours_is_imported_only_when_it_is_asked_for() -> None:
    code = (
        "import sys; from gangline import main; main.cli(['--help'], standalone_mode=False); "
        # What the authors of commands may use lists profiles as well.
        "theirs = main.COMMANDS['profiles']; "
        "sys.exit(any(each.partition(':')[0] in sys.modules for each in main.COMMANDS.values() if each != theirs))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0


def test_a_command_whose_package_is_missing_says_so() -> None:
    with pytest.raises(click.ClickException) as error:
        main.load("agent", "nothing_like_this.main:agent")

    assert str(error.value.message) == "the command agent needs the package nothing_like_this, which is not installed"


def test_a_new_plugin_brings_a_test_arguments_and_a_case_that_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, site = tmp_path / "prefer-rack", tmp_path / "site"
    invoked("plugins", "new", "PreferRack", "--directory", folder)
    install_source(folder, site)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the tests need none, and they take long to load
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("COLUMNS", "200")

    tested = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    explained = invoked("explain", "-f", folder / "case.yaml", "--config", folder / "profile.yaml")

    assert tested.returncode == 0 and "3 passed" in tested.stdout, tested.stdout + tested.stderr
    assert "PreferRack x2" in explained and "default/mine would go to b" in explained


def test_of_very_many_nodes_the_best_are_explained_and_the_others_counted(tmp_path: Path) -> None:
    nodes = [msgspec.to_builtins(make_node(f"n{i:04}", gpus=8 if i % 2 else 0)) for i in range(100)]
    case = tmp_path / "case.json"
    case.write_bytes(msgspec.json.encode({"nodes": nodes, "pod": msgspec.to_builtins(make_pod("p", gpus=1))}))

    shown = CliRunner().invoke(main.cli, ["explain", "-f", str(case)], env={"COLUMNS": "200"})
    whole = CliRunner().invoke(main.cli, ["explain", "-f", str(case), "-o", "json"])

    assert (shown.exit_code, whole.exit_code) == (0, 0)
    assert sum(line.startswith("n0") for line in shown.stdout.splitlines()) == 20
    assert "and 80 more nodes: -o wide tells of all, --why-not NODE of one" in shown.stdout
    assert "default/p would go to " in shown.stdout
    assert len(msgspec.json.decode(whole.stdout)["nodes"]) == 100


def test_a_name_that_a_built_in_has_is_warned_about(tmp_path: Path) -> None:
    result = CliRunner().invoke(main.cli, ["plugins", "new", "ImageLocality", "--directory", str(tmp_path / "new")])

    assert result.exit_code == 0
    assert "warning: ImageLocality is there already" in result.stderr and "take another name" in result.stderr
    other = CliRunner().invoke(main.cli, ["plugins", "new", "PreferRack", "--directory", str(tmp_path / "other")])
    assert "warning" not in other.stderr


HELD = """
nodes: [{metadata: {name: a}, status: {allocatable: {cpu: "8", pods: "110"}}}]
pod:
  metadata: {name: p, namespace: default}
  spec: {schedulingGates: [{name: quota}], containers: [{name: main, resources: {requests: {cpu: "1"}}}]}
"""


def test_a_case_with_a_pod_that_may_not_enter_the_queue_says_who_holds_it(tmp_path: Path) -> None:
    (case := tmp_path / "case.yaml").write_text(HELD)

    shown = invoked("explain", "-f", case)
    report = msgspec.json.decode(invoked("explain", "-f", case, "-o", "json"))

    held = "SchedulingGates: waiting for scheduling gates: [quota]"
    assert f"default/p is not tried: {held}" in shown and "default/p would go to a" in shown
    assert report["held"] == held


CLAIMING = """
nodes: [{metadata: {name: a}, status: {allocatable: {cpu: "8", pods: "110"}}}]
resourceclaimtemplates:
  - metadata: {name: two, namespace: default}
    spec: {spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu, count: 2}}]}}}
pod:
  metadata: {name: p, namespace: default}
  spec:
    resourceClaims: [{name: gpus, resourceClaimTemplateName: two}]
    containers: [{name: main, resources: {claims: [{name: gpus}]}}]
"""


def test_a_case_with_a_pod_that_has_claims_shows_them(tmp_path: Path) -> None:
    (case := tmp_path / "case.yaml").write_text(CLAIMING)

    (row,) = (line for line in invoked("explain", "-f", case).splitlines() if line.startswith("default/p-gpus"))

    assert [cell.strip() for cell in row.split("  ") if cell] == [
        "default/p-gpus",
        "two",
        "2 gpu",
        "-",
        "default/p has not been tried yet",
    ]


def test_a_case_is_judged_by_other_plugins_that_hold_pods(tmp_path: Path, site: Path) -> None:
    source = (
        "from gangline import hookimpl, unschedulable\n"
        "class Quota:\n"
        "    name = 'Quota'\n"
        "    @hookimpl\n"
        "    def pre_enqueue(self, pod):\n"
        "        return unschedulable('the quota is used up') if pod.name == 'p' else None\n"
    )
    install(site, "quota", {"Quota": "quota:Quota"}, {"quota": source})
    (case := tmp_path / "case.yaml").write_text(HELD.replace("schedulingGates: [{name: quota}], ", ""))
    (file := tmp_path / "config.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: default-scheduler, plugins: {multiPoint: {enabled: [{name: Quota}]}}}]\n"
    )

    assert "default/p is not tried: Quota: the quota is used up" in invoked("explain", "-f", case, "--config", file)
    case.write_text(case.read_text().replace("name: p,", "name: q,"))
    assert "not tried" not in invoked("explain", "-f", case, "--config", file)


@pytest.mark.parametrize("words", ["profiles list", "--help", "config show --profile default"])
def test_a_command_ends_quietly_if_nobody_reads_its_output(forking: Forking, words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = forking.run(tuple(words.split()), output=writing)
    finally:
        os.close(writing)

    assert (ended.returncode, ended.stderr) == (1, b"")
