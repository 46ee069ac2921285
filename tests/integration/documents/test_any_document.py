"""Tables with the limits of every type and drawn values: every document is what its row says, and searches find it.

``ICECDC_FUZZ`` says how many tables, ``ICECDC_SEED`` which; each prints its parameters.
"""

import base64
import hashlib
import itertools
import json
import math
import os
import re
import time
from collections import defaultdict
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from pyspark.sql import functions as F, types as T
from pyspark.sql.pandas.types import to_arrow_schema

from icecdc_core import export_table, sync_changes, validate_table
from tests.checks.examples import SEED, for_examples
from tests.histories.proof import placed
from tests.servers.stub_model import DIMENSION, vector

MANY = int(os.environ.get("ICECDC_FUZZ", "1"))
# By type the mapping that the documentation promises.
DOCUMENTED = dict(
    re.findall(r"\n\| ([^|]+) \| [^|]+ \| `(\w+)`", (Path(__file__).parents[3] / "docs/types.md").read_text())
)
DAY, LONG = 86_400_000_000, 2**63
# Changes of clocks and of the calendar.
AT = [at * 1_000_000 + 1 for at in (1616889600, 1635642000, 1520751599, 1541311200, -12219292800, 1540695600)]
# Of each type the limits, as pyarrow has them (strings are bytes, dates days, times microseconds), and others.
TYPES = {
    "boolean": ([True, False], st.booleans()),
    "int": ([-(2**31), 2**31 - 1], st.integers(-(2**31), 2**31 - 1)),
    "long": ([-LONG, LONG - 1, 2**53 + 1], st.integers(-LONG, LONG - 1)),
    "float": ([-0.0, 3.4028234663852886e38, math.nan, -math.inf], st.sampled_from([0.5, -1024.0])),
    "double": ([-0.0, 5e-324, 1.7976931348623157e308, math.nan, math.inf], st.floats(allow_nan=False)),
    "decimal(9, 2)": ([Decimal("0.00"), Decimal("-9999999.99")],
                      st.integers(-(10**9) + 1, 10**9 - 1).map(lambda digits: Decimal(digits).scaleb(-2))),
    "decimal(38, 37)": ([Decimal("1e-37"), Decimal("-9." + "9" * 37), Decimal("0e-37")],),
    "date": ([-719162, -719529, -719163, -141428, -141427, 2932896, 2932897, 18717, -2_000_000, 100_000_000],
             st.integers(-1_000_000, 4_000_000)),
    "timestamp": ([-1, 0, -719162 * DAY, 2932897 * DAY - 1, 2932897 * DAY, *AT], st.integers(-(10**17), 10**18)),
    "timestamptz": ([-1, 0, LONG - 1, -719163 * DAY, *AT], st.integers(-(10**17), 10**18)),
    "string": ([b"", b" ", b"a|b\\", b"a,b", bytes(range(1, 32)) + b"\0\x7f", '"\u2028{}\U0001f600é'.encode(),
                hashlib.sha256(b"").hexdigest().encode(), "é".encode() * 20000, b"x" * 600, b"a\xff\xc3",
                b"\xef\xbf\xbd"], st.text(max_size=9).map(str.encode) | st.binary(max_size=5)),
    "uuid": ([b"f79c3e09-677c-4bbd-a479-3f349cb785e7", b"00000000-0000-0000-0000-000000000000"],),
    "fixed[4]": ([b"\x00\xff\x00\xff", bytes(4)], st.binary(min_size=4, max_size=4)),
    "binary": ([b"", b"\x00\xff", bytes(60), b"i" * 400], st.binary(max_size=9)),
    "variant": ([b'{"b": 1.50, "a": [1, null, {}, "\\u0001"]}', b"7", b"null"],),
    "unknown": ([],),
}  # fmt: skip
ONLY_V3, REALS, WORDS = ("variant", "unknown"), ("float", "double"), ("string", "uuid")
TIMES, BYTES = ("date", "timestamp", "timestamptz"), ("fixed[4]", "binary")
SINGLE = [kind for kind in TYPES if kind not in ONLY_V3]
KEYS = [kind for kind in SINGLE if kind not in REALS]
ODD = ["uuid", "binary", "string", *TIMES]  # keys that Python, or Iceberg's bounds of files, could change
MAPPED = [kind for kind in SINGLE if kind not in BYTES]
NESTED = st.recursive(
    st.sampled_from(SINGLE),
    lambda inner: st.one_of(
        st.tuples(st.just("list"), inner),
        st.tuples(st.just("map"), st.sampled_from(KEYS) | st.just(("struct", {"a": "int", "b": "date"})), inner),
        st.tuples(st.just("struct"), st.dictionaries(st.sampled_from("abcd"), inner, min_size=1)),
    ),
    max_leaves=5,
)
WRAPPED = (
    ("named_struct('v', {})", lambda kind: ("struct", {"v": kind}), lambda value: {"v": value}),
    ("array({}, null)", lambda kind: ("list", kind), lambda value: [value, None]),
    ("map('k', {})", lambda kind: ("map", "string", kind), lambda value: [(b"k", value)]),
)


