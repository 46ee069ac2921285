"""Parts of the ids: every document is in the part that its id says, and n of them find what a validation finds."""

import base64

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.sql import functions as F

from icecdc_core import errors, export_table, validate_table
from icecdc_core.commits.audit import audit_facts
from icecdc_core.commits.store import PositionStore
from icecdc_core.jobs.poll import follow_changes
from icecdc_core.opensearch import checksums
from icecdc_core.opensearch.id_slices import Part, part_of
from icecdc_core.opensearch.indexes import point_in_time
from icecdc_core.runs.cluster_status import cluster_status

numbers = st.from_regex(r"[0-9]{1,40}", fullmatch=True)
in_base64 = st.binary(min_size=1, max_size=60).map(lambda b: base64.urlsafe_b64encode(b).decode().rstrip("="))
high_bytes = st.binary(max_size=4).map(lambda b: base64.urlsafe_b64encode(b"\xfe" + b).decode().rstrip("="))
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)
composite = st.tuples(numbers, texts).map("|".join)
an_id = st.one_of(numbers, in_base64, high_bytes, digests, texts, composite)

CREATE = "CREATE TABLE {t} (id STRING NOT NULL, day DATE NOT NULL, name STRING) USING iceberg"
# Digits, base64 text, text of other characters, and an id that is longer than OpenSearch accepts.
FILL = """INSERT INTO {t} SELECT concat(elt(1 + id % 4, '', 'abc', 'ü|', repeat('x', 600)), 1000 + id),
DATE '2026-01-01', concat('n', id) FROM range(400)"""


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(an_id, min_size=1, max_size=300, unique=True), shards=st.integers(1, 3), parts=st.integers(1, 7))
def it_knows_the_slice_of_any_id(spark, opensearch, name, ids, shards, parts):
    ids, index = [each for each in ids if len(each.encode()) <= 512], f"{name}-{shards}"
    opensearch.indices.create(index=index, body={"settings": {"number_of_shards": shards, "number_of_replicas": 0}})
    try:
        opensearch.bulk(
            body=[line for each in ids for line in ({"index": {"_id": each}}, {})], index=index, refresh=True
        )
        with point_in_time(opensearch, index) as pit:
            found = {
                hit["_id"]: number
                for number in range(parts)
                for query in checksums.index_parts(opensearch, pit, shards, 2, Part(number, parts))
                for hit in opensearch.search(body={**query, "size": 1000}, params=checksums.WHOLE)["hits"]["hits"]
            }
    finally:
        opensearch.indices.delete(index=index)
    rows = spark.createDataFrame([(each,) for each in ids], "id string")
    assert found == dict(rows.select("id", part_of(spark, F.col("id"), parts)).collect())


@pytest.fixture(params=[(1, ["id"]), (3, ["day", "id"])], ids=["one-shard", "three-shards-composite"])
def exported(request, new_index):
    shards, columns = request.param
    given = {"number_of_shards": shards, "identifier_columns": columns, "settings": {"max_result_window": 5000}}
    return new_index(CREATE, FILL, **given, audit_parts=5)


def planted(opensearch, config):
    """Change one document, delete one and add one, in which a hit seems to begin; returns their ids."""
    opensearch.indices.refresh(index=config.index)
    opensearch.indices.put_mapping(index=config.index, body={"dynamic": False})
    (physical,) = opensearch.indices.get(index=config.index)
    body = {"query": {"match_all": {}}, "sort": ["name.keyword"], "size": 2}
    stale, missing = (hit["_id"] for hit in opensearch.search(index=config.index, body=body)["hits"]["hits"])
    opensearch.index(index=config.index, id=stale, body={"name": "changed"})
    opensearch.delete(index=config.index, id=missing)
    seems_a_hit = {"_index": physical, "_id": "", "_version": 1}
    opensearch.index(index=config.index, id="2026-01-01|foreign", body={"other": seems_a_hit})
    return {missing}, {"2026-01-01|foreign"}, {stale}


