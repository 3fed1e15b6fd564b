"""The paths of objects on the API server."""

from __future__ import annotations

import pytest

from gangline.kube.resources import NODES, PODS


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("p-0.a", "p-0.a"),
        ("../nodes/n", "..%2Fnodes%2Fn"),
        ("a?b=c#d", "a%3Fb%3Dc%23d"),
        ("a b\n", "a%20b%0A"),
        ("ü", "%C3%BC"),
        ("50%", "50%25"),
    ],
)
def test_a_name_is_one_part_of_the_path_whatever_it_is(name: str, path: str) -> None:
    assert PODS.path("default", name, "binding") == f"/api/v1/namespaces/default/pods/{path}/binding"
    assert PODS.path(name) == f"/api/v1/namespaces/{path}/pods"
    assert NODES.path(None, name) == f"/api/v1/nodes/{path}"
