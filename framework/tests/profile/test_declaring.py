"""What a plugin declares wrongly is found when it is loaded, and `config validate` says all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gangline import (
    NODE,
    PODS,
    SPECS,
    Action,
    CodeColumn,
    NodeView,
    PluginError,
    Reason,
    codes,
    hookimpl,
    main,
    model,
    on,
    per_node,
)
from gangline.config import decode_args
from gangline.errors import ConfigError
from gangline.kube.resources import LEASES, Resource
from gangline.testing import cluster, make_node, make_pod, make_runtime, run_filter


class Base:
    """Rejects cordoned nodes."""

    name = "Odd"
    reasons: Any = (Reason("cordoned"),)

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        return codes(nodes.unschedulable)


def hook(answer: Any = None) -> Any:
    return hookimpl(lambda self: answer)


async def waits(self: Any) -> None:
    """A hook that must not wait."""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"filer": hook()}, "plugin Odd at filer: is no hook; did you mean filter or pre_filter or post_filter?"),
        (
            {"prefilter": hook()},
            "plugin Odd at prefilter: is no hook; did you mean pre_filter or filter or post_filter?",
        ),
        ({"reserve": lambda self: None}, "plugin Odd at reserve: is not marked with @hookimpl"),
        (
            {"preFilter": lambda self: None},
            "plugin Odd at preFilter: is no hook; did you mean pre_filter? Otherwise begin it with _",
        ),
        (
            {"unReserve": lambda self: None},
            "plugin Odd at unReserve: is no hook; did you mean unreserve? Otherwise begin it with _",
        ),
        (
            {"post_enqeue": lambda self: None},
            "plugin Odd at post_enqeue: is no hook; did you mean post_enqueue? Otherwise begin it with _",
        ),
        ({"score": hookimpl(waits)}, "plugin Odd at score: must not be async: it is called within a decision"),
        ({"reads": "NODE"}, "plugin Odd: reads is NODE, PODS, SPECS or NODE with one of the others, not 'NODE'"),
        ({"ignores_requests": "yes"}, "plugin Odd: ignores_requests is True or False, not 'yes'"),
        ({"reads": 4}, "plugin Odd: reads is NODE, PODS, SPECS or NODE with one of the others, not 4"),
        (
            {"reads": PODS | SPECS},
            "plugin Odd: reads is NODE, PODS, SPECS or NODE with one of the others, not 10",
        ),
        ({"args_type": dict}, "plugin Odd: args_type is a class derived from msgspec.Struct, not <class 'dict'>"),
        ({"reasons": None}, "plugin Odd at filter: needs `reasons`, a tuple of what its numbers mean"),
        ({"reasons": "full"}, "plugin Odd: reasons is a tuple of Reasons, not 'full'"),
        (
            {"reasons": (Reason("full"), "taken")},
            "plugin Odd: reasons[1] is 'taken', and not a Reason; write Reason('taken')",
        ),
        (
            {"events_to_register": hook(["nodes"])},
            "plugin Odd at events_to_register: event 0 is 'nodes'; write on(\"nodes\", Action.ADD)",
        ),
        (
            {"events_to_register": hook((on("node", Action.ADD),))},
            "plugin Odd at events_to_register: event 0 is of no kind 'node'; did you mean nodes or csinodes?; besides, "
            "those in `watches`, and with a slash those that plugins announce",
        ),
        ({"pre_filter": 5}, "plugin Odd at pre_filter: is a method marked with @hookimpl, not 5"),
        ({"events_to_register": hook(5)}, "plugin Odd at events_to_register: TypeError: 'int' object is not iterable"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_declared_wrongly_is_refused_at_load(body: dict[str, Any], why: str) -> None:
    with pytest.raises(PluginError) as error:
        make_runtime(cluster(), type("Odd", (Base,), body))

    assert str(error.value) == why


@pytest.mark.parametrize(
    ("attribute", "value", "meant"),
    [
        ("read", NODE, "reads"),
        ("Reads", NODE, "reads"),
        ("raeds", NODE, "reads"),
        ("read_own", (), "reads_own"),
        ("arg_type", msgspec.Struct, "args_type"),
        ("argstype", None, "args_type"),
        ("watch", (), "watches"),
        ("watche", (), "watches"),
        ("identities", {}, "identity"),
    ],
)
def test_an_attribute_that_is_nearly_named_like_one_that_is_read_is_refused(
    attribute: str, value: Any, meant: str
) -> None:
    why = f"plugin Odd at {attribute}: is read by nobody; did you mean {meant}"

    with pytest.raises(PluginError, match=re.escape(why)):
        make_runtime(cluster(), type("Odd", (Base,), {attribute: value}))


def test_an_attribute_of_the_built_plugin_is_checked_too() -> None:
    class Odd(Base):
        def __init__(self) -> None:
            self.watch = (LEASES,)

    with pytest.raises(PluginError, match="did you mean watches"):
        make_runtime(cluster(), Odd)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("watch", lambda self: None),
        ("read", property(lambda self: 1)),
        ("Watch", type("Watch", (), {})),
        ("read", staticmethod(lambda: 1)),
        ("reason", Reason("also has reasons")),
        ("_read", NODE),
        ("matches", {}),
        ("batches", []),
        ("heads", 3),
        ("names", ()),
        ("reasoner", None),
        ("own", 1),
    ],
)
def test_what_means_something_else_is_left_alone(attribute: str, value: Any) -> None:
    make_runtime(cluster(), type("Odd", (Base,), {attribute: value}))


@pytest.mark.parametrize("kind", ["nodes", "*", "jobsets", "quotas", "example.com/quotas"])
def test_events_of_known_watched_and_announced_kinds_may_be_registered(kind: str) -> None:
    quotas = Resource("example.com", "v1", "quotas", "Quota", model.Lease)
    events = hookimpl(lambda self: (on(kind, Action.ADD),))

    make_runtime(cluster(), type("Odd", (Base,), {"watches": (quotas,), "events_to_register": events}))


def test_an_event_without_an_action_says_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"an event of 'nodes' names no Action; there are ADD, DELETE, .*UPDATE_NODE"):
        on("nodes", Action(0))


@pytest.mark.parametrize("error", [SystemExit("bye"), KeyboardInterrupt()], ids=["exits", "interrupts"])
def test_a_plugin_that_ends_the_process_while_it_is_built_is_named(error: BaseException) -> None:
    class Exits(Base):
        def __init__(self) -> None:
            raise error

    with pytest.raises(PluginError, match=f"^plugin Odd: cannot be built: {type(error).__name__}"):
        make_runtime(cluster(), Exits)


def test_what_is_declared_rightly_is_kept() -> None:
    class Right(Base):
        reads = NODE

        @hookimpl
        def events_to_register(self) -> Any:
            return (on("nodes", Action.ADD),)

    events = make_runtime(cluster(), Right).profile.events["Odd"]

    assert events is not None and [each.event.resource for each in events] == ["nodes"]


def test_many_reasons_of_a_method_that_thinks_node_by_node_are_said_in_common() -> None:
    class Talks:
        name = "Talks"

        @hookimpl
        @per_node
        def filter(self, pod: Any, node: Any) -> str:
            return f"{node.metadata.name} will not do"

    said = run_filter(Talks, make_pod("p"), cluster([make_node(f"n{i}") for i in range(300)]))

    assert said["n0"] == ("n0 will not do",) and said["n299"] == ("node(s) were rejected by Talks",)


# config validate


def test_config_validate_names_the_profiles_that_may_bind_a_gang_in_part(tmp_path: Path) -> None:
    gangs = "- schedulerName: gangs\n  plugins: {multiPoint: {enabled: [{name: GangPermit}]}}\n"
    (file := tmp_path / "config.yaml").write_text(f"{HEAD}- schedulerName: plain\n{gangs}")

    result = CliRunner().invoke(main.cli, ["config", "validate", str(file)])

    assert result.exit_code == 0
    assert result.stderr.startswith("gangline: profile plain: no plugin makes the pods of a gang one unit")
    assert result.stderr.count("\n") == 1 and "enable GangPermit" in result.stderr


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
PROFILE = """- schedulerName: {name}
  plugins: {{multiPoint: {{enabled: [{{name: {plugin}}}]}}}}
  pluginConfig: [{{name: {configured}, args: {args}}}]
