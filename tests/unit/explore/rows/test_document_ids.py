"""From a document's id to the values of its identifier columns."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from icecdc_core.errors import ConfigError
from icecdc_core.explore.rows import identifier_texts

LONG, TEXT = T.LongType(), T.StringType()
DIGEST = "a1" * 32


class DescribeIdentifierTexts:
    @pytest.mark.parametrize(
        ("given", "columns", "expected"),
        [
            ("7", {"id": LONG}, {"id": "7"}),
            ("a|b", {"name": TEXT}, {"name": "a|b"}),
            ("7|x", {"id": LONG, "name": TEXT}, {"id": "7", "name": "x"}),
            (r"7|a\|b\\c", {"id": LONG, "name": TEXT}, {"id": "7", "name": r"a|b\c"}),
            ("|", {"a": TEXT, "b": TEXT}, {"a": "", "b": ""}),
            ('{"name": "a|b", "id": 7}', {"id": LONG, "name": TEXT}, {"id": "7", "name": "a|b"}),
            ('{"on": true}', {"on": T.BooleanType()}, {"on": "true"}),
            ('{"price": 1.50}', {"price": T.DecimalType(9, 2)}, {"price": "1.50"}),
            (DIGEST, {"name": TEXT}, {}),
            (DIGEST, {"id": LONG}, {"id": DIGEST}),
        ],
    )
    def it_is_a_text_for_each_column(self, given, columns, expected):
        assert identifier_texts(given, list(columns), list(columns.values())) == expected

    def it_may_begin_like_json(self):
        given = "{6F9619FF-8B86-D011-B42D-00CF4FC964FF}"
        assert identifier_texts(given, ["id"], [TEXT], is_id=True) == {"id": given}

    @pytest.mark.parametrize(
        ("given", "part"),
        [
            ("7", "1 parts"),
            ("7|a|b", "3 parts"),
            ('{"id": 7}', "identifier columns are id, name"),
            ('{"id": 7, "name": null}', "each with a single value"),
            ('{"id": 7', "not valid JSON"),
        ],
    )
    def it_refuses_others_with_an_example(self, given, part):
        with pytest.raises(ConfigError) as caught:
            identifier_texts(given, ["id", "name"], [LONG, TEXT])
        expected = [part, f"document_id={given!r}", 'such as id|name, or {"id": "...", "name": "..."}']
        assert [text for text in expected if text not in str(caught.value)] == []