def it_finds_in_n_runs_what_differs_and_repairs_one_part(spark, exported, opensearch):
    wanted = planted(opensearch, exported)
    auto, everything = exported.replace(part="auto"), validate_table(spark, exported)
    reports = [validate_table(spark, auto) for _ in range(5)]
    assert [each.part for each in reports] == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    sums = [sum(getattr(each, name) for each in reports) for name in ("source_rows", "index_documents", "differences")]
    assert sums == [400, 400, 3] == [everything.source_rows, everything.index_documents, everything.differences]
    kinds = ("missing_ids", "extra_ids", "stale_ids")
    assert tuple({each for report in reports for each in getattr(report, kind)} for kind in kinds) == wanted
    store = PositionStore(opensearch, exported)
    known = audit_facts(store.audit(store.read()))
    assert [known[name] for name in ("compared", "differences", "repaired")] == [5, 3, 0]
    (status,) = cluster_status(exported).indexes
    assert (status.state, status.audit) == ("differs", known)
    assert " 5 of 5 parts compared since " in cluster_status(exported).text()
    # A repair of one part that differs, then of everything.
    first = next(report for report in reports if not report.ok)
    repaired = validate_table(spark, exported.replace(part=first.part, repair=True))
    assert (repaired.ok, repaired.repaired) == (True, first.differences)
    repaired = validate_table(spark, exported.replace(part="1/1", repair=True))
    assert (repaired.ok, repaired.repaired) == (True, 3 - first.differences)
    (status,) = cluster_status(exported).indexes
    is_newer = status.audit["oldest_compared_at"] > known["oldest_compared_at"]
    assert (status.state, status.audit["differences"], status.audit["repaired"], is_newer) == ("ok", 0, 3, True)
    report = follow_changes(spark, exported.replace(audit_seconds=0.001))
    assert (report.strategy, report.audit) == ("none", {"parts": 1, "differences": 0, "failure": ""})
    # After an export nothing is known.
    export_table(spark, exported)
    assert store.audit(store.read())["compared_at"] == []


def compared_in_parts(spark, config):
    reports = [validate_table(spark, config.replace(part="auto")) for _ in range(config.audit_parts)]
    found = [sum(getattr(each, name) for each in reports) for name in ("source_rows", "index_documents")]
    kinds = ("missing", "extra", "stale")
    return found, *([each for report in reports for each in getattr(report, f"{kind}_ids")] for kind in kinds)


def it_finds_wrong_documents_in_any_place(spark, new_index, opensearch):
    create = "CREATE TABLE {t} (id INT, place STRING, area STRING) USING iceberg"
    fill = "INSERT INTO {t} SELECT id, concat('p', id % 2), concat('x', id % 3) FROM range(60)"
    places = {"index_column": "place", "routing": "area", "number_of_shards": 2}
    config = new_index(create, fill, **places, audit_parts=3)
    (stale,) = opensearch.search(index=config.index, body={"query": {"ids": {"values": ["7"]}}})["hits"]["hits"]
    write = {"id": "7", "index": stale["_index"], "body": {"id": 70}, "routing": stale["_routing"]}
    opensearch.index(**write)
    opensearch.index(**{**write, "id": "8", "routing": "other"})
    assert compared_in_parts(spark, config) == ([60, 61], [], ["8"], ["7"])


def it_finds_a_wrong_document_of_several_tables_at_the_position(spark, new_index, make_shop, opensearch):
    shop = make_shop(tables=("film", "language"))
    config = new_index(**shop.spec, audit_parts=3)
    opensearch.update(index=config.index, id="2", body={"doc": {"language": {"name": "changed"}}})
    shop.sql("UPDATE {language} SET name = 'Anglais' WHERE language_id = 1")
    assert compared_in_parts(spark, config) == ([4, 4], [], [], ["2"])


def it_repairs_nothing_if_the_server_slices_otherwise(spark, new_index, monkeypatch, opensearch):
    config = new_index(CREATE, FILL, part="1/5", repair=True)
    before = PositionStore(opensearch, config).read()
    search = checksums.part_of_index
    # Documents of another part are read; half of the documents are not, so they only seem to be missing.
    for other in (Part(1, 5), Part(0, 10)):
        monkeypatch.setattr(
            checksums, "part_of_index", lambda *given, other=other: search(*given[:5], *given[5:] and [other])
        )
        with pytest.raises(errors.UnknownSlicesError, match=r"slices a search by another function.*Remedy: leave part"):
            validate_table(spark, config)
    assert PositionStore(opensearch, config).read() == before


def it_refuses_a_part_of_documents_without_identifiers(spark, new_index):
    config = new_index(
        "CREATE TABLE {t} (name STRING) USING iceberg", "INSERT INTO {t} VALUES ('a')", identifier_columns=[]
    )
    with pytest.raises(errors.IdentifierColumnsError, match="part"):
        validate_table(spark, config.replace(part="auto"))
    with pytest.raises(errors.IdentifierColumnsError, match="Remedy: set audit_seconds to 0, or"):
        follow_changes(spark, config.replace(audit_seconds=1))
    assert validate_table(spark, config.replace(part="1/1")).ok
