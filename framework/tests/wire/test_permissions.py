"""What the annotation of a namespace lets its pods ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import model
from gangline.kube.resources import NAMESPACES
from gangline.state.cache import Cache
from gangline.wire.custom_resources import ALLOW
from gangline.wire.permissions import LONGEST, allowed_by, is_allowed


def may(annotations: dict[str, str] | None, permission: str = "min-runtime", namespace: str = "a") -> bool:
    store = Cache().store(NAMESPACES)
    store.upsert(model.Namespace(model.ObjectMeta("a", annotations=annotations)))
    return is_allowed(permission, namespace, store)


@pytest.mark.parametrize("text", ["min-runtime", " scheduling-map ,  min-runtime", "*", "max-runtime,*"])
def test_what_a_namespace_lists_is_allowed(text: str) -> None:
    assert may({ALLOW: text})


@pytest.mark.parametrize(
    "annotations",
    [None, {}, {ALLOW: ""}, {ALLOW: "max-runtime"}, {ALLOW: "min-runtime-x"}, {ALLOW: "min-runtime," + "x" * LONGEST}],
    ids=["none", "others", "empty", "another", "longer name", "too long"],
)
def test_all_else_is_not(annotations: dict[str, str] | None) -> None:
    assert not may(annotations)


def test_a_namespace_that_is_not_known_allows_nothing() -> None:
    assert not may({ALLOW: "*"}, namespace="b")


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert "" not in allowed_by({ALLOW: text})