"""


class Args(msgspec.Struct):
    """Leaves it to the scheduler to refuse what is not there."""

    node_label: str = ""


@pytest.mark.parametrize(
    ("plugin", "configured", "args", "why"),
    [
        (
            "NodName",
            "Coscheduling",
            "{}",
            ['enabled[0].name: unknown plugin "NodName"; did you mean NodeName', "pluginConfig"],
        ),
        ("NodeName", "NodeName", "{strict: true}", ["pluginConfig[0].args: NodeName takes no arguments, got strict"]),
        (
            "NodeResourcesFit",
            "NodeResourcesFit",
            "{ignoredResource: []}",
            ["args.ignoredResource: unknown field; did you mean ignoredResources"],
        ),
        ("NodeAffinity", "NodeAffinity", "{addedAffinity: 5}", ["args.addedAffinity: expected a mapping, got 5"]),
    ],
    ids=["names", "no arguments", "unknown argument", "wrong argument"],
)
def test_validate_names_file_and_place_of_every_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    plugin: str,
    configured: str,
    args: str,
    why: list[str],
) -> None:
    file = tmp_path / "config.yaml"
    names = ("one", "two")
    file.write_text(
        HEAD + "".join(PROFILE.format(name=n, plugin=plugin, configured=configured, args=args) for n in names)
    )
    monkeypatch.setattr("sys.argv", ["gangline", "config", "validate", str(file)])

    with pytest.raises(SystemExit) as ended:
        main.main()

    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1 and len(lines) == len(names) * len(why)
    for i, line in enumerate(lines):
        assert line.startswith(f"gangline: {file}: profiles[{i // len(why)}].") and why[i % len(why)] in line


def test_an_argument_that_the_type_would_pass_over_is_refused() -> None:

    with pytest.raises(ConfigError) as error:
        decode_args("f.yaml", "args", {"nod_label": "x"}, Args)

    assert str(error.value) == "f.yaml: args.nod_label: unknown field; did you mean node_label?"
