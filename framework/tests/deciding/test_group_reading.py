"""Members of a gang are sorted into roles of like pods, and each role by number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gangline.deciding.group_reading import RoleKey, read_group
from gangline.deciding.likeness import likenesses
from gangline.state.pods import PodInfo
from gangline.testing import make_pod
from gangline.testing.gangs import GROUP, Gangs, fabric

NAMES = st.from_regex(r"[ab](-[0-9]{1,2}|-x|)", fullmatch=True)
MEMBERS = st.lists(st.tuples(NAMES, st.integers(1, 2)), min_size=1, max_size=12, unique_by=lambda member: member[0])


def by_number(pod: PodInfo) -> tuple[str, int]:
    head, _, tail = pod.name.rpartition("-")
    return (head, int(tail)) if tail.isdecimal() else (pod.name, -1)


@given(MEMBERS)
def test_members_are_in_roles_of_like_pods_and_worker_2_comes_before_worker_10(members: list[tuple[str, int]]) -> None:
    gangs = Gangs(fabric())
    gangs.define("gang", len(members))
    pods = [gangs.cache.record(make_pod(name, cpu=cpu, labels={GROUP: "gang"})) for name, cpu in members]
    expected: dict[RoleKey, list[PodInfo]] = {}
    for pod, like in zip(pods, likenesses(pods, gangs.runtime), strict=True):
        expected.setdefault(("", like), []).append(pod)

    _, roles = read_group(pods, gangs.runtime)

    assert list(roles) == list(expected)
    assert roles == {key: sorted(role, key=by_number) for key, role in expected.items()}
