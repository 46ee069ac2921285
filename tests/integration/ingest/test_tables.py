"""Kafka to many tables: routed, created, evolved, left behind, recovered, reset and refilled."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from pyspark.sql.types import StructType

from icecdc_core.__main__ import main
from icecdc_core.errors import (
    CatalogError,
    ColumnNotFoundError,
    IdentifierColumnsError,
    LostOffsetsError,
    TableNotFoundError,
    TableResetError,
)
from icecdc_core.ingest import destinations, ingest, job
from icecdc_core.ingest.destinations import create_namespace
from icecdc_core.ingest.writes import DELETE_IN_APPEND
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.catalogs import load_table
from tests.checks.ingested import dead_letters, ids, reasons
from tests.given.kafka_records import people

CREATE = "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg"

CREATE_ODD = (
    "CREATE TABLE {t} (id BIGINT, p STRING, b BINARY, t STRING, s STRUCT<x: STRING>) USING iceberg "
    "PARTITIONED BY (p, b, truncate(10, t), s.x)"
)


def _with_odd_types(spark, table):
    """Add columns of types that Spark cannot name: u, us, f, s.f, m, k and g, which is a partition column."""
    types = iceberg_class(spark, "types.Types")
    uuid = types.UUIDType.get()
    fixed = types.FixedType.ofLength(4)
    update = load_table(spark, table).updateSchema().addColumn("u", uuid).addColumn("f", fixed)
    update.addColumn("us", types.ListType.ofOptional(100, uuid))
    update.addColumn("m", types.MapType.ofOptional(101, 102, types.StringType.get(), uuid))
    update.addColumn("k", types.MapType.ofOptional(103, 104, uuid, types.StringType.get()))
    update.addColumn("g", types.FixedType.ofLength(200)).addColumn("s", "f", fixed).commit()
    load_table(spark, table).updateSpec().addField("g").commit()
    spark.catalog.refreshTable(table)


@pytest.fixture
def tables(spark, name):
    def create(names, columns="id BIGINT"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        created = [f"lake.{name}.{each}" for each in names]
        for table in created:
            spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg")
        return created

    return create


class DescribeRouting:
    def it_makes_a_table_of_each_topic_with_identifiers_partitions_and_properties(
        self, spark, make_ingest, topic, kafka
    ):
        other = type(topic)(kafka, name=f"{topic.name}.more")
        type(topic)(kafka, name=f"no-{topic.name}").send({"id": 3})  # the pattern is only a part of its name
        config = make_ingest(
            route_by="topic",
            topics="",
            topic_pattern=f"{topic.name}.*",
            auto_create=True,
            identifier_columns="id",
            partition_by="bucket(4, id),days(_kafka_timestamp)",
            table_properties={"write.parquet.compression-codec": "snappy"},
            metadata_columns="topic,partition,offset,timestamp,key,headers",
            sort_columns="name",
            commit_log_table="",
        )
        topic.send(*people(0, 3), partition=1, key="k", headers=[("h", b"v")], timestamp=86_400_000)
        other.send(*people(5, 6))
        assert ingest(spark, config).topics == [topic.name, other.name]
        table = f"{config.namespace}.{topic.name}"
        assert (ids(spark, table), ids(spark, f"{table}_more")) == ([0, 1, 2], [5])
        # Each knows the offsets of its own topic, so that without the log nothing is read again.
        logged = spark.table(config.quoted_commit_log).selectExpr("explode(tables) AS t").select("t.name", "t.offsets")
        found = {row.name.split("`")[-2]: sorted(json.loads(row.offsets)) for row in logged.collect()}
        assert found == {topic.name: [topic.name], f"{topic.name}_more": [other.name]}
        spark.sql(f"DROP TABLE {config.quoted_commit_log}")
        other.send(*people(6, 8))
        assert (ingest(spark, config).records, ids(spark, f"{table}_more")) == (2, [5, 6, 7])
        row = spark.table(table).where("id = 2").first()
        described = {each.col_name: each.data_type for each in spark.sql(f"DESCRIBE EXTENDED {table}").collect()}
        assert (row._kafka_topic, row._kafka_partition, row._kafka_offset) == (topic.name, 1, 2)
        assert (bytes(row._kafka_key), row._kafka_headers[0].key, row._kafka_timestamp.day) == (b"k", "h", 2)
        assert (described["Part 0"], described["Part 1"]) == ("bucket(4, id)", "days(_kafka_timestamp)")
        assert "identifier-fields=[id]" in described["Table Properties"]
        assert "write.parquet.compression-codec=snappy" in described["Table Properties"]
        assert "sort-order=name ASC" in described["Table Properties"]

    def it_gives_each_table_its_records_and_keeps_what_has_none(self, spark, make_ingest, static, tables):
        config = make_ingest(route_by="field", route_field="to.table", auto_create=True)
        tables("ab")
        tables(["other"], "id STRING")
        odd = [("no number", "a"), ("x", "other"), (11, "new"), (13, "x`.y")]
        entry = static(config).send(
            *({"id": number, "to": {"table": "ab"[number % 2]}} for number in range(10)),
            *({"id": identifier, "to": {"table": table}} for identifier, table in odd),
            *({"id": 12}, b"no json"),
        )
        actual = {table: ids(spark, f"{config.namespace}.{table}") for table in ("a", "b", "other", "new")}
        assert actual == {"a": [0, 2, 4, 6, 8], "b": [1, 3, 5, 7, 9], "other": ["x"], "new": [11]}
        (offset, _), *nowhere = reasons(spark, config)
        missing = "no table: the field to.table is missing"
        assert nowhere == [(13, "no table: the field to.table has x`.y"), (14, missing), (15, missing)]
        assert (offset, sum(table.rows for table in entry.tables), entry.dead_letters) == (10, 12, 4)

    def it_parses_tables_of_one_schema_together_until_a_record_is_no_row_of_them(
        self, spark, make_ingest, static, tables
    ):
        config = make_ingest(route_by="field", route_field="kind", tables={"*": {"coercion": "lenient"}})
        a, b = tables("ab", "id BIGINT, kind STRING")
        load_table(spark, a).updateSpec().addField("kind").commit()
        spark.catalog.refreshTable(a)
        topic, together = static(config, [a, b]), []
        for start, wrong in ((0, []), (10, [{"id": "x", "kind": "a"}, {"id": 99}]), (20, [])):
            rows = [{"id": str(number), "kind": "ab"[number % 2]} for number in range(start, start + 10 - len(wrong))]
            topic.send(*rows, *wrong)
            together.append(bool(topic.batches.shared._tables))
        assert sorted(ids(spark, a) + ids(spark, b)) == [*range(18), *range(20, 30)]
        assert [offset for offset, _ in reasons(spark, config)] == [18, 19]
        assert together == [True, False, False]


def it_sorts_rows_and_rejects_deletes(spark, sql, make_ingest, static):
    sql("CREATE TABLE {t} (id BIGINT, _kafka_offset BIGINT) USING iceberg")
    config = make_ingest(op_field="op", sort_columns="id", metadata_columns="offset")
    values = [{"id": 3, "op": "c"}, {"id": "one", "op": "c"}, {"id": 2, "op": "d"}, {"id": 1, "op": "c"}]
    entry = static(config).send(*values)
    assert [tuple(row) for row in sql("SELECT * FROM {t}").collect()] == [(1, 3), (3, 0)]
    not_a_number = "field id: 'one' is not of type bigint"
    assert (reasons(spark, config), entry.dead_letters) == ([(1, not_a_number), (2, DELETE_IN_APPEND)], 2)


class DescribeCreatedTables:
    def it_evolves_their_schema_also_over_a_commit_of_another_writer(
        self, spark, sql, make_ingest, static, monkeypatch
    ):
        topic, loads = static(make_ingest(auto_create=True, evolve_schema=True)), []
        topic.send({"id": 1, "at": {"x": 1}})

        def load_and_commit(session, name):
            loaded = load_table(session, name)
            loads.append(name)
            if len(loads) == 1:  # the one before the commit of the new schema
                sql("INSERT INTO {t} SELECT NULL, 100")
            return loaded

        monkeypatch.setattr(destinations, "load_table", load_and_commit)
        # A delete, here one that does not name its row, brings no column.
        topic.send({"id": 2, "at": {"x": 2, "y": "new"}, "more": True}, None, key='{"other": 1}')
        assert sql("SELECT * FROM {t}").columns == ["at", "id", "more"]
        actual = sql("SELECT id, at.x, at.y, more FROM {t} ORDER BY id").collect()
        assert [tuple(row) for row in actual] == [(1, 1, None, None), (2, 2, "new", True), (100, None, None, None)]

    def it_stays_readable_whatever_names_records_bring(self, spark, sql, make_ingest, static):
        bad = [
            ("Id:", {"Id": 5}), ("_file:", {"_file": "x"}), ("_ROW_ID:", {"_ROW_ID": 1}), ('"":', {"": 1}),
            ("id_bucket:", {"id_bucket": 1}), ("s:", {"s": {"X": 1}}), ("l:", {"l": [{"X": 1}]}),
            ("m:", {"m": {"k": {"X": 1}}}), ("s:", {"s": {"": 1}}), ("n:", {"n": {"": 1}}),
            ("_kafka_OFFSET:", {"_kafka_OFFSET": 1}), ("s.x:", {"s.x": 1}), ("New:", {"New": 1, "new": 2}),
        ]  # fmt: skip
        good = [{"id": 1, "s": {"x": 1}, "l": [{"x": 1}], "m": {"k": {"x": 1}}}, {"id": 2, "new": 1, "s": {"y": 2}}]
        columns = "id BIGINT, s STRUCT<x: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>"
        sql(f"CREATE TABLE {{t}} ({columns}, _kafka_offset BIGINT) USING iceberg PARTITIONED BY (bucket(4, id))")
        config = make_ingest(evolve_schema=True, metadata_columns="offset")
        topic = static(config)
        topic.send(*good, *({**({} if "Id" in each else {"id": 5}), **each} for _, each in bad), {"id": 3, "new": 2})
        found = [reason for _, reason in reasons(spark, config)]
        assert [
            (name, reason)
            for (name, _), reason in zip(bad, found, strict=True)
            if not reason.startswith(f"field {name}")
        ] == []
        assert ids(spark, config.table) == [1, 2, 3]
        sql("DELETE FROM {t} WHERE id = 1")
        topic.send({"id": 4, "new": 3})
        assert sql("SELECT _pos, id, new, s.y FROM {t} ORDER BY id").count() == 3

    def it_waits_for_the_first_record_that_can_be_a_row(self, spark, make_ingest, static):
        config = make_ingest(auto_create=True, mode="upsert", identifier_columns="id", column_case="lower")
        topic = static(config)
        keys = [None, None, '{"id": 1}', '{"id": 1}', '{"id": 2}', None, None]
        topic.send(b"no json", [1], *[None] * 3, {"name": "without id"}, {"id": None, "junk": 1}, key=keys)
        assert not spark.catalog.tableExists(config.table)
        topic.send({"ID": 1, "Name": "a", "Place": {"Lat": 1.5}}, {"id": 2, "name": "b"})
        assert topic.send({"junk": 1}).tables[0].rows == 0  # no record of the batch is a row
        topic.send(None, key='{"id": 2}')
        table = spark.table(config.table)
        assert table.schema.simpleString() == "struct<id:bigint,name:string,place:struct<lat:double>>"
        assert [column.nullable for column in table.schema] == [False, True, True]
        assert [tuple(row) for row in table.collect()] == [(1, "a", (1.5,))]
        assert [offset for offset, _ in reasons(spark, config)] == [0, 1, 5, 6, 9]

    def it_identifies_rows_by_the_key_of_their_records(self, spark, make_ingest, static):
        given = {"mode": "upsert", "identifier_columns": "_kafka_key", "metadata_columns": "key"}
        config = make_ingest(auto_create=True, **given)
        topic = static(config)
        topic.send(*({"v": number} for number in range(4)), key=["a", "a", "b", None])
        topic.send(None, key="b")
        assert [tuple(row) for row in spark.table(config.table).collect()] == [(1, b"a")]
        assert reasons(spark, config) == [(3, "field _kafka_key is missing or null, and required")]

    @pytest.mark.parametrize(
        "given", [{"partition_by": "days(v)"}, {"sort_columns": "missing"}, {"identifier_columns": "x"}], ids=str
    )
    def it_refuses_columns_that_do_not_fit(self, spark, make_ingest, given):
        config, columns = make_ingest(**given), StructType.fromDDL("v STRING, x DOUBLE")
        with pytest.raises(CatalogError, match=f"check .*{next(iter(given))}"):
            destinations.create_table(spark, config.table, columns, columns, config)

    def it_rejects_records_without_columns_for_a_table_that_is_only_appended_to(self, spark, make_ingest, static):
        config = make_ingest(auto_create=True, partition_by="bucket(4, id)")
        topic = static(config)
        first = topic.send({}, {"a": None}, b'{"a": 1} {"a": 2}', None, key="k")
        assert (first.dead_letters, spark.catalog.tableExists(config.table)) == (4, False)
        topic.send(b'\n\t{"id": 1}')
        [table] = topic.send({"id": "no number"}, b"no json", {"id": 2**70}).tables
        assert (ids(spark, config.table), table.rows) == ([1], 0)
        assert [offset for offset, _ in reasons(spark, config)] == [0, 1, 2, 3, 5, 6, 7]

    def it_compacts_small_files_at_the_end(self, spark, sql, make_ingest, topic):
        config = make_ingest(compact_min_files=2)
        sql(CREATE)
        for partition in range(2):
            topic.send(*people(6 * partition, 6 * partition + 6), partition=partition)
        report = ingest(spark, config)
        topic.send(*people(12, 14))
        ingest(spark, config)
        operations = [row.operation for row in sql("SELECT * FROM {t}.snapshots ORDER BY committed_at").collect()]
        assert (len(report.compacted), operations[:3]) == (1, ["append", "replace", "append"])
        assert ids(spark, config.table) == list(range(14))


class DescribeValuesThatIcebergDoesNotWrite:
    def it_keeps_them_as_dead_letters_and_writes_the_others(self, spark, sql, make_ingest, static, name):
        table, config = f"lake.ns.{name}", make_ingest()
        sql(CREATE_ODD)
        _with_odd_types(spark, table)
        uuid, fixed = "123e4567-e89b-12d3-a456-42661417400", "AAECAw=="
        entry = static(config).send(
            *({"id": n, "u": f"{uuid}{n}", "us": [f"{uuid}{n}"], "f": fixed, "p": p, "b": fixed,
               "k": {f"{uuid}{n}": "v"}}
              for n, p in enumerate(["a/b:..*?%\0", "", "ä" * 40, "x" * 253, ".."])),
            {"id": 10, "u": "no uuid"}, {"id": 11, "u": "1-1-1-1-1"}, {"id": 12, "us": [None, "x"]},
            {"id": 13, "f": "AAEC"}, {"id": 14, "s": {"f": "AAECAwQ="}}, {"id": 15, "m": {"k": "x"}},
            {"id": 16, "p": "x" * 254}, {"id": 17, "p": "ä" * 43}, {"id": 18, "b": "AAAA" * 100},
            {"id": 19, "t": "long " * 100, "p": "y", "u": f"{uuid}A"}, {"id": 20, "u": f"{uuid}1\n"},
            {"id": 21, "s": {"x": "x" * 300}}, {"id": 22, "k": {f"{uuid}1": "v", "no uuid": "w"}},
            {"id": 23, "g": "A" * 267 + "="},
        )  # fmt: skip
        assert ids(spark, table) == [0, 1, 2, 3, 4, 19]
        found, longer = dict(reasons(spark, config)), "makes the name of a partition folder longer than"
        assert ([*found], entry.dead_letters) == ([*range(5, 14), 15, 16, 17, 18], 13)
        assert (found[5], found[8]) == (
            "field u: 'no uuid' is not of type uuid",
            "field f: 'AAEC' is not of type fixed[4]",
        )
        assert (found[16], found[18]) == (f"field s.x {longer} 251 bytes", f"field g {longer} 253 bytes")
        assert found[11].endswith(f"{longer} 253 bytes")
        assert found[17].endswith("is not of type map<string,string>")

    def it_checks_metadata_columns_that_are_partition_columns(self, spark, make_ingest, static, tables):
        config = make_ingest(route_by="field", route_field="kind", metadata_columns="key")
        a, b = tables("ab", "id BIGINT, kind STRING, _kafka_key BINARY")
        load_table(spark, a).updateSpec().addField("_kafka_key").commit()
        spark.catalog.refreshTable(a)
        keys = ["k" * 400] * 4 + ["k" * 30] * 4 + [None] * 4
        static(config).send(*({"id": number, "kind": "ab"[number % 2]} for number in range(12)), key=keys)
        assert (ids(spark, a), ids(spark, b)) == ([4, 6, 8, 10], [1, 3, 5, 7, 9, 11])
        found = reasons(spark, config)
        assert [offset for offset, _ in found] == [0, 2]
        assert all(reason.endswith("makes the name of a partition folder longer than 244 bytes") for _, reason in found)
        assert {bytes(row.value) for row in dead_letters(spark, config)} == {
            b'{"id": 0, "kind": "a"}',
            b'{"id": 2, "kind": "a"}',
        }


def it_creates_a_namespace_that_another_run_creates_at_the_same_time(spark, name):
    sessions = [spark.newSession() for _ in range(4)]
    with ThreadPoolExecutor(len(sessions)) as pool:
        for number in range(5):
            list(pool.map(create_namespace, sessions, [f"lake.{name}_{number}"] * 4))
    made = {row.namespace for row in spark.sql("SHOW NAMESPACES IN lake").collect()}
    assert {f"{name}_{number}" for number in range(5)} <= made


class DescribeTablesLeftBehind:
    def it_writes_the_others_and_reads_the_records_again(self, spark, make_ingest, topic, tables, name, monkeypatch):
        # A continuous run would retry the table at once; a scheduled one reads to the end of the topic first.
        good, bad, late = (f"lake.{name}.{each}" for each in ("good", "bad", "late"))
        quoted = [f"`lake`.`{name}`.`{each}`" for each in ("bad", "late")]
        routes = dict.fromkeys((good, bad, late), ".*")
        config = make_ingest(route_by="regex", route_field="kind", routes=routes, max_records_per_batch=4)
        tables(["good"])
        topic.send(*({"id": number, "kind": "x"} for number in range(6)), partition=0)
        monkeypatch.setattr(job, "FIRST_PAUSE", 0.0)
        first = job.IngestRun(spark, config).run()
        tables(["bad"])
        second = ingest(spark, config.replace(max_records_per_batch=0))
        assert [(each.state, each.behind) for each in (first, second)] == [("partial", quoted), ("partial", quoted[1:])]
        assert (second.rows_written, ids(spark, good), ids(spark, bad)) == (6, [*range(6)], [*range(6)])
        # What the last table needs is gone.
        topic.remove_before(0, 3)
        tables(["late"])
        topic.send({"id": 6, "kind": "x"}, partition=0)
        third = ingest(spark, config)
        assert (third.state, third.behind, third.rows_written) == ("partial", quoted[1:], 2)
        assert f"table {quoted[1]} was left behind at offset 0" in third.tables[quoted[1]]["error"]
        with pytest.raises(LostOffsetsError, match="left behind"):  # nothing else is left to do
            ingest(spark, config)
        fourth = ingest(spark, config.replace(on_lost_offsets="continue"))
        assert (fourth.state, fourth.behind, ids(spark, late)) == ("ok", [], [3, 4, 5, 6])
        assert fourth.lost == [{"topic": topic.name, "partition": 0, "from": 0, "to": 3}]
        assert ingest(spark, config).batches == 0
        assert (ids(spark, good), ids(spark, bad)) == ([*range(7)], [*range(7)])

    def it_raises_the_error_of_the_only_table(self, spark, sql, make_ingest, static, topic):
        topic.send({"id": 1})
        with pytest.raises(TableNotFoundError):
            ingest(spark, make_ingest())
        sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
        for kind, words, given in (
            (IdentifierColumnsError, "missing in the table", {"identifier_columns": "nope"}),
            (IdentifierColumnsError, "needs identifier columns", {"mode": "upsert"}),
            (ColumnNotFoundError, "ts", {"mode": "upsert", "identifier_columns": "id", "ordering_column": "ts"}),
        ):
            config = make_ingest(**given)
            [entry] = static(config).send({"id": 1}, error=kind).tables
            assert words in entry.error
        assert ids(spark, config.table) == []


class DescribeTablesThatWereReset:
    def it_refuses_a_table_that_was_rolled_back_and_fills_one_that_was_made_again(
        self, spark, sql, make_ingest, topic, name
    ):
        config = make_ingest()
        sql(CREATE)
        topic.send(*people(0, 8), partition=0)
        ingest(spark, config.replace(max_records_per_batch=5))
        snapshot = sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at").first().snapshot_id
        spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {snapshot})")
        topic.send(*people(8, 10))
        with pytest.raises(TableResetError):
            ingest(spark, config)
        ingest(spark, config.replace(on_table_reset="continue"))
        ingest(spark, config)
        assert ids(spark, config.table) == [0, 1, 2, 3, 4, 8, 9]
        sql("DROP TABLE {t}")
        sql(CREATE)
        topic.send(*people(10, 12))
        ingest(spark, config.replace(on_table_reset="refill"))
        assert ids(spark, config.table) == list(range(12))


def it_runs_the_ingests_of_a_file_each_table_with_parameters_of_its_own(spark, make_ingest, topic, kafka, tmp_path):
    other = type(topic)(kafka)
    topic.send({"t": "people", "id": 1, "n": "Ada"}, {"t": "people", "id": 1, "n": "Eve"}, {"t": "calls", "id": 1})
    topic.send({"t": "calls", "id": 1})
    other.send({"id": 7})
    config = make_ingest(route_by="field", route_field="t")
    given = {name: getattr(config, name) for name in ("bootstrap_servers", "warehouse", "namespace")}
    people = {"mode": "upsert", "identifier_columns": "id", "partition_by": "bucket(4, id)"}
    shop = {"topics": topic.name, "route_by": "field", "route_field": "t", "tables": {"people": people}}
    shop["tables"]["c*"] = {"metadata_columns": "offset"}
    single = {"topics": other.name, "table": f"{config.namespace}.single"}
    defaults = {**given, "catalog_properties": dict(config.catalog_properties), "auto_create": True}
    content = {"defaults": defaults, "ingests": {f"{config.job}.shop": shop, f"{config.job}.single": single}}
    (tmp_path / "ingests.yml").write_text(yaml.safe_dump(content))
    assert main(["ingest", "--file", str(tmp_path / "ingests.yml"), "--report-path", str(tmp_path / "report")]) == 0
    report = json.loads((tmp_path / "report").read_text())
    assert [each["rows_written"] for each in report["ingests"].values()] == [3, 1]
    rows = {each: spark.table(f"{config.namespace}.{each}") for each in ("people", "calls", "single")}
    assert [row.n for row in rows["people"].collect()] == ["Eve"]
    assert rows["calls"].columns == ["id", "t", "_kafka_offset"]
    assert (rows["calls"].count(), rows["single"].count()) == (2, 1)
    partitions = load_table(spark, f"{config.namespace}.people").spec().fields()
    assert [str(field.name()) for field in partitions] == ["id_bucket"]
