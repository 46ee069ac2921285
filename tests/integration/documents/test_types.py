"""Names, types and mappings that a real table or server refuses, and those that they do not."""

from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pyspark
import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.changes import read_changes
from icecdc_core.errors import ConfigError, UnsupportedTypeError
from icecdc_core.jobs.setup import check_setup
from icecdc_core.opensearch.indexes import check_mapping
from tests.unit.documents.test_mapping import SCHEMA

leaves_columns_out = pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark 4.0 reads the whole schema")


def field(key, name, kind="long"):
    return {"id": key, "name": name, "required": False, "type": kind}


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

    @leaves_columns_out
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


@leaves_columns_out
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
    {"place": {"type": "flat_object"}}, {"title": {"type": "integer", "ignore_malformed": True}},
    {"nick": {"type": "alias", "path": "title"}},
]  # fmt: skip


def it_refuses_what_no_column_fits_and_leaves_no_index(spark, sql, opensearch, make_config):
    config = make_config(settings={"default_pipeline": "no_such_pipeline"})

    def is_refused(mapping):
        try:
            check_mapping(opensearch, config.replace(mapping=mapping), SCHEMA)
        except ConfigError as error:
            return error.subject == "mapping"

    mappings = [*REFUSED_MAPPINGS, *ACCEPTED_MAPPINGS]
    with ThreadPoolExecutor(4) as pool:  # others may check at the same time
        verdicts = list(pool.map(is_refused, mappings))
    assert [mapping for mapping, verdict in zip(mappings, verdicts, strict=True) if verdict] == REFUSED_MAPPINGS

    # Every job stops before its first write.
    sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
    config = make_config(identifier_columns=["id"], mapping={"id": {"type": "geo_point"}})
    for given in (config, config.replace(dry_run=True)):
        with pytest.raises(ConfigError, match="OpenSearch refuses a document of the table's columns"):
            export_table(spark, given)
    assert [error.subject for error in check_setup(spark, config).errors] == ["mapping"]
    assert list(opensearch.indices.get(index=f"{config.index}*")) == []