def text(kind, value):
    if isinstance(kind, tuple):
        return json.dumps(document(kind, value), separators=(",", ":"))
    if kind in TIMES:
        found = re.fullmatch("(-?[0-9]+)(-.*)", str(np.datetime64(value, "D" if kind == "date" else "us")))
        year = int(found[1])
        return f"{f'{year:04}' if 0 <= year <= 9999 else f'{year:+05}'}{found[2]}{'Z' * (kind == 'timestamptz')}"
    if kind in WORDS:
        return value.decode("utf-8", "replace")
    if kind in BYTES:
        return base64.b64encode(value).decode()
    return f"{value:f}" if isinstance(value, Decimal) else str(value).lower()


def document(kind, value):
    shape, *inner = kind if isinstance(kind, tuple) else (kind,)
    if value is None or kind in ("boolean", "int", "long"):
        return value
    if shape == "struct":
        return {name: document(each, value[name]) for name, each in inner[0].items()}
    if shape == "list":
        return [document(inner[0], each) for each in value]
    if shape == "map":
        return {text(inner[0], key): document(inner[1], each) for key, each in value}
    if kind == "variant":
        return json.loads(value)
    if kind in REALS:
        value = float(str(np.float32(value))) if kind == "float" else value
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)
    return text(kind, value)


def document_id(kinds, values):
    raw = [value if kind == "string" else text(kind, value).encode() for kind, value in zip(kinds, values, strict=True)]
    if len(raw) > 1:
        raw = [each.replace(b"\\", b"\\\\").replace(b"|", b"\\|") for each in raw]
    joined = b"|".join(raw)
    looks_hashed = len(raw) == 1 and re.fullmatch(b"[0-9a-f]{64}", joined)
    if looks_hashed or not 0 < len(joined) <= 512 or joined.decode("utf-8", "replace").encode() != joined:
        return hashlib.sha256(joined).hexdigest()
    return joined.decode()


def declared(ids, name, kind):
    """A field as Iceberg's schema JSON writes it."""
    key, (shape, *inner) = next(ids), kind if isinstance(kind, tuple) else (kind,)
    if shape == "struct":
        kind = {"type": shape, "fields": [declared(ids, *each) for each in inner[0].items()]}
    elif inner:
        kind = {"type": shape}
        for part, each in zip(["element"] if shape == "list" else ["key", "value"], inner, strict=True):
            made = declared(ids, part, each)
            kind |= {part: made["type"], f"{part}-id": made["id"], f"{part}-required": False}
    return {"id": key, "name": name, "required": False, "type": kind}


def leaves(path, how, kind, value):
    """The single values that a field of a document indexes; ``how``: as its type, as a keyword, or as part of a map."""
    shape, *inner = kind if isinstance(kind, tuple) else (kind,)
    if value is None or kind == "variant":
        return
    if shape == "struct":
        for name, each in inner[0].items():
            yield from leaves(path if how == "map" else f"{path}.{name}", how, each, value[name])
    elif shape == "list":
        for each in value:
            yield from leaves(path, how, inner[0], each)
    elif shape == "map":
        for _, each in value:
            yield from leaves(path, "map", inner[1], each)
    else:
        yield path, how, kind, value


