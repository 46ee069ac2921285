"""Every type against a real server: the mapping takes the documents, `_source` is the row, queries find it."""

import json
from typing import ClassVar

import pytest
from opensearchpy.exceptions import RequestError

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.changes import read_changes
from icecdc_core.errors import ConfigError, UnsupportedTypeError
from icecdc_core.jobs.setup import check_setup
from icecdc_core.opensearch.indexes import check_mapping
from tests.unit.documents.test_mapping import SCHEMA

# Each finds one row of the table with every type.
QUERIES = [
    {"term": {"plain boolean": True}},
    {"term": {"plain int": 2147483647}},
    {"range": {"plain decimal(38, 37)": {"gte": 9.5}}},
    {"match": {"struct uuid.v": "F79C3E09"}},
    {"term": {"list uuid.keyword": "f79c3e09-677c-4bbd-a479-3f349cb785e7"}},
    {"range": {"plain date": {"gt": "9999-12-31"}}},
    {"range": {"list timestamp": {"lt": "0002-01-01"}}},
    {"range": {"struct timestamptz.v": {"gte": "1969-12-31T23:59:59Z", "lt": "1970-01-01T00:00:00Z"}}},
    {"term": {"map long.k": "9223372036854775807"}},
    {"term": {"map long": "9223372036854775807"}},
]


# Of every type of Iceberg that Spark can read: two values in SQL, and what they are in a document.
TYPES = {
    "boolean": ("true", "false", True, False),
    "int": ("-2147483648", "2147483647", -2147483648, 2147483647),
    "long": ("-9223372036854775808", "9223372036854775807", -9223372036854775808, 9223372036854775807),
    "float": ("-0.0F", "1.4E-45F", -0.0, 1.4e-45),
    "double": ("-0.0D", "1.7976931348623157E308D", -0.0, 1.7976931348623157e308),
    "decimal(38, 37)": ("-1e-37BD", "cast('9.9999999999999999999999999999999999999' as decimal(38, 37))",
                        f"-0.{'0' * 36}1", f"9.{'9' * 37}"),
    "date": ("date'0001-01-01'", "date'+10000-01-01'", "0001-01-01", "+10000-01-01"),
    "timestamp": ("timestamp_ntz'0001-01-01 00:00:00.000001'", "timestamp_ntz'9999-12-31 23:59:59.999999'",
                  "0001-01-01T00:00:00.000001", "9999-12-31T23:59:59.999999"),
    "timestamptz": ("timestamp_micros(-1)", "timestamp_micros(9223372036854775807)",
                    "1969-12-31T23:59:59.999999Z", "+294247-01-10T04:00:54.775807Z"),
    "string": ("''", "'{\"a\": \"\\\\u0001\"}\\u0001\\n\\u2028'", "", '{"a": "\\u0001"}\x01\n\u2028'),
    "uuid": ("'f79c3e09-677c-4bbd-a479-3f349cb785e7'", "'00000000-0000-0000-0000-000000000000'",
             "f79c3e09-677c-4bbd-a479-3f349cb785e7", "00000000-0000-0000-0000-000000000000"),
    "fixed[4]": ("X'00FF00FF'", "X'00000000'", "AP8A/w==", "AAAAAA=="),
    "binary": ("X''", "unhex(repeat('00', 60))", "", "A" * 80),
    "variant": ("parse_json('{\"b\": 1.50, \"a\": [1, null, {}]}')", "parse_json('7')",
                {"a": [1, None, {}], "b": 1.5}, 7),
    "unknown": ("null", "null", None, None),
}  # fmt: skip
ONLY_V3 = ("variant", "unknown")
SHAPES = {
    "plain": ("{}", lambda value: value),
    "struct": ("named_struct('v', {})", lambda value: {"v": value}),
    "list": ("array({}, null)", lambda value: [value, None]),
    "map": ("map('k', {})", lambda value: {"k": value}),
}


