"""Every value that travels goes through JSON without loss."""

from enum import StrEnum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET, Struct

from s3unzip import model
from s3unzip.model import AfterSuccess, SourceAction, decode, encode

VALUES = [
    kind
    for kind in vars(model).values()
    if isinstance(kind, type) and issubclass(kind, Struct) and kind is not Struct
]
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    int: st.integers(0, 2**62),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    Any: st.none() | st.text(max_size=5),  # of JSON
}

PARTS = st.lists(st.builds(model.Pin, SIMPLE[int], st.none(), SIMPLE[str]), max_size=2).map(tuple)
SIMPLE[model.Pin] = st.builds(
    model.Pin, SIMPLE[int], *[st.none() | SIMPLE[str]] * 2, parts=st.just(UNSET) | PARTS
)

SIMPLE[AfterSuccess] = st.one_of(  # what fits the action
    st.just(AfterSuccess(SourceAction.DELETE)),
    st.builds(
        AfterSuccess,
        st.just(SourceAction.TAG),
        tags=st.dictionaries(SIMPLE[str], SIMPLE[str], min_size=1, max_size=2),
    ),
)
CHECKED = {  # options that are checked when they are made
    "key_template": st.sampled_from(["{member}", "x/{name}"]),
    "encoding": st.sampled_from([None, "cp437"]),
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint in SIMPLE:
        return SIMPLE[hint]
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    return _composed(hint)


def _composed(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return st.one_of([_values(one) for one in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(_values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_values, arguments))
    if origin is dict:
        return st.dictionaries(_values(arguments[0]), _values(arguments[1]), max_size=2)
    if issubclass(hint, Struct) or hasattr(hint, "_fields"):  # or a named tuple
        return st.builds(
            hint, **{n: CHECKED.get(n, _values(h)) for n, h in get_type_hints(hint).items()}
        )
    assert issubclass(hint, StrEnum)
    return st.sampled_from(list(hint))


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_a_value_goes_through_json_unchanged(kind: type[Struct], data: st.DataObject) -> None:
    """What is written by one step is what the next step reads."""
    value = data.draw(_values(kind))
    line = encode(value)
    assert b"\n" not in line
    assert decode(line, kind) == value