def is_refused(_, how, kind, value):
    return kind == "string" and len(value) > 32766 if how else kind in REALS and not math.isfinite(value)


def search(path, how, kind, value):
    """What finds a value, and what the field knows of it: milliseconds of times, doubles of decimals, no long texts."""
    if (how and kind in REALS) or (not how and (kind in BYTES or (kind in WORDS and len(value) > 9999))):
        return None
    shown = text(kind, value) if how else document(kind, value)
    path += ".keyword" if not how and kind in WORDS else ""
    if how or kind not in TIMES:
        return path, float(value) if isinstance(value, Decimal) and not how else repr(shown), {"term": {path: shown}}
    return path, value if kind == "date" else value // 1000, {"range": {path: {"gte": shown, "lte": shown}}}


class Rows:
    """Rows of drawn values, the parameters of an index of them, and what its documents are."""

    def __init__(self, rnd, drawn, nested, version, identifiers, name):
        self.rnd, self.pools = rnd, {kind: [*limits, *drawn.get(kind, [])] for kind, (limits, *_) in TYPES.items()}
        some = [("struct", {kind: kind for kind in rnd.sample(SINGLE, 3)}) for _ in range(3)]
        kinds = {kind: kind for kind in TYPES if version == 3 or kind not in ONLY_V3} | {"struct": some[0]}
        kinds |= {"list": ("list", some[1]), "map": ("map", "string", some[2]), **dict(zip("ab", nested, strict=True))}
        self.columns, self.key = {"n": "int", **kinds}, lambda row: [row[each] for each in identifiers]
        rows = enumerate(zip(*map(self.column, kinds.values()), strict=True))
        rows = [dict(zip(self.columns, (n, *row), strict=True)) for n, row in rows]
        self.rows = [*{str(self.key(row)): row for row in rows if None not in self.key(row)}.values()]
        self.link, self.identifiers = rnd.choice([*KEYS, *ODD]), identifiers
        self.kinds, self.made = dict(self.columns), {name: itemgetter(name) for name in self.columns}
        self.given = given = {"identifier_columns": identifiers, "max_rejected_documents": 99, "number_of_shards": 2}
        if rnd.random() < 0.6:
            self.choose_fields()
        self.mapped = {each for each, kind in self.kinds.items() if kind in MAPPED and rnd.random() < 0.3}
        given["mapping"] = {each: {"type": "keyword"} for each in self.mapped}
        if rnd.random() < 0.5:
            given["routing"] = rnd.choice(["string", "int", "decimal(9, 2)", "date", "boolean"])
            place = f"cast(`{given['routing']}` AS string)"
            given["row_filter"] = f"octet_length({place}) BETWEEN 1 AND 999 AND NOT contains({place}, ',')"
        if rnd.random() < 0.8:
            entry = {"table": f"lake.ns.{name}_inner", "alias": "i", "on": f"i.link = r.`{self.link}`", "as": "array"}
            given |= {"alias": "r", "nest": {"inner": {**entry, "select": ["i.m"], "order_by": "i.m DESC"}}}
        if rnd.random() < 0.3:
            entry = {"function": "tests.servers.stub_model:embed", "model": name, "dimension": DIMENSION}
            entry["text"] = f"'{name} ' || string"
            given |= {"embed": {"vector": entry}, "embed_table": f"lake.ns.{name}_v"}
            given["mapping"]["vector"] = {"method": {"name": "hnsw", "engine": "lucene"}}

    def choose_fields(self):
        del self.kinds["list"]
        self.given["select"] = ["* EXCEPT (`list`)", "n % 3 AS part"]
        self.kinds["part"], self.made["part"] = "int", lambda row: row["n"] % 3
        for column in self.rnd.sample([each for each in TYPES if each in self.columns], 3):
            sql, kind, value = self.rnd.choice(WRAPPED)
            self.given["select"].append(f"{sql.format(f'`{column}`')} AS `in {column}`")
            self.kinds[f"in {column}"] = kind(column)
            self.made[f"in {column}"] = lambda row, column=column, value=value: value(row[column])
        if self.rnd.random() < 0.5:
            self.given["index_column"] = "part"

    def column(self, kind):
        """Each value of a type once, then any."""
        first = self.rnd.sample(self.pools[kind], len(self.pools[kind])) if isinstance(kind, str) else []
        return [*first, *(self.value(kind) for _ in range(24))][:24]

    def value(self, kind):
        shape, *inner = kind if isinstance(kind, tuple) else (kind,)
        if self.rnd.random() < 0.15 or kind == "unknown":
            return None
        if shape == "struct":
            return {name: self.value(each) for name, each in inner[0].items()}
        if shape == "list":
            return [self.value(inner[0]) for _ in range(self.rnd.randrange(4))]
        if shape == "map":
            keys = {text(inner[0], key): key for key in (self.value(inner[0]) for _ in range(3)) if key is not None}
            return [(key, self.value(inner[1])) for shown, key in keys.items() if len(shown) < 9999]
        return self.rnd.choice([each for each in self.pools[kind] if kind not in REALS or math.isfinite(each)])

    def changed(self, row):
        kept = {"n", *self.identifiers}
        return row | {name: self.value(kind) for name, kind in self.columns.items() if name not in kept}

    def leaves(self, row):
        for name, kind in self.kinds.items():
            yield from leaves(name, "keyword" if name in self.mapped else "", kind, self.made[name](row))

    def is_refused(self, row):
        return any(is_refused(*each) for each in self.leaves(row))

    def is_shown(self, row):
        place = row[self.given["routing"]] if "routing" in self.given else 0
        return place is not None and (not isinstance(place, bytes) or (0 < len(place) < 1000 and b"," not in place))

    def expected(self, row, entries):
        """Id, routing, suffix of the index, and document of a row."""
        made = {name: document(kind, self.made[name](row)) for name, kind in self.kinds.items()}
        if "nest" in self.given:
            linked = [m for key, m in entries if key is not None and key == row[self.link]]
            made["inner"] = [{"m": m} for m in sorted(linked, reverse=True)]
        if "embed" in self.given:
            made["vector"] = None if row["string"] is None else vector(text("string", row["string"]))
        key = document_id([self.columns[each] for each in self.identifiers], self.key(row))
        routing = text(self.given["routing"], row[self.given["routing"]]) if "routing" in self.given else None
        return key, routing, str(row["n"] % 3) if "index_column" in self.given else "", made


