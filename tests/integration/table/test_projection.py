"""The projection of a row to a document: which selections are accepted, and what they make of a row."""

import pytest

from icecdc_core.errors import ConfigError
from icecdc_core.table.select import open_projection

SCHEMA = (
    "id bigint, email string, lat double, lon double, seen timestamp, tags array<string>, place struct<x:int,y:int>"
)


@pytest.fixture
def projection(spark):
    schema = spark.createDataFrame([], SCHEMA).schema
    return lambda select, alias="": open_projection(spark, schema, select, alias, ["id"], {})


class DescribeProjection:
    def it_knows_the_columns_that_it_uses(self, projection):
        for select, used in (
            (["id", "sha2(email, 256) AS owner"], {"id", "email"}),
            (["* EXCEPT (email, seen)"], {"id", "lat", "lon", "tags", "place"}),
            (["1 AS one"], set()),
            (["upper(email) AS mail", "concat(mail, '!') AS loud"], {"email"}),  # a field of a field
        ):
            assert projection(select).used_columns == used

    def it_knows_the_fields_within_columns_that_it_computes_with(self, spark):
        nested = "deep struct<inner:struct<a:int>>, items array<struct<inner:struct<a:int>>>"
        schema = spark.createDataFrame([], f"{SCHEMA}, {nested}").schema
        for select, expected in (
            (["* EXCEPT (tags)", "struct(lat, lon) AS point"], {"lat", "lon"}),
            (["place", "place.x AS x", "place.* EXCEPT (x)"], set()),
            (["cast(place AS string) AS p"], {"place"}),
            (["place.x + 1 AS p"], {"place.x"}),
            (["to_json(struct(place.*)) AS p"], {"place.x", "place.y"}),
            (["cast(deep.inner AS string) AS p"], {"deep.inner"}),
            (["cast(deep.inner.a AS string) AS p"], {"deep.inner.a"}),
            (["to_json(items.inner) AS p"], {"items.element.inner"}),
            (["array_max(items.inner.a) AS p"], {"items.element.inner.a"}),
            (["to_json(items[0].inner) AS p"], {"items"}),
            (["transform(items, i -> to_json(i.inner)) AS p"], {"items"}),
            (["deep.inner AS i", "hash(i) AS p"], {"deep.inner"}),
        ):
            assert open_projection(spark, schema, select, "", ["id"], {}).computed_from == expected


NOT_DETERMINISTIC = (
    "rand() AS r", "uuid() AS u", "current_timestamp() AS now", "current_user() AS me",
    "unix_timestamp() AS now", "cast('now' AS timestamp) AS now", "to_date('today') AS today",
    "cast(concat('to', 'day') AS DATE) AS today",
    "coalesce(seen, cast(element_at(map(1, 'now'), 1) AS TIMESTAMP)) AS seen",
    "datediff(seen, upper('tomorrow')) AS days", "try_to_timestamp(lower('NOW')) AS now",
    "seen > 'yesterday' AS is_new", "base64(aes_encrypt(email, '0000111122223333')) AS mail",
    "reflect('java.lang.System', 'getenv', 'HOME') AS home",
)  # fmt: skip


class DescribeOpenProjection:
    @pytest.mark.parametrize(
        ("select", "problem"),
        [
            (["emial"], "cannot be resolved"),
            (["id +"], "is not a selection"),
            (["size(array(*)) AS columns"], "select is not a selection of the table's columns"),
            *(([each], "not deterministic") for each in NOT_DETERMINISTIC),
            (["(SELECT max(id) FROM range(9)) AS top"], "subquery"),
            (["id IN (SELECT id FROM range(9)) AS known"], "subquery"),
            (["explode(tags) AS tag"], "one row of each row of the table .Spark plans Generate"),
            (["count(*) AS n"], "one row of each row of the table .Spark plans Aggregate"),
            (["row_number() OVER (ORDER BY id) AS n"], "one row of each row of the table"),
            (["no_such_function(id) AS n"], "not a selection of the table's columns: .UNRESOLVED_ROUTINE"),
            (["email AS x", "lat AS X"], "fields twice"),
            (["*", "email"], "fields twice"),
            (["named_struct('a', lat, 'a', lon) AS p"], r"fields twice .*: p\.a"),
            (["array(named_struct('x', named_struct('a', lat, 'A', lon))) AS p"], r"fields twice .*: p\.x\.a"),
            (["sha2(email, 256) AS id"], "not the identifier column of that name"),
            (["id + 1 AS ID"], "cannot be masked"),
        ],
    )
    def it_refuses(self, projection, select, problem):
        with pytest.raises(ConfigError, match=problem) as refused:
            projection(select)
        assert refused.value.subject == "select"

    def it_accepts_the_identifier_as_it_is_and_what_only_looks_as_if_it_changed(self, projection):
        for text in (
            *("id", "*", "cast(id AS string) AS id", "id AS ID", "id AS key"),
            "aes_encrypt(email, '0000111122223333', 'ECB') AS mail",
            "aes_encrypt(email, '0000111122223333', 'CBC', 'DEFAULT', unhex(substr(sha1(email), 1, 32))) AS mail",
            *("email = 'today' AS is_word", "date '2026-01-31' AS day", "to_date(concat('2026', '-01-31')) AS day"),
            "lake.system.bucket(16, id) AS bucket",
        ):
            assert projection([text]).schema.names
