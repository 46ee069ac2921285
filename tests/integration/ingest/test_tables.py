"""Kafka to many tables: routed, created, evolved, left behind, recovered, reset and refilled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from icecdc_core.errors import (
    CatalogError,
    IdentifierColumnsError,
    LostOffsetsError,
    TableNotFoundError,
    TableResetError,
)
from icecdc_core.ingest import batch, evolution, ingest
from icecdc_core.ingest.batch import SharedParser
from icecdc_core.ingest.destinations import create_namespace
from icecdc_core.ingest.job import IngestRun
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.catalogs import load_table
from tests.kafka_records import people

CREATE = "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg"

CREATE_ODD = (
    "CREATE TABLE {t} (id BIGINT, p STRING, b BINARY, t STRING, s STRUCT<x: STRING>) USING iceberg "
    "PARTITIONED BY (p, b, truncate(10, t), s.x)"
)


def _with_odd_types(spark, table):
    """Add columns of types that Spark cannot name: u, us, f, s.f, m and k."""
    types = iceberg_class(spark, "types.Types")
    uuid = types.UUIDType.get()
    fixed = types.FixedType.ofLength(4)
    update = load_table(spark, table).updateSchema().addColumn("u", uuid).addColumn("f", fixed)
    update.addColumn("us", types.ListType.ofOptional(100, uuid))
    update.addColumn("m", types.MapType.ofOptional(101, 102, types.StringType.get(), uuid))
    update.addColumn("k", types.MapType.ofOptional(103, 104, uuid, types.StringType.get()))
    update.addColumn("s", "f", fixed).commit()
    spark.catalog.refreshTable(table)


def ids(spark, table):
    return sorted(row.id for row in spark.table(table).collect())


def reasons(spark, config):
    found = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").collect()
    return sorted((letter.offset, letter.reason) for letter in found)


class DescribeRouting:
    def it_names_the_table_by_a_field_and_keeps_what_has_none(self, spark, make_ingest, topic):
        config = make_ingest(route_by="field", route_field="to.table", auto_create=True)
        topic.send({"id": 1, "to": {"table": "a"}}, {"id": 2, "to": {"table": "b"}}, partition=0)
        topic.send({"id": 3}, {"id": 4, "to": {"table": "x`.y"}}, b"no json", partition=0)
        report = ingest(spark, config)
        assert (ids(spark, f"{config.namespace}.a"), ids(spark, f"{config.namespace}.b")) == ([1], [2])
        missing = "no table: the field to.table is missing"
        assert reasons(spark, config) == [(2, missing), (3, "no table: the field to.table has x`.y"), (4, missing)]
        assert (report.state, report.dead_letters) == ("ok", 3)

    def it_gives_a_record_to_every_table_whose_expression_matches(self, spark, make_ingest, topic, name):
        routes = {f"lake.{name}.early": "[ab]", f"lake.{name}.late": "[bc]"}
        config = make_ingest(route_by="regex", route_field="kind", routes=routes, auto_create=True)
        topic.send(*({"id": number, "kind": kind} for number, kind in enumerate("abcd")), partition=0)
        ingest(spark, config)
        assert (ids(spark, f"lake.{name}.early"), ids(spark, f"lake.{name}.late")) == ([0, 1], [1, 2])
        assert reasons(spark, config) == [(3, "no table: no expression matches the field kind: d")]

    def it_makes_a_table_of_each_topic(self, spark, make_ingest, topic, kafka):
        other = type(topic)(kafka, name=f"{topic.name}.more")
        topic.send({"id": 1})
        other.send({"id": 2})
        config = make_ingest(route_by="topic", topics="", topic_pattern=f"{topic.name}.*", auto_create=True)
        ingest(spark, config)
        assert ids(spark, f"{config.namespace}.{topic.name}") == [1]
        assert ids(spark, f"{config.namespace}.{topic.name}_more") == [2]

    def it_parses_tables_of_one_schema_together_and_others_by_themselves(self, spark, make_ingest, topic):
        config = make_ingest(route_by="field", route_field="kind", auto_create=True)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {config.namespace}")
        for table in "ab":
            spark.sql(f"CREATE TABLE {config.namespace}.{table} (id BIGINT, kind STRING) USING iceberg")
        spark.sql(f"CREATE TABLE {config.namespace}.other (id STRING) USING iceberg")
        topic.send(*({"id": number, "kind": "ab"[number % 2]} for number in range(10)), partition=0)
        topic.send(
            {"id": "no number", "kind": "a"}, {"id": "x", "kind": "other"}, {"id": 11, "kind": "new"}, partition=0
        )
        topic.send({"id": 12}, b"no json", partition=0)
        report = ingest(spark, config)
        actual = {table: ids(spark, f"{config.namespace}.{table}") for table in ("a", "b", "other", "new")}
        assert actual == {"a": [0, 2, 4, 6, 8], "b": [1, 3, 5, 7, 9], "other": ["x"], "new": [11]}
        assert [offset for offset, _ in reasons(spark, config)] == [10, 13, 14]
        assert (report.rows_written, report.dead_letters) == (12, 3)

    def it_caches_only_rows_until_a_record_is_no_row_of_these_tables(self, spark, make_ingest, topic, monkeypatch):
        config = make_ingest(route_by="field", route_field="kind", max_records_per_batch=10)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {config.namespace}")
        for table in "ab":
            spark.sql(f"CREATE TABLE {config.namespace}.{table} (id BIGINT, kind STRING) USING iceberg")
        parsed, parse, fast, parse_rows_only = [], SharedParser.parse, [], batch.parse_rows_only

        def observe_parse(self, *given):
            parsed.append(parse(self, *given))
            return parsed[-1]

        def observe_fast(*given):
            fast.append(given)
            return parse_rows_only(*given)

        monkeypatch.setattr(SharedParser, "parse", observe_parse)
        monkeypatch.setattr(batch, "parse_rows_only", observe_fast)
        for start, wrong in ((0, []), (10, [{"id": "x", "kind": "a"}, {"id": 99}]), (20, [])):
            rows = [{"id": number, "kind": "ab"[number % 2]} for number in range(start, start + 10 - len(wrong))]
            topic.send(*rows, *wrong, partition=0)
        report = ingest(spark, config)
        actual = sorted(ids(spark, f"{config.namespace}.a") + ids(spark, f"{config.namespace}.b"))
        assert actual == [*range(18), *range(20, 30)]
        assert [offset for offset, _ in reasons(spark, config)] == [18, 19]
        assert (report.batches, [shared.rows_only for shared in parsed]) == (3, [True, False, False])
        assert len(fast) == 2


class DescribeCreatedTables:
    def it_makes_them_with_identifiers_partitions_and_properties(self, spark, make_ingest, topic):
        config = make_ingest(
            auto_create=True,
            identifier_columns="id",
            partition_by="bucket(4, id),days(_kafka_timestamp)",
            table_properties={"write.parquet.compression-codec": "snappy"},
            metadata_columns="topic,partition,offset,timestamp,key,headers",
            sort_columns="name",
        )
        topic.send(*people(0, 3), partition=1, key="k", headers=[("h", b"v")], timestamp=86_400_000)
        ingest(spark, config)
        row = spark.table(config.table).where("id = 2").first()
        described = {each.col_name: each.data_type for each in spark.sql(f"DESCRIBE EXTENDED {config.table}").collect()}
        assert (row._kafka_topic, row._kafka_partition, row._kafka_offset) == (topic.name, 1, 2)
        assert (bytes(row._kafka_key), row._kafka_headers[0].key, row._kafka_timestamp.day) == (b"k", "h", 2)
        assert (described["Part 0"], described["Part 1"]) == ("bucket(4, id)", "days(_kafka_timestamp)")
        assert "identifier-fields=[id]" in described["Table Properties"]
        assert "write.parquet.compression-codec=snappy" in described["Table Properties"]
        assert "sort-order=name ASC" in described["Table Properties"]

    def it_evolves_their_schema(self, spark, make_ingest, topic):
        config = make_ingest(auto_create=True, evolve_schema=True)
        topic.send({"id": 1, "at": {"x": 1}}, partition=0)
        ingest(spark, config)
        topic.send({"id": 2, "at": {"x": 2, "y": "new"}, "more": True}, partition=0)
        ingest(spark, config)
        actual = spark.table(config.table).orderBy("id").selectExpr("id", "at.x", "at.y", "more").collect()
        assert [tuple(row) for row in actual] == [(1, 1, None, None), (2, 2, "new", True)]

    def it_evolves_their_schema_over_a_commit_of_another_writer(self, spark, sql, make_ingest, topic, monkeypatch):
        sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
        config, others = make_ingest(evolve_schema=True), []

        def load_and_commit(session, name):
            loaded = load_table(session, name)
            if not others:
                others.append(sql("INSERT INTO {t} VALUES (100)"))
            return loaded

        monkeypatch.setattr(evolution, "load_table", load_and_commit)
        topic.send({"id": 1, "name": "n1"}, partition=0)
        report = ingest(spark, config)
        assert (report.state, sorted((row.id, row.name) for row in spark.table(config.table).collect())) == (
            "ok",
            [(1, "n1"), (100, None)],
        )

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def it_continues_when_no_record_of_a_batch_is_a_row(self, spark, sql, make_ingest, topic, mode):
        sql("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg PARTITIONED BY (bucket(4, id))")
        more = {"identifier_columns": ["id"], "ordering_column": "name"} if mode == "upsert" else {}
        config = make_ingest(mode=mode, **more)
        topic.send({"id": "no number"}, b"no json", {"id": 2**70}, partition=0)
        report = ingest(spark, config)
        topic.send({"id": 1, "name": "n1"}, partition=0)
        assert (report.state, report.rows_written, report.dead_letters) == ("ok", 0, 3)
        assert (ingest(spark, config).rows_written, ids(spark, config.table)) == (1, [1])

    def it_stays_readable_whatever_names_records_bring(self, spark, sql, make_ingest, topic):
        """A table that is there, partitioned, with nested columns; then one that is made of such records."""
        bad = [
            {"Id": 5}, {"id": 5, "_file": "x"}, {"id": 5, "_ROW_ID": 1}, {"id": 5, "": 1}, {"id": 5, "id_bucket": 1},
            {"id": 5, "s": {"X": 1}}, {"id": 5, "l": [{"X": 1}]}, {"id": 5, "m": {"k": {"X": 1}}},
            {"id": 5, "s": {"": 1}}, {"id": 5, "n": {"": 1}}, {"id": 5, "_kafka_OFFSET": 1}, {"id": 5, "s.x": 1},
            {"id": 5, "New": 1, "new": 2},
        ]  # fmt: skip
        good = [{"id": 1, "s": {"x": 1}, "l": [{"x": 1}], "m": {"k": {"x": 1}}}, {"id": 2, "new": 1, "s": {"y": 2}}]
        named = ["Id:", "_file:", "_ROW_ID:", '"":', "id_bucket:", "s:", "l:", "m:", "s:", "n:", "_kafka_OFFSET:",
                 "s.x:", "New:"]  # fmt: skip
        columns = "id BIGINT, s STRUCT<x: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>"
        sql(f"CREATE TABLE {{t}} ({columns}, _kafka_offset BIGINT) USING iceberg PARTITIONED BY (bucket(4, id))")
        config = make_ingest(evolve_schema=True, metadata_columns="offset")
        topic.send(*good, *bad, {"id": 3, "new": 2}, partition=0)
        ingest(spark, config)
        found = [reason for _, reason in reasons(spark, config)]
        assert [reason.startswith(f"field {name}") for name, reason in zip(named, found, strict=True)] == [True] * 13
        assert ids(spark, config.table) == [1, 2, 3]
        sql("DELETE FROM {t} WHERE id = 1")
        topic.send({"id": 4, "new": 3}, partition=0)
        ingest(spark, config)
        assert sql("SELECT _pos, id, new, s.y FROM {t} ORDER BY id").count() == 3

    @pytest.mark.parametrize("evolve_schema", [False, True])
    def it_makes_them_readable_whatever_names_records_bring(self, spark, make_ingest, topic, evolve_schema):
        config = make_ingest(auto_create=True, evolve_schema=evolve_schema, partition_by="bucket(2, id)")
        bad = [
            {"Id": 5},
            {"id": 5, "_file": "x"},
            {"id": 5, "": 1},
            {"id": 5, "id_bucket": 1},
            {"id": 5, "s": {"X": 1}},
        ]
        bad += [{"id": 5, "n": {"": 1}}, {"id": 5, "s": {"": 1}}]
        topic.send(*bad, *({"id": number, "s": {"x": number}} for number in range(3)), partition=0)
        ingest(spark, config)
        found = reasons(spark, config)
        assert [offset for offset, _ in found] == list(range(7)), found
        assert (ids(spark, config.table), spark.table(config.table).select("s.x").count()) == ([0, 1, 2], 3)

    @pytest.mark.parametrize("column_case", ["sensitive", "insensitive", "lower"])
    def it_waits_for_the_first_record_that_can_be_a_row(self, spark, make_ingest, topic, column_case):
        given = {"auto_create": True, "mode": "upsert", "identifier_columns": "id", "column_case": column_case}
        config = make_ingest(**given, max_records_per_batch=2, job=f"waits-{column_case}")
        poison = [b"no json", [1], {"name": "without id"}, {"id": None, "junk": 1}]
        topic.send(*poison, partition=0)
        topic.send(None, None, key='{"id": 1}', partition=0)
        first = ingest(spark, config)
        there = spark.catalog.tableExists(config.table)
        topic.send(None, key='{"id": 2}', partition=0)
        topic.send({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"junk": 1}, partition=0)
        topic.send(None, key='{"id": 2}', partition=0)
        second = ingest(spark, config)
        assert (first.state, there, second.state) == ("ok", False, "ok")
        assert [tuple(row) for row in spark.table(config.table).collect()] == [(1, "a")]
        assert [offset for offset, _ in reasons(spark, config)] == [0, 1, 2, 3, 9]

    def it_lets_no_dead_letter_decide_how_a_name_is_spelled(self, spark, make_ingest, topic):
        config = make_ingest(auto_create=True)
        topic.send(*({"Id": number, "_file": "x"} for number in range(3)), {"id": 5}, partition=0)
        report = ingest(spark, config)
        actual = spark.table(config.table)
        assert (report.dead_letters, actual.columns, [row.id for row in actual.collect()]) == (3, ["id"], [5])

    def it_rejects_records_without_columns_for_a_table_that_is_only_appended_to(self, spark, make_ingest, topic):
        config = make_ingest(auto_create=True, max_records_per_batch=4, job="appends")
        topic.send({}, {"a": None}, b'{"a": 1} {"a": 2}', None, partition=0, key="k")
        first = ingest(spark, config)
        there = spark.catalog.tableExists(config.table)
        topic.send(b'\n\t{"id": 1}', partition=0)
        second = ingest(spark, config)
        assert (first.state, first.dead_letters, there, second.state) == ("ok", 4, False, "ok")
        assert (ids(spark, config.table), [offset for offset, _ in reasons(spark, config)]) == ([1], [0, 1, 2, 3])

    def it_compacts_small_files_at_the_end(self, spark, sql, make_ingest, topic):
        config = make_ingest(max_records_per_batch=4, compact_min_files=3)
        sql(CREATE)
        topic.send(*people(0, 20))
        report = ingest(spark, config)
        topic.send(*people(20, 22))
        ingest(spark, config)
        operations = [row.operation for row in sql("SELECT * FROM {t}.snapshots ORDER BY committed_at").collect()]
        assert len(report.compacted) == 1
        assert "replace" in operations
        assert ids(spark, config.table) == list(range(22))


class DescribeValuesThatIcebergDoesNotWrite:
    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def it_keeps_them_as_dead_letters_and_writes_the_others(self, spark, sql, make_ingest, topic, name, mode):
        table, config = f"lake.ns.{name}", make_ingest(mode=mode, identifier_columns="id" if mode == "upsert" else "")
        sql(CREATE_ODD)
        _with_odd_types(spark, table)
        uuid, fixed = "123e4567-e89b-12d3-a456-42661417400", "AAECAw=="
        topic.send(
            *({"id": n, "u": f"{uuid}{n}", "us": [f"{uuid}{n}"], "f": fixed, "p": p, "b": fixed,
               "k": {f"{uuid}{n}": "v"}}
              for n, p in enumerate(["a/b:..*?%\0", "", "ä" * 40, "x" * 253, ".."])),
            {"id": 10, "u": "no uuid"}, {"id": 11, "u": "1-1-1-1-1"}, {"id": 12, "us": [None, "x"]},
            {"id": 13, "f": "AAEC"}, {"id": 14, "s": {"f": "AAECAwQ="}}, {"id": 15, "m": {"k": "x"}},
            {"id": 16, "p": "x" * 254}, {"id": 17, "p": "ä" * 43}, {"id": 18, "b": "AAAA" * 100},
            {"id": 19, "t": "long " * 100, "p": "y", "u": f"{uuid}A"}, {"id": 20, "u": f"{uuid}1\n"},
            {"id": 21, "s": {"x": "x" * 300}}, {"id": 22, "k": {f"{uuid}1": "v", "no uuid": "w"}}, partition=0,
        )  # fmt: skip
        report = ingest(spark, config)
        assert ids(spark, table) == [0, 1, 2, 3, 4, 19]
        found = dict(reasons(spark, config))
        assert [number for number in range(20) if number in found] == [*range(5, 14), 15, 16, 17]
        assert (report.state, report.dead_letters) == ("ok", 12)
        assert found[5] == "field u: 'no uuid' is not of type uuid"
        assert found[8] == "field f: 'AAEC' is not of type fixed[4]"
        assert found[11].endswith("makes the name of a partition folder longer than 253 bytes")
        assert found[16].endswith("is not of type struct<x:string,f:binary>")
        assert found[17].endswith("is not of type map<string,string>")

    def it_checks_metadata_columns_that_are_partition_columns(self, spark, sql, make_ingest, topic):
        sql("CREATE TABLE {t} (id BIGINT, _kafka_key BINARY) USING iceberg PARTITIONED BY (_kafka_key)")
        config = make_ingest(metadata_columns="key")
        for number, key in enumerate(["k" * 30, "k" * 400, None]):
            topic.send({"id": number}, partition=0, key=key)
        report = ingest(spark, config)
        assert (report.state, ids(spark, config.table)) == ("ok", [0, 2])
        [(offset, reason)] = reasons(spark, config)
        assert (offset, reason.endswith("makes the name of a partition folder too long")) == (1, True)

    def it_checks_metadata_columns_of_tables_that_share_a_schema(self, spark, make_ingest, topic, name):
        config = make_ingest(route_by="field", route_field="kind", metadata_columns="key")
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {config.namespace}")
        columns = "(id BIGINT, kind STRING, _kafka_key BINARY) USING iceberg"
        spark.sql(f"CREATE TABLE {config.namespace}.a {columns} PARTITIONED BY (_kafka_key)")
        spark.sql(f"CREATE TABLE {config.namespace}.b {columns}")
        topic.send(*({"id": number, "kind": "ab"[number % 2]} for number in range(4)), partition=0, key="k" * 400)
        report = ingest(spark, config)
        assert (report.state, report.dead_letters) == ("ok", 2)
        assert (ids(spark, f"{config.namespace}.a"), ids(spark, f"{config.namespace}.b")) == ([], [1, 3])
        assert {bytes(row.value) for row in spark.table(config.quoted_dead_letters).select("value").collect()} == {
            b'{"id": 0, "kind": "a"}',
            b'{"id": 2, "kind": "a"}',
        }

    def it_checks_fixed_values_and_nested_ones_that_are_partition_columns(self, spark, sql, make_ingest, topic, name):
        table, types = f"lake.ns.{name}", iceberg_class(spark, "types.Types")
        sql("CREATE TABLE {t} (id BIGINT, s STRUCT<x: STRING>) USING iceberg")
        load_table(spark, table).updateSchema().addColumn("f", types.FixedType.ofLength(200)).commit()
        load_table(spark, table).updateSpec().addField("f").addField("s.x").commit()
        spark.catalog.refreshTable(table)
        config = make_ingest()
        topic.send({"id": 1}, {"id": 2, "f": "A" * 268}, {"id": 3, "s": {"x": "x" * 300}}, partition=0)
        report = ingest(spark, config)
        assert (report.state, ids(spark, table), [offset for offset, _ in reasons(spark, config)]) == (
            "ok",
            [1],
            [1, 2],
        )


class DescribeNamespaces:
    def it_creates_one_that_another_run_creates_at_the_same_time(self, spark, name):
        sessions = [spark.newSession() for _ in range(4)]
        for session in sessions:
            session.sql("SHOW NAMESPACES IN lake").collect()
        names = [("lake", f"{name}_{number}") for number in range(15)]
        with ThreadPoolExecutor(len(sessions)) as pool:
            for parts in names:
                list(pool.map(lambda session, parts=parts: create_namespace(session, parts), sessions))
        made = {row.namespace for row in spark.sql("SHOW NAMESPACES IN lake").collect()}
        assert {namespace for _, namespace in names} <= made

    def it_reports_a_catalog_that_cannot_be_reached(self, spark, name, tmp_path):
        catalog = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "jdbc", ".warehouse": str(tmp_path)}
        for key, value in {**catalog, ".uri": f"jdbc:sqlite:{tmp_path / 'no' / 'where.db'}"}.items():
            spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
        with pytest.raises(CatalogError, match="could not be created"):
            create_namespace(spark, (name, "ns"))


class DescribeTablesLeftBehind:
    def it_writes_the_others_and_reads_the_records_again(self, spark, make_ingest, topic, name):
        # A continuous run would retry the table at once; a scheduled one reads to the end of the topic first.
        routes = {f"lake.{name}.good": ".*", f"lake.{name}.bad": ".*"}
        config = make_ingest(route_by="regex", route_field="kind", routes=routes, max_records_per_batch=4)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        spark.sql(f"CREATE TABLE lake.{name}.good (id BIGINT) USING iceberg")
        topic.send(*({"id": number, "kind": "x"} for number in range(10)))
        first = IngestRun(spark, config, first_pause=0.0).run()
        spark.sql(f"CREATE TABLE lake.{name}.bad (id BIGINT) USING iceberg")
        second, third = ingest(spark, config), ingest(spark, config)
        assert (first.state, first.behind) == ("partial", [f"`lake`.`{name}`.`bad`"])
        assert (second.state, second.rows_written, third.batches) == ("ok", 10, 0)
        assert ids(spark, f"lake.{name}.good") == ids(spark, f"lake.{name}.bad") == list(range(10))

    def it_does_not_mistake_a_table_without_records_for_one_that_was_rolled_back(self, spark, make_ingest, topic, name):
        seldom, often = f"lake.{name}.seldom", f"lake.{name}.often"
        config = make_ingest(route_by="regex", route_field="kind", routes={seldom: "s", often: ".*"})
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        for table in (seldom, often):
            spark.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
        topic.send({"id": 0, "kind": "s"}, partition=0)
        ingest(spark, config)
        topic.send({"id": 1, "kind": "o"}, partition=0)
        ingest(spark, config)
        spark.sql(f"ALTER TABLE {seldom} SET TBLPROPERTIES ('write.parquet.compression-codec' = 'none such')")
        topic.send({"id": 2, "kind": "s"}, partition=0)
        run = IngestRun(spark, config, first_pause=0.0)
        broken = run.run()
        [error] = run.failed.values()
        assert error.message.endswith(f"; the batch had the records {topic.name} partition 0 offset 2")
        spark.sql(f"ALTER TABLE {seldom} UNSET TBLPROPERTIES ('write.parquet.compression-codec')")
        repaired = ingest(spark, config)
        assert (broken.state, repaired.state, repaired.behind) == ("partial", "ok", [])
        assert spark.table(seldom).where("id = 2").count() == 1

    def it_writes_the_others_when_the_records_of_one_are_gone(self, spark, make_ingest, topic, name):
        good, bad = f"lake.{name}.good", f"lake.{name}.bad"
        config = make_ingest(route_by="regex", routes={good: ".*", bad: ".*"})
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        spark.sql(f"CREATE TABLE {good} (id BIGINT) USING iceberg")
        topic.send(*({"id": number} for number in range(5)), partition=0)
        ingest(spark, config)
        topic.remove_before(0, 3)
        spark.sql(f"CREATE TABLE {bad} (id BIGINT) USING iceberg")
        topic.send({"id": 5}, partition=0)
        second = ingest(spark, config)
        quoted = f"`lake`.`{name}`.`bad`"
        assert (second.state, second.behind, second.rows_written, ids(spark, good)) == (
            "partial",
            [quoted],
            1,
            [0, 1, 2, 3, 4, 5],
        )
        assert f"table {quoted} was left behind at offset 0" in second.tables[quoted]["error"]
        with pytest.raises(LostOffsetsError, match="left behind"):  # nothing else is left to do
            ingest(spark, config)
        third = ingest(spark, config.replace(on_lost_offsets="continue"))
        assert (third.state, third.behind, ids(spark, bad)) == ("ok", [], [3, 4, 5])
        assert third.lost == [{"topic": topic.name, "partition": 0, "from": 0, "to": 3}]
        assert (ingest(spark, config).state, ids(spark, good)) == ("ok", [0, 1, 2, 3, 4, 5])

    def it_raises_the_error_of_the_only_table(self, spark, sql, make_ingest, topic):
        topic.send({"id": 1})
        with pytest.raises(TableNotFoundError):
            ingest(spark, make_ingest())
        sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
        config = make_ingest(identifier_columns="nope")
        with pytest.raises(IdentifierColumnsError, match="missing in the table"):
            ingest(spark, config)
        assert ids(spark, config.table) == []


class DescribeTablesThatWereReset:
    def it_refuses_a_table_that_was_made_again(self, spark, sql, make_ingest, topic):
        config = make_ingest()
        sql(CREATE)
        topic.send(*people(0, 5))
        ingest(spark, config)
        sql("DROP TABLE {t}")
        sql(CREATE)
        topic.send(*people(5, 8))
        with pytest.raises(TableResetError):
            ingest(spark, config)
        ingest(spark, config.replace(on_table_reset="refill"))
        assert ids(spark, config.table) == list(range(8))

    def rolled_back(self, spark, sql, config, topic, name):
        """Ingest 0 to 4 and 5 to 7, roll back behind the first, and let 8 and 9 wait in the topic."""
        sql(CREATE)
        topic.send(*people(0, 5))
        ingest(spark, config)
        snapshot = sql("SELECT snapshot_id FROM {t}.snapshots").first().snapshot_id
        topic.send(*people(5, 8))
        ingest(spark, config)
        spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {snapshot})")
        topic.send(*people(8, 10))

    def it_refuses_a_table_that_was_rolled_back(self, spark, sql, make_ingest, topic, name):
        config = make_ingest()
        self.rolled_back(spark, sql, config, topic, name)
        with pytest.raises(TableResetError):
            ingest(spark, config)
        ingest(spark, config.replace(on_table_reset="continue"))
        ingest(spark, config)
        assert ids(spark, config.table) == [0, 1, 2, 3, 4, 8, 9]

    def it_refills_a_table_that_was_rolled_back(self, spark, sql, make_ingest, topic, name):
        config = make_ingest(on_table_reset="refill")
        self.rolled_back(spark, sql, config, topic, name)
        ingest(spark, config)
        assert ids(spark, config.table) == list(range(10))

    @pytest.mark.parametrize(("version", "expired"), [(2, "c"), (2, "ac"), (2, "abc"), (1, "c"), (1, "ac")])
    def it_refuses_a_table_that_was_rolled_back_though_its_snapshots_have_expired(
        self, spark, sql, make_ingest, topic, name, version, expired
    ):
        config = make_ingest()
        sql(f"{CREATE} TBLPROPERTIES ('format-version' = '{version}')")
        sql("INSERT INTO {t} VALUES (100, 'a')")
        sql("INSERT INTO {t} VALUES (101, 'b')")
        topic.send(*people(0, 5))
        ingest(spark, config)
        found = sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at").collect()
        snapshots = dict(zip("abc", (row.snapshot_id for row in found), strict=True))
        spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {snapshots['b']})")
        sql("INSERT INTO {t} VALUES (102, 'd')")
        gone = ", ".join(str(snapshots[each]) for each in expired)
        spark.sql(f"CALL lake.system.expire_snapshots(table => 'ns.{name}', snapshot_ids => ARRAY({gone}))")
        topic.send(*people(5, 8))
        with pytest.raises(TableResetError, match="rolled back"):
            ingest(spark, config)
        ingest(spark, config.replace(on_table_reset="refill"))
        assert ids(spark, config.table) == [*range(8), 100, 101, 102]

    def it_refuses_a_table_that_caught_up_over_two_batches_and_was_rolled_back(self, spark, make_ingest, topic, name):
        seldom, often = f"lake.{name}.seldom", f"lake.{name}.often"
        config = make_ingest(route_by="regex", route_field="kind", routes={seldom: "s", often: "o"})
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        for table in (seldom, often):
            spark.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
        topic.send({"id": 0, "kind": "s"}, partition=0)
        ingest(spark, config)
        spark.sql(f"ALTER TABLE {seldom} SET TBLPROPERTIES ('write.parquet.compression-codec' = 'none such')")
        topic.send({"id": 1, "kind": "s"}, {"id": 2, "kind": "o"}, partition=0)
        behind = ingest(spark, config)
        spark.sql(f"ALTER TABLE {seldom} UNSET TBLPROPERTIES ('write.parquet.compression-codec')")
        repaired = ingest(spark, config.replace(max_records_per_batch=1))
        first = spark.sql(f"SELECT snapshot_id FROM {seldom}.snapshots ORDER BY committed_at").first().snapshot_id
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}.seldom', {first})")
        topic.send({"id": 3, "kind": "s"}, partition=0)
        assert (behind.state, repaired.state, repaired.batches) == ("partial", "ok", 2)
        with pytest.raises(TableResetError, match="rolled back"):
            ingest(spark, config)

    def it_still_logs_the_snapshot_of_a_table_whose_snapshot_has_expired(self, spark, make_ingest, topic, name):
        routes = {f"lake.{name}.good": ".*", f"lake.{name}.bad": ".*"}
        config = make_ingest(route_by="regex", routes=routes)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        spark.sql(f"CREATE TABLE lake.{name}.good (id BIGINT) USING iceberg")
        topic.send(*people(0, 5))
        ingest(spark, config)
        spark.sql(f"CREATE TABLE lake.{name}.bad (id BIGINT) USING iceberg")
        spark.sql(f"INSERT INTO lake.{name}.good VALUES (100)")
        expire = f"table => '{name}.good', older_than => TIMESTAMP '2100-01-01', retain_last => 1"
        spark.sql(f"CALL lake.system.expire_snapshots({expire})")
        ingest(spark, config)  # the table that was left behind takes the batch again
        logged = spark.table(config.quoted_commit_log).where(f"job = '{config.job}' AND kind = 'batch'")
        entries = logged.selectExpr("batch", "explode(tables) AS t").where("t.name LIKE '%good%'").select("t.*")
        assert [row.snapshot_id is not None for row in entries.collect()] == [True, True]

    def it_uses_the_offsets_of_the_log_for_a_table_whose_snapshots_have_expired(self, spark, make_ingest, topic, name):
        routes = {f"lake.{name}.good": ".*", f"lake.{name}.bad": ".*"}
        config = make_ingest(route_by="regex", routes=routes)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        spark.sql(f"CREATE TABLE lake.{name}.good (id BIGINT) USING iceberg")
        topic.send(*people(0, 5))
        ingest(spark, config)
        # The table left behind lets the next run begin where this one began.
        spark.sql(f"CREATE TABLE lake.{name}.bad (id BIGINT) USING iceberg")
        spark.sql(f"INSERT INTO lake.{name}.good VALUES (100)")
        expire = f"table => '{name}.good', older_than => TIMESTAMP '2100-01-01', retain_last => 1"
        spark.sql(f"CALL lake.system.expire_snapshots({expire})")
        topic.send(*people(5, 8))
        ingest(spark, config)
        assert ids(spark, f"lake.{name}.good") == [*range(8), 100]
        assert ids(spark, f"lake.{name}.bad") == list(range(8))
