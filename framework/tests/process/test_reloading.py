"""A configuration is taken when it has changed and is right; else the old one stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.config import SchedulerConfiguration
from gangline.errors import PluginError
from gangline.process.reloading import Reloader

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def profile(name: str) -> str:
    return f"{HEAD}profiles:\n- schedulerName: {name}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(profile("one"))
    return path


def test_a_changed_file_is_taken_once(file: Path) -> None:
    taken: list[SchedulerConfiguration] = []
    reloader = Reloader([file], taken.append)
    assert not reloader.look()

    file.write_text(profile("two"))

    assert reloader.look() and not reloader.look()
    assert [each.profiles[0].scheduler_name for each in taken] == ["two"]


@pytest.mark.parametrize("text", ["{", HEAD + "profilez: []\n"], ids=["not YAML", "unknown field"])
def test_a_file_with_an_error_is_not_taken_and_said_once(
    file: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[SchedulerConfiguration] = []
    reloader = Reloader([file], taken.append)
    file.write_text(text)

    assert not reloader.look() and not reloader.look()

    assert not taken and len(caplog.records) == 1
    assert "configuration not reloaded, the old one stays" in caplog.text and str(file) in caplog.text


def test_a_fault_does_not_end_the_process_and_is_said_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    def use(config: SchedulerConfiguration) -> None:
        raise ZeroDivisionError("of a plugin")

    reloader = Reloader([file], use)
    file.write_text(profile("two"))

    assert not reloader.look() and not reloader.look()

    (record,) = caplog.records
    assert record.message == "configuration not reloaded" and record.exc_info


def test_a_file_that_is_gone_and_comes_back_changed_is_taken(file: Path) -> None:
    taken: list[SchedulerConfiguration] = []
    reloader = Reloader([file], taken.append)
    file.unlink()
    assert not reloader.look()

    file.write_text(profile("two"))

    assert reloader.look() and len(taken) == 1


def test_a_configuration_that_no_profile_can_be_built_from_is_not_taken(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(config: SchedulerConfiguration) -> None:
        raise PluginError("Broken", "", "cannot be built")

    file.write_text(profile("one"))
    reloader = Reloader([file], refuse)
    file.write_text(profile("two"))

    assert not reloader.look() and "plugin Broken: cannot be built" in caplog.text


async def test_without_files_there_is_nothing_to_look_at() -> None:
    taken: list[SchedulerConfiguration] = []

    await Reloader([], taken.append).run()

    assert not taken