def read_back(spark, path, table, rows):
    """Rows as Spark reads them from a Parquet file, in the types of the table."""
    schema = re.sub(r'("\w*[tT]ype"):"variant"', r'\1:"string"', spark.table(table).schema.json())
    schema = schema.replace('"type":"void"', '"type":"integer"')
    raw = T.StructType.fromJson(json.loads(re.sub(r'("\w*[tT]ype"):"string"', r'\1:"binary"', schema)))
    pq.write_table(pa.Table.from_pylist(rows, to_arrow_schema(raw)), path)
    frame = spark.read.schema(T.StructType.fromJson(json.loads(schema))).parquet(str(path))
    more = {"variant": F.parse_json("variant"), "unknown": F.lit(None)}
    return frame.withColumns(more) if "variant" in frame.columns else frame


def assert_indexed(client, index, rows, present, entries):
    present = [(row, rows.expected(row, entries)) for row in present if rows.is_shown(row) and not rows.is_refused(row)]
    expected = {json.dumps(each, sort_keys=True) for _, each in present}
    found = {json.dumps(each, sort_keys=True) for each in placed(client, index)}
    assert (found - expected, expected - found) == (set(), set())
    finds, queries = defaultdict(set), {}
    for row, (key, *_) in present:
        for path, known, query in filter(None, (search(*leaf) for leaf in rows.leaves(row))):
            finds[path, known].add(key)
            queries[path, known] = query
    chosen = rows.rnd.sample([*queries], min(len(queries), 50))
    asked = [(None, queries[each], finds[each]) for each in chosen]
    asked += [(routing, {"ids": {"values": [key]}}, {key}) for _, (key, routing, *_) in present]
    body = [part for at, query, _ in asked for part in ({"routing": at} if at else {}, {"query": query, "size": 99})]
    for each, answer in zip(asked, client.msearch(body=body, index=index)["responses"], strict=True):
        assert {hit["_id"] for hit in answer["hits"]["hits"]} == each[-1], each


