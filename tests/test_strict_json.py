"""JSON without what its standard does not have."""

import pytest

from turnwise.strict_json import DECODER


def test_it_reads_json() -> None:
    assert DECODER.decode('{"a": [1, null, {"a": 2.5}]}') == {"a": [1, None, {"a": 2.5}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "a key is there twice"),
        ("NaN", "NaN is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        ('{"a": -1e999}', "-1e999 is too large a number"),
        ("{'a': 1}", "Expecting property name"),
        ("{} {}", "Extra data"),
    ],
)
def test_it_refuses_other_text(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DECODER.decode(text)
