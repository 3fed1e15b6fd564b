"""Node selectors over columns agree with a plain reading of each node, and refuse what makes no sense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import InvalidObject
from gangline.model import NodeSelector, NodeSelectorTerm, Requirement
from gangline.state.node_selection import check_selector, match_labels, match_selector, names_of
from gangline.testing import cluster, make_node

VALUES = ["1", "2", "10", "x", None]
NODES = cluster(make_node(f"n{i}", labels={} if v is None else {"key": v}) for i, v in enumerate(VALUES)).nodes.view()


def term(*expressions: Requirement, fields: tuple[Requirement, ...] = ()) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=list(expressions), match_fields=list(fields))


def matching(*terms: NodeSelectorTerm) -> list[str | None]:
    mask = match_selector(NodeSelector(list(terms)), NODES)
    return [value for value, matches in zip(VALUES, mask.tolist(), strict=True) if matches]


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ["1", "x", "unseen"], ["1", "x"]),
        ("In", ["unseen"], []),
        ("NotIn", ["1", "2"], ["10", "x", None]),
        ("Exists", [], ["1", "2", "10", "x"]),
        ("DoesNotExist", [], [None]),
        ("Gt", ["1"], ["2", "10"]),
        ("Lt", ["10"], ["1", "2"]),
    ],
    ids=lambda value: str(value),
)
def test_each_operator_matches_what_kubernetes_says(
    operator: str, values: list[str], expected: list[str | None]
) -> None:
    assert matching(term(Requirement("key", operator, values))) == expected


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["In", "NotIn"]), st.sampled_from(["1", "2", "x"])), max_size=3), max_size=3
    )
)
def test_terms_are_ored_and_their_requirements_anded(terms: list[list[tuple[str, str]]]) -> None:
    def holds(value: str | None, operator: str, wanted: str) -> bool:
        return (value == wanted) == (operator == "In")

    expected = [v for v in VALUES if any(each and all(holds(v, *r) for r in each) for each in terms)]

    assert matching(*(term(*(Requirement("key", o, [v]) for o, v in each)) for each in terms)) == expected


def test_an_empty_term_and_no_term_match_nothing() -> None:
    assert matching() == [] and matching(term()) == []


def test_a_term_that_makes_no_sense_matches_nothing_and_spoils_no_other() -> None:
    assert matching(term(Requirement("key", "Gt", ["x"])), term(Requirement("key", "In", ["2"]))) == ["2"]


@pytest.mark.parametrize(
    ("operator", "expected"), [("In", ["2"]), ("NotIn", ["1", "10", "x", None])], ids=["In", "NotIn"]
)
def test_a_field_selects_by_the_name_of_the_node(operator: str, expected: list[str | None]) -> None:
    assert matching(term(fields=(Requirement("metadata.name", operator, ["n1"]),))) == expected


def test_labels_all_have_to_be_there() -> None:
    assert match_labels({"key": "2", "kubernetes.io/hostname": "n1"}, NODES).tolist() == [False, True, *[False] * 3]
    assert match_labels({}, NODES).all()


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        (
            Requirement("k", "Near", ["1"]),
            ".matchExpressions[0].operator: 'Near': must be one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
        ),
        (Requirement("k", "In"), ".matchExpressions[0].values: []: must not be empty for In"),
        (Requirement("k", "Exists", ["1"]), ".matchExpressions[0].values: ['1']: must be empty for Exists"),
        (Requirement("k", "Gt", ["x"]), ".matchExpressions[0].values: ['x']: must be exactly one integer for Gt"),
        (
            Requirement("k", "Lt", ["1", "2"]),
            ".matchExpressions[0].values: ['1', '2']: must be exactly one integer for Lt",
        ),
    ],
    ids=["operator", "no values", "needless values", "no integer", "two integers"],
)
def test_a_requirement_that_makes_no_sense_is_named(requirement: Requirement, message: str) -> None:
    with pytest.raises(InvalidObject) as error:
        check_selector(NodeSelector([term(requirement)]), "spec")

    assert str(error.value) == f"spec.nodeSelectorTerms[0]{message}"


def test_only_the_name_is_a_field() -> None:
    with pytest.raises(InvalidObject, match=r"only metadata\.name is a field of nodes"):
        check_selector(NodeSelector([term(fields=(Requirement("metadata.uid", "In", ["1"]),))]), "spec")
    with pytest.raises(InvalidObject, match="needs In or NotIn and exactly one value"):
        check_selector(NodeSelector([term(fields=(Requirement("metadata.name", "In", ["1", "2"]),))]), "spec")


def test_names_are_known_only_when_every_term_gives_one() -> None:
    named = [term(fields=(Requirement("metadata.name", "In", [name]),)) for name in ("a", "b")]
    both = term(fields=(*named[0].match_fields, *named[1].match_fields))

    assert names_of(named) == frozenset("ab")
    assert names_of([both]) == frozenset()
    assert names_of([*named, term(Requirement("key", "Exists"))]) is None
    assert names_of([]) is None
