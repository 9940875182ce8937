"""Where components are drawn: every sender before its receivers, circles included, and always alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.ui.graph import layers_of

NAMES = [f"c{number}" for number in range(12)]
EDGES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=40)


@given(edges=EDGES)
def test_each_component_is_drawn_once_and_always_there(edges: list[tuple[str, str]]) -> None:
    layers = layers_of(NAMES, edges)
    assert sorted(name for layer in layers for name in layer) == sorted(NAMES)
    assert all(layers)
    assert layers_of(NAMES, edges) == layers


@given(edges=EDGES)
def test_without_circles_a_receiver_is_one_layer_after_the_last_of_its_senders(edges: list[tuple[str, str]]) -> None:
    forward = [(min(edge, key=NAMES.index), max(edge, key=NAMES.index)) for edge in edges if edge[0] != edge[1]]
    layers = layers_of(NAMES, forward)
    depth = {name: index for index, layer in enumerate(layers) for name in layer}
    for receiver in NAMES:
        assert depth[receiver] == max((depth[sender] + 1 for sender, to in forward if to == receiver), default=0)


def test_lines_that_need_not_cross_do_not() -> None:
    assert layers_of(["a", "b", "y", "x"], [("a", "x"), ("b", "y")]) == [["a", "b"], ["x", "y"]]


def test_who_sends_to_itself_or_in_a_circle_is_drawn() -> None:
    assert layers_of(["a", "b"], [("a", "a"), ("a", "b"), ("b", "a")]) == [["a"], ["b"]]
    assert layers_of([], []) == []