def columns_of(version):
    """A column of every type in every shape, as Iceberg's schema JSON writes it."""
    types = [kind for kind in TYPES if version >= 3 or kind not in ONLY_V3]
    ids = iter(range(10, 1000))
    for kind in types:
        # Parquet holds no struct, list or map of nothing but nulls.
        for shape in SHAPES if kind != "unknown" else ("plain",):
            key = next(ids)
            inner = {
                "plain": kind,
                "struct": {"type": "struct", "fields": [field(next(ids), "v", kind)]},
                "list": {"type": "list", "element-id": next(ids), "element-required": False, "element": kind},
                "map": {"type": "map", "key-id": next(ids), "key": "string", "value-id": next(ids),
                        "value-required": False, "value": kind},
            }[shape]  # fmt: skip
            yield kind, shape, field(key, f"{shape} {kind}", inner)


def field(key, name, kind="long"):
    return {"id": key, "name": name, "required": False, "type": kind}


def text(documents):
    """Documents as text, which tells -0.0 from 0.0 and 1 from 1.0."""
    return {key: json.dumps(document, sort_keys=True) for key, document in documents.items()}


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.long), 3])
def it_takes_every_type_the_whole_way(spark, sql, create_table, new_index, opensearch, name, indexed, version):
    columns = list(columns_of(version))
    create_table([field(1, "id"), *(declared for _, _, declared in columns)], version)
    shaped = {number: [SHAPES[shape][0].format(TYPES[kind][number]) for kind, shape, _ in columns] for number in (0, 1)}
    nulls = ", ".join(["null"] * len(columns))
    sql(
        f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM (SELECT 1L, {', '.join(shaped[0])} "
        f"UNION ALL SELECT 2L, {', '.join(shaped[1])} UNION ALL SELECT 3L, {nulls} "
        f"UNION ALL SELECT 4L, {', '.join(shaped[1])})"
    )
    config = new_index()
    # Iceberg's own scans of lists and maps of variants fail with its vectorized reader.
    spark.conf.set("spark.sql.iceberg.vectorization.enabled", "false")
    try:
        sql("UPDATE {t} SET `struct timestamptz` = named_struct('v', timestamp_micros(-2)) WHERE id = 1")
        sql("DELETE FROM {t} WHERE id = 4")
    finally:
        spark.conf.unset("spark.sql.iceberg.vectorization.enabled")
    report = sync_changes(spark, config)

    def document(identifier, number):
        values = {
            declared["name"]: None if number is None else SHAPES[shape][1](TYPES[kind][2 + number])
            for kind, shape, declared in columns
        }
        return {"id": identifier, **values}

    expected = {"1": document(1, 0), "2": document(2, 1), "3": document(3, None)}
    expected["1"]["struct timestamptz"] = {"v": "1969-12-31T23:59:59.999998Z"}
    validation = validate_table(spark, config)
    assert text(indexed()) == text(expected)
    found = [opensearch.count(index=name, body={"query": query})["count"] for query in QUERIES]
    assert [query for query, count in zip(QUERIES, found, strict=True) if count != 1] == []
    with pytest.raises(RequestError, match="strict_dynamic_mapping_exception"):
        opensearch.index(index=name, id="8", body={"struct int": {"stray": 1}})  # no field is mapped by guessing
    assert (report.upserts, report.deletes, validation.ok, validation.source_rows) == (1, 1, True, 3)


class DescribeIdentifiersOfEveryType:
    def it_builds_one_id_from_all_of_them(self, spark, sql, create_table, new_index, indexed):
        kinds = [kind for kind in TYPES if kind not in ("float", "double", *ONLY_V3)]
        create_table([*(field(number, kind, kind) for number, kind in enumerate(kinds, 1)), field(50, "v")])
        for number in (0, 1):
            sql(f"INSERT INTO {{t}} SELECT {', '.join(TYPES[kind][number] for kind in kinds)}, {number}L")
        config = new_index(identifier_columns=kinds)
        sql("UPDATE {t} SET v = 7 WHERE v = 0", "DELETE FROM {t} WHERE v = 1")
        report = sync_changes(spark, config)
        expected = (
            "true|-2147483648|-9223372036854775808|-0.0000000000000000000000000000000000001|0001-01-01|"
            "0001-01-01T00:00:00.000001|1969-12-31T23:59:59.999999Z||f79c3e09-677c-4bbd-a479-3f349cb785e7|AP8A/w==|"
        )
        found = {key: document["v"] for key, document in indexed().items()}
        assert (found, report.deletes) == ({expected: 7}, 1)

    def it_accepts_strings_that_cannot_be_ids(self, spark, sql, new_index, indexed):
        config = new_index(
            "CREATE TABLE {t} (id STRING, v STRING) USING iceberg",
            "INSERT INTO {t} SELECT id, 'a' FROM VALUES (''), (' '), (repeat('é', 20000)), ('a|b'), ('{\"a\":1}'), "
            "('a\\nb'), ('\\u0001'), (cast(X'61FF62' AS STRING)), (cast(X'61FE62' AS STRING)), ('_id'), ('NULL') t(id)",
        )
        sql("UPDATE {t} SET v = 'b'")
        sync_changes(spark, config)
        found = sorted((document["id"], document["v"]) for document in indexed().values())
        texts = ["", " ", "é" * 20000, "a|b", '{"a":1}', "a\nb", "\x01", "a\ufffdb", "a\ufffdb", "_id", "NULL"]
        assert (found, validate_table(spark, config).ok) == (sorted((each, "b") for each in texts), True)


class DescribeNamesInARealTable:
    NAMES = (
        "a.b", "a.c.d", "with space", ' lead', 'quo"te', "'single'", "back`tick", "back\\slash", "UPPER",
        "ünï¢ode\U0001f600",
        "per%cent", "new\nline", "{}", "*", "$x", "version", "routing", "index", "create", "_type", "_version_", "id_",
        "file_path", "pos", "_document_id", "_decision", "_inserted", "_inserts", "_deletes", "_more", "_doubtful",
        "_carried", "_wanted_0", "_wanted_ordinal", "_touched_0", "surplus", "row", "key0", "value0", "inserted",
        "deleted", "id.of", "digest", "doc", "found", "documents", "action", "op",
    )  # fmt: skip
    IDENTIFIERS = ("_hash", "_rows", "_digest", 'we`ird "i.d\\%')

    def it_keeps_every_name_that_a_document_can_have(self, spark, sql, new_index, indexed):
        names = [*self.IDENTIFIERS, *self.NAMES]
        declared = ", ".join(f"`{name.replace('`', '``')}` INT" for name in names)
        sql(
            f"CREATE TABLE {{t}} ({declared}) USING iceberg TBLPROPERTIES ('format-version' = '2', "
            "'write.update.mode' = 'copy-on-write', 'write.delete.mode' = 'merge-on-read')"
        )
        for row in range(3):
            sql(f"INSERT INTO {{t}} VALUES ({', '.join(str(row) for _ in names)})")
        config = new_index(identifier_columns=list(self.IDENTIFIERS), row_filter="`per%cent` >= 0")
        sql("UPDATE {t} SET `_wanted_0` = 7, `_document_id` = 8, `a.b` = 9 WHERE `_hash` = 1")
        sql("DELETE FROM {t} WHERE `key0` = 2")
        sync_changes(spark, config)
        expected = {
            "0|0|0|0": dict.fromkeys(names, 0),
            "1|1|1|1": {**dict.fromkeys(names, 1), "_wanted_0": 7, "_document_id": 8, "a.b": 9},
        }
        assert (indexed(), validate_table(spark, config).ok) == (expected, True)

    def it_refuses_names_of_iceberg_and_can_leave_them_out(self, spark, sql, create_table, make_config, indexed):
        names = ("_DELETED", "_row_id", "_file")
        create_table([field(1, "id"), *(field(number, name) for number, name in enumerate(names, 2))])
        sql("INSERT INTO {t} VALUES (1, 1, 1, 1)")
        for given in (
            *({"columns": ["id", name]} for name in names),
            {"select": ["*"]},
            {"select": ["hash(id, *) AS h"]},
        ):
            says = f"'{given.get('columns', ['_.*'])[-1]}' has the name of a metadata column.*leave it out"
            with pytest.raises(UnsupportedTypeError, match=says):
                export_table(spark, make_config(**given))
        for given, document in (
            ({"columns": ["id"]}, {"id": 1}),
            ({"select": [f"* EXCEPT ({', '.join(names)})", "'* EXCEPT (_file)' AS text"]},
             {"id": 1, "text": "* EXCEPT (_file)"}),
            ({"select": ["id * 2 AS double"]}, {"double": 2}),
        ):  # fmt: skip
            export_table(spark, make_config(**given))
            assert indexed() == {"1": document}

    def it_refuses_names_that_spark_cannot_tell_apart(self, spark, name, create_table, make_config, indexed):
        inner = {"type": "struct", "fields": [field(5, "x"), field(6, "X")]}
        create_table([field(1, "id"), field(2, "a"), field(3, "A"), field(4, "s", inner)])
        for columns, pair in ((["id", "a", "A"], "'a' and 'A'"), (["id", "s"], "'s.x' and 's.X'")):
            says = f"{pair} differ only in upper and lower case.*caseSensitive"
            with pytest.raises(UnsupportedTypeError, match=says):
                export_table(spark, make_config(columns=columns))
        export_table(spark, make_config(columns=["id"]))
        assert indexed() == {}
        # All columns of a nested table are read.
        spark.sql(f"CREATE TABLE lake.ns.{name}_root (id BIGINT) USING iceberg")
        nest = {"n": {"table": f"lake.ns.{name}", "alias": "n", "on": "n.id = r.id", "select": ["n.id"]}}
        with pytest.raises(UnsupportedTypeError, match="'a' and 'A'"):
            export_table(spark, make_config(table=f"lake.ns.{name}_root", alias="r", nest=nest))


class DescribeTypesThatSparkCannotRead:
    UNREADABLE: ClassVar = {
        "time": "time",
        "timestamp_ns": "timestamp_ns",
        "in_a_struct": {"type": "struct", "fields": [field(90, "t", "time")]},
        "in_a_list": {"type": "list", "element-id": 91, "element-required": False, "element": "timestamp_ns"},
        "geometry": "geometry(OGC:CRS84)",
    }  # fmt: skip

    def it_refuses_the_column_by_name(self, spark, create_table, make_config, name):
        unreadable = [field(number, name, kind) for number, (name, kind) in enumerate(self.UNREADABLE.items(), 2)]
        create_table([field(1, "id"), *unreadable])
        for column in self.UNREADABLE:
            with pytest.raises(UnsupportedTypeError, match=f"'{column}' has the type .*leave it out with the columns"):
                export_table(spark, make_config(columns=["id", column]))
        with pytest.raises(UnsupportedTypeError, match="leave it out with the columns"):
            export_table(spark, make_config())
        with pytest.raises(UnsupportedTypeError, match="time"):
            read_changes(spark, f"lake.ns.{name}")

    def it_follows_the_other_columns(self, spark, sql, new_index, indexed, java_table):
        sql("CREATE TABLE {t} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version' = '3')")
        sql("INSERT INTO {t} VALUES (1, 'a')", "INSERT INTO {t} VALUES (2, 'b')")
        iceberg, table = spark._jvm.org.apache.iceberg, java_table()
        update = table.updateSchema()
        for column in ("time", "timestamp_ns", "geometry"):
            update.addColumn(column, iceberg.types.Types.fromTypeName(self.UNREADABLE[column]))
        update.commit()
        config = new_index(columns=["id", "v"])
        exported = indexed()
        table.newDelete().deleteFromRowFilter(iceberg.expressions.Expressions.equal("v", "a")).commit()
        report = sync_changes(spark, config)
        found = exported, indexed(), report.deletes
        assert found == ({"1": {"id": 1, "v": "a"}, "2": {"id": 2, "v": "b"}}, {"2": {"id": 2, "v": "b"}}, 1)


def it_rejects_single_documents_and_reports_them(spark, sql, make_config, indexed):
    sql("CREATE TABLE {t} (id INT, s STRING, l ARRAY<STRING>, m MAP<STRING, STRING>, d DOUBLE) USING iceberg")
    sql(
        "INSERT INTO {t} VALUES "
        "(1, repeat('x', 40000), array(repeat('é', 40000)), map('k', repeat('y', 32000)), 1), "
        "(2, '', array(), map('k', repeat('y', 40000)), 2), (3, '', array(), map(), double('NaN')), "
        "(4, '', array(), map(), double('-Infinity')), (5, '', null, map('', ''), -0.0D)"
    )
    config = make_config(max_rejected_documents=3)
    report = export_table(spark, config)
    message = {sample["id"]: sample["reason"] for sample in report.rejected_samples}
    assert (report.rejected, sorted(indexed()), sorted(message)) == (3, ["1", "5"], ["2", "3", "4"])
    assert ["immense term" in message["2"], "NaN" in message["3"], "-Infinity" in message["4"]] == [True] * 3
    assert sorted(validate_table(spark, config).missing_ids) == ["2", "3", "4"]


REFUSED_MAPPINGS = [
    {"title": {"copy_to": "all"}}, {"title": {"type": "alias", "path": "id"}},
    {"nick": {"type": "alias", "path": "titel"}}, {"title": {"type": "no_such_type"}},
    {"title": {"analyzer": "no_such_analyzer"}}, {"scores.x": {"type": "long"}}, {"id": {"type": "geo_point"}},
    {"place": {"type": "geo_point"}}, {"place.pin": {"type": "integer_range"}}, {"flag": {"type": "long"}},
    {"place": {"type": "keyword"}}, {"people.age": {"type": "ip"}}, {"scores": {"type": "object"}},
    {"vector": {"type": "geo_shape"}}, {"day": {"format": "epoch_millis"}},
    {"at": {"type": "date", "format": "yyyy-MM-dd"}},
]  # fmt: skip
ACCEPTED_MAPPINGS = [
    {"title": {"type": "geo_point"}}, {"title": {"type": "date", "format": "dd/MM/yyyy"}},
    {"title": {"copy_to": "all"}, "all": {"type": "text"}}, {"at": {"type": "date_nanos"}},
    {"at": {"format": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"}}, {"day": {"format": "yyyy-MM-dd"}},
    {"price": {"type": "keyword"}}, {"place.pin": {"type": "geo_point"}},
    {"scores": {"type": "object", "dynamic": False}}, {"people": {"type": "nested"}}, {"any": {"type": "geo_shape"}},
    {"place": {"type": "geo_shape"}}, {"place": {"type": "completion"}}, {"vector": {"type": "geo_point"}},
    {"title": {"fields": {"day": {"type": "date"}}}}, {"id": {"type": "date", "format": "yyyy"}},
]  # fmt: skip


def it_refuses_what_no_column_fits_and_leaves_no_index(spark, sql, opensearch, make_config):
    config = make_config(settings={"default_pipeline": "no_such_pipeline"})
    refused = []
    for mapping in (*REFUSED_MAPPINGS, *ACCEPTED_MAPPINGS):
        try:
            check_mapping(opensearch, config.replace(mapping=mapping), SCHEMA)
        except ConfigError as error:
            refused += [mapping] if error.subject == "mapping" else []
    assert refused == REFUSED_MAPPINGS

    # Every job stops before its first write.
    sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
    config = make_config(identifier_columns=["id"], mapping={"id": {"type": "geo_point"}})
    for given in (config, config.replace(dry_run=True)):
        with pytest.raises(ConfigError, match="OpenSearch refuses a document of the table's columns"):
            export_table(spark, given)
    assert [error.subject for error in check_setup(spark, config).errors] == ["mapping"]
    assert list(opensearch.indices.get(index=f"{config.index}*")) == []