@pytest.fixture
def check(spark, sql, create_table, make_config, opensearch, name, tmp_path):
    """Export a table of rows, change it and sync: each time the documents are those of its rows."""

    def run(number, rows, version, mode):
        index, table = f"{name}-{number}", f"lake.ns.{name}"
        ids, before, entries = itertools.count(1), rows.rows[:-3], [(rows.value(rows.link), m) for m in range(12)]
        create_table([declared(ids, *each) for each in rows.columns.items()], version)
        sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.merge.mode' = '{mode}')")
        read_back(spark, tmp_path / "rows", table, before).writeTo(table).append()
        sql(f"CREATE TABLE {{t}}_inner USING iceberg AS SELECT `{rows.link}` AS link, n AS m FROM {{t}} LIMIT 0")
        links = [{"link": key, "m": m} for key, m in entries]
        read_back(spark, tmp_path / "inner", f"{table}_inner", links).writeTo(f"{table}_inner").append()
        config = make_config(index=index, **rows.given)
        export_table(spark, config)
        assert_indexed(opensearch, index, rows, before, entries)
        fields = opensearch.indices.get_mapping(index=index).popitem()[1]["mappings"]["properties"]
        plain = rows.kinds.keys() & DOCUMENTED.keys() & {*TYPES} - rows.mapped
        assert {each: fields[each]["type"] for each in plain} == {each: DOCUMENTED[each] for each in plain}

        gone, new = before[::3], [row for row in map(rows.changed, before[1::3]) if not rows.is_refused(row)]
        after = {row["n"]: row for row in (*before, *new, *rows.rows[-3:])}
        merged = read_back(spark, tmp_path / "merged", table, [*gone, *new, *rows.rows[-3:]])
        merged.createOrReplaceTempView("merged")
        numbers = ", ".join(str(after.pop(row["n"])["n"]) for row in gone)
        sql(
            f"MERGE INTO {{t}} t USING merged s ON t.n = s.n WHEN MATCHED AND s.n IN ({numbers}) THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        sql(
            "DELETE FROM {t}_inner WHERE m < 4", "INSERT INTO {t}_inner SELECT link, m + 100 FROM {t}_inner WHERE m < 8"
        )
        entries = [*entries[4:], *((key, m + 100) for key, m in entries[4:8])]
        sync_changes(spark, config)
        assert_indexed(opensearch, index, rows, after.values(), entries)
        shown = [row for row in after.values() if rows.is_shown(row)]
        report = validate_table(spark, config)
        counts = report.source_rows, report.missing, report.extra, report.stale
        assert counts == (len(shown), sum(map(rows.is_refused, shown)), 0, 0)

    return run


def it_is_what_its_row_says_and_is_found(spark, sql, check, model, name):
    made = itertools.count(1)

    def of(drawn, nested, identifiers, wide, version, mode, zone, number):
        rows = Rows(Random(SEED + number), drawn, nested, version, [*dict.fromkeys([wide, *identifiers])], name)
        print(f"version {version}, {mode}, {zone}, {nested}, {rows.given}", flush=True)
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            with mock.patch.dict(os.environ, {"TZ": zone}):
                time.tzset()
                check(next(made), rows, version, mode)
        finally:
            time.tzset()
            spark.conf.unset("spark.sql.session.timeZone")
            sql("DROP TABLE IF EXISTS {t}", "DROP TABLE IF EXISTS {t}_inner", "DROP TABLE IF EXISTS {t}_v")

    for_examples(
        of,
        MANY,
        drawn=st.fixed_dictionaries(
            {kind: st.lists(each, max_size=4) for kind, (_, *more) in TYPES.items() for each in more}
        ),
        nested=st.lists(NESTED, min_size=2, max_size=2),
        identifiers=st.lists(st.sampled_from(KEYS), max_size=3),
        wide=st.sampled_from(["binary", *ODD[1:]]),
        version=st.sampled_from([3, 2]),
        mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
        zone=st.sampled_from(["America/Sao_Paulo", "UTC", "Asia/Kathmandu", "Pacific/Apia"]),
        number=st.integers(0, 2**32),
    )
