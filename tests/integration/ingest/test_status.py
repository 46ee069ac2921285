"""An ingest seen from outside: what its tables have, and what they lack."""

from datetime import UTC, datetime

from icecdc_core.ingest import commit_log, ingest
from tests.checks.doc_blocks import all_blocks


def valid_through(spark, config):
    """The time of each table, by the query that docs/kafka.md shows and by the code."""
    [query] = (each.text for each in all_blocks() if each.page == "docs/kafka.md" and each.language == "sql")
    query = query.replace("lake.shop.icecdc_ingest_log", config.quoted_commit_log).replace("'orders'", f"'{config.job}'")
    shown = {row.name: row.valid_through for row in spark.sql(query).collect()}
    found = commit_log.valid_through(spark, config.quoted_commit_log, config.job)
    assert {name: time.astimezone(UTC) for name, time in shown.items() if time} == found
    return [found.get(f"`lake`.`{config.job}`.`{table}`") for table in "abc"]


def it_says_up_to_when_each_table_has_every_record(spark, make_ingest, topic, name):
    spark.sql(f"CREATE NAMESPACE lake.{name}")
    for table in "abc":
        spark.sql(f"CREATE TABLE lake.{name}.{table} (id BIGINT) USING iceberg")
    config = make_ingest(route_by="field", route_field="to", commit_log_table=f"lake.{name}.log")

    def run(*to, **parameters):
        topic.send(*({"id": number, "to": table} for number, table in enumerate(to)))
        begin = datetime.now(UTC)
        report = ingest(spark, config.replace(**parameters))
        times = valid_through(spark, config)
        reported = {each["valid_through"] for each in report.tables.values()}
        assert reported <= {"", *(time.isoformat() for time in times if time and time > begin)}
        return [time is not None and time > begin for time in times], times

    assert run("a", "b", "c")[0] == [True, True, True]
    spark.sql(f"DROP TABLE lake.{name}.b")
    before = valid_through(spark, config)
    # The table c gets no record and moves on; b does not, whatever others get.
    for to in ("ab", "a", "ca"):
        news, times = run(*to)
        assert (news, times[1]) == ([True, False, True], before[1])
    spark.sql(f"CREATE TABLE lake.{name}.b (id BIGINT) USING iceberg")
    assert run("a", on_table_reset="refill")[0] == [True, True, True]
    # A log of an earlier release says of none of its tables what it did not know.
    spark.sql(f"ALTER TABLE {config.quoted_commit_log} DROP COLUMNS (ends_read_at, behind)")
    spark.sql(f"DROP TABLE lake.{name}.c")
    assert run("a", "c")[0] == [True, True, False]
    assert valid_through(spark, config)[2] is None
