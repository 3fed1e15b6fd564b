"""The page over HTTP: who may see what, what is said to browsers, and what changes."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack

import pytest

from gangline.errors import ConfigError
from gangline.page.serving import FILES, MOST_OF_ONE
from gangline.process.listening import DRAIN
from gangline.testing import make_pod

from ..eventually import until
from .served_page import ServedPage, remedies_told

SCRIPT = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/state", "/ui/events", "/ui/why", "/ui/remedies", "/ui/page.js", "/ui/style.css"]
)
async def test_nothing_is_shown_to_who_is_not_known(served: ServedPage, path: str) -> None:
    for token in ("", "stranger"):
        async with served.ask(path, token) as answer:
            assert answer.status == 401


async def test_a_viewer_sees_the_namespaces_whose_pods_they_may_list_and_the_others_without_names(
    served: ServedPage,
) -> None:
    admin, one, nothing = [await served.state(token) for token in ("admin", "one", "nothing")]

    assert set(admin["of"]) == {"one", "two"}
    assert one["of"] == {"one": admin["of"]["one"]}
    assert nothing["of"] == {}
    assert admin["all"] == one["all"] == nothing["all"]
    assert not {"two", "q"} & set(re.findall(r'"([^"]*)"', json.dumps(one)))
    assert len(set(one["all"]["nodes"]["n"][1])) == 3  # free, mine, and somebody's


async def test_rights_are_kept_for_a_while(served: ServedPage) -> None:
    for _ in range(3):
        await served.state("one")

    assert sorted(served.reviews.asked) == [("one", ""), ("one", "one"), ("one", "two")]


async def test_without_an_answer_of_the_api_server_nobody_sees_anything(served: ServedPage) -> None:
    served.reviews.is_down = True
    async with served.ask("/ui/state") as answer:
        assert answer.status == 503


async def test_changes_come_as_events_and_only_those_that_the_viewer_may_see(served: ServedPage) -> None:
    before = await served.state("one")
    served.shown.bind(
        make_pod("q2", gpus=1, node="n", namespace="two"), make_pod("p2", gpus=1, node="n", namespace="one")
    )

    ((kind, event),) = await served.events(before["id"], "one", 1)

    assert kind == "message" and set(event["of"]) == {"one"} and set(event["of"]["one"]["pods"]) == {"p2"}
    assert set(event["all"]["nodes"]) == {"n"} and event["id"] != before["id"]


async def test_rows_that_are_gone_are_told_also_with_the_last_of_a_namespace(served: ServedPage) -> None:
    before = await served.state("one")
    served.shown.cache.remove_pod("pod-one-p")

    ((_, event),) = await served.events(before["id"], "one", 1)

    assert event["of"]["one"]["pods"] == {"p": None}


@pytest.mark.parametrize("position", ["", "nonsense", "0.1.x", "a.b.c", "." * 5, "9" * 400])
async def test_who_comes_with_an_unknown_position_starts_anew(served: ServedPage, position: str) -> None:
    assert await served.events(position, "admin", 1) == [("reset", {})]


async def test_a_position_of_somebody_who_sees_more_is_no_position(served: ServedPage) -> None:
    admin = await served.state("admin")

    assert await served.events(admin["id"], "one", 1) == [("reset", {})]


async def test_a_stream_ends_and_goes_on_from_where_it_was() -> None:
    served = ServedPage(stream=0.05)
    await served.served.open()
    before = await served.state("one")

    assert await served.events(before["id"], "one", 1) == []
    served.shown.bind(make_pod("p2", gpus=1, node="n", namespace="one"))
    await served.feed.after((await served.feed.newest()).number)
    assert len(await served.events(before["id"], "one", 1)) == 1
    served.feed.close()
    await served.served.close()


async def test_an_open_stream_does_not_keep_the_process_from_its_end(served: ServedPage) -> None:
    position = (await served.state("one"))["id"]
    waiting = asyncio.create_task(served.events(position, "one", 1))
    await until(lambda: served.feed.followers == 1)
    async with asyncio.timeout(DRAIN - 1):
        await served.served.close()

    assert await waiting == [("reset", {})]


async def test_one_user_has_so_many_streams_at_most(served: ServedPage) -> None:
    position = (await served.state("one"))["id"]
    async with AsyncExitStack() as streams:
        for _ in range(MOST_OF_ONE):
            await streams.enter_async_context(served.ask("/ui/events", "one", **{"Last-Event-ID": position}))
        refused = await streams.enter_async_context(served.ask("/ui/events", "one"))
        other = await streams.enter_async_context(served.ask("/ui/events", "admin"))

        assert (refused.status, other.status) == (503, 200)
        assert refused.headers["Retry-After"]


@pytest.mark.parametrize("path", ["/ui", "/ui/state", *(f"/ui/{name}" for name in FILES)])
async def test_browsers_are_told_to_run_nothing_but_the_page(served: ServedPage, path: str) -> None:
    async with served.ask(path) as answer:
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'" and policy["require-trusted-types-for"] == "'script'"
        assert "unsafe" not in str(policy)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_names_stay_data(served: ServedPage) -> None:
    served.shown.wait(make_pod(SCRIPT, gpus=1, namespace="one", annotations={"note": SCRIPT}))

    async with served.ask("/ui/state") as answer:
        assert answer.content_type == "application/json"
        assert SCRIPT in str((await answer.json())["of"]["one"]["workloads"])


async def test_the_picture_is_begun_with_the_page_for_those_who_may_see_it(served: ServedPage) -> None:
    async with served.ask("/ui", "stranger"):
        assert not served.feed.is_working
    async with served.ask("/ui"):
        assert served.feed.is_working


async def why(served: ServedPage, token: str, namespace: str, pod: str) -> object:
    async with served.ask(f"/ui/why?namespace={namespace}&pod={pod}", token) as answer:
        assert answer.status == 200
        return await answer.json()


async def test_decisions_are_shown_of_pods_that_the_viewer_may_list(served: ServedPage) -> None:
    served.decisions = {f"pod-{pod}": {"pod": pod, "node": "n"} for pod in ("one-p", "two-q")}

    assert await why(served, "one", "one", "p") == {"pod": "one-p", "node": "n"}
    assert await why(served, "admin", "two", "q") == {"pod": "two-q", "node": "n"}
    for token, namespace, pod in [("one", "two", "q"), ("one", "one", "q"), ("nothing", "one", "p"), ("one", "", "p")]:
        assert await why(served, token, namespace, pod) is None


async def test_the_api_server_is_not_asked_about_namespaces_without_pods(served: ServedPage) -> None:
    for number in range(5):
        await why(served, "one", f"guess-{number}", "p")

    assert {namespace for _, namespace in served.reviews.asked} <= {"", "one", "two"}


async def test_the_whole_picture_is_compressed_for_who_takes_that(served: ServedPage) -> None:
    async with served.ask("/ui/state", **{"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "n" in (await answer.json())["all"]["nodes"]


@pytest.mark.parametrize("path", ["/ui", "/ui/page.js", "/ui/style.css"])
async def test_files_are_compressed_for_who_takes_that(served: ServedPage, path: str) -> None:
    gzip, identity = {"Accept-Encoding": "gzip"}, {"Accept-Encoding": "identity"}
    async with served.ask(path, **gzip) as small, served.ask(path, **identity) as large:
        assert small.headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in large.headers
        assert small.headers["Vary"] == large.headers["Vary"] == "Accept-Encoding"
        assert await small.text() == await large.text()


async def test_many_viewers_are_served_at_the_same_time(served: ServedPage) -> None:
    position = (await served.state())["id"]
    waiting = [asyncio.create_task(served.events(position, "admin", 1)) for _ in range(5)]
    await asyncio.sleep(0)
    served.shown.bind(make_pod("new", gpus=1, node="n", namespace="one"))

    assert len({json.dumps(events) for events in await asyncio.gather(*waiting)}) == 1


async def test_what_would_let_a_unit_start_is_told_to_who_may_see_the_unit(waiting: ServedPage) -> None:
    told = await remedies_told(waiting, "one", "pod-one-w", "admin")

    assert [each["sentence"] for each in told["remedies"]] == ["Wait until ..., for example when pod two/q ends."]
    assert await remedies_told(waiting, "one", "pod-one-w", "nothing") is None


async def test_of_other_namespaces_no_pod_is_named_in_what_would_let_a_unit_start(waiting: ServedPage) -> None:
    told = await remedies_told(waiting, "one", "pod-one-w", "one")

    assert told["remedies"][0]["values"]["gpus"] == 1
    assert "two" not in json.dumps(told)


@pytest.mark.parametrize(("namespace", "unit"), [("two", "pod-one-w"), ("", "pod-one-w"), ("one", ""), ("one", "x")])
async def test_changes_are_tried_for_units_alone_that_wait_in_their_namespace(
    waiting: ServedPage, namespace: str, unit: str
) -> None:
    waiting.remedies.update({"": waiting.remedies["pod-one-w"], "x": waiting.remedies["pod-one-w"]})

    assert await remedies_told(waiting, namespace, unit, "admin") is None


async def test_one_viewer_does_not_take_the_places_of_all(waiting: ServedPage) -> None:
    waiting.answering.clear()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(remedies_told(waiting, "one", "pod-one-w", "one")) for _ in range(4)]
        await until(lambda: sum(each.done() for each in asked) == 2)
        assert [each.result() for each in asked if each.done()] == [
            "you ask too much at a time: ask again in 5 s\n"
        ] * 2
        other = group.create_task(remedies_told(waiting, "one", "pod-one-w", "admin"))
        waiting.answering.set()
    assert other.result()["unit"] == "pod one/w"
    assert (await remedies_told(waiting, "one", "pod-one-w", "one"))["unit"] == "pod one/w"


async def test_why_changes_cannot_be_tried_is_said(waiting: ServedPage) -> None:
    waiting.remedies["pod-one-w"] = ConfigError("", "", "there is no answer")

    assert await remedies_told(waiting, "one", "pod-one-w", "one") == "there is no answer\n"
