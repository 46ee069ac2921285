"""A writer of Iceberg tables that writes what readers need: files by pyarrow, metadata by its own Avro encoder."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
_RESERVED = {ROW_ID: 2147483540, LAST_UPDATED: 2147483539, "file_path": 2147483546, "pos": 2147483545}
_ARROW = {"int": pa.int32(), "string": pa.string(), "long": pa.int64()}
EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITIONS, EQUALITY = 0, 1, 2


def _number(value: int) -> bytes:
    value, out = (value << 1) ^ (value >> 63), bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _encode(kind: Any, value: Any) -> bytes:
    if isinstance(kind, list):  # an optional field
        return b"\0" if value is None else b"\2" + _encode(kind[1], value)
    if isinstance(kind, dict) and kind["type"] == "record":
        return b"".join(_encode(each["type"], value.get(each["name"])) for each in kind["fields"])
    if isinstance(kind, dict):
        items = b"".join(_encode(kind["items"], each) for each in value)
        return (_number(len(value)) + items if value else b"") + b"\0"
    if kind in ("int", "long"):
        return _number(value)
    data = value.encode() if isinstance(value, str) else value
    return _number(len(data)) + data


def _write_avro(path: Path, schema: Any, facts: dict[str, str], records: list[dict[str, Any]]) -> None:
    sync, head = uuid.uuid4().bytes, {"avro.schema": json.dumps(schema), "avro.codec": "null", **facts}
    meta = b"".join(_encode("string", text) for pair in head.items() for text in pair)
    rows = b"".join(_encode(schema, each) for each in records)
    block = _number(len(records)) + _number(len(rows)) + rows + sync if records else b""
    path.write_bytes(b"Obj\1" + _number(len(head)) + meta + b"\0" + sync + block)


def _record(name: str, *fields: tuple[int, str, Any]) -> dict[str, Any]:
    """Fields are required unless their name ends with a question mark."""
    made = []
    for number, text, kind in fields:
        optional = {"type": ["null", kind], "default": None} if text.endswith("?") else {"type": kind}
        made.append({"name": text.rstrip("?"), "field-id": number, **optional})
    return {"type": "record", "name": name, "fields": made}


def _bounds(key: int) -> dict[str, Any]:
    item = _record(f"k{key}_v{key + 1}", (key, "key", "int"), (key + 1, "value", "bytes"))
    return {"type": "array", "logicalType": "map", "items": item}


@dataclass(frozen=True)
class File:
    """A data file with its rows, or a delete file with what it deletes; what its entry in a manifest says."""

    path: str
    rows: tuple[dict[str, Any], ...] = ()
    content: int = DATA
    spec: int = 0
    region: int | None = None
    sequence: int = 0
    snapshot: int = 0
    first_row_id: int | None = None
    size: int = 0
    target: str = ""
    positions: frozenset[tuple[str, int]] = frozenset()
    column: str = ""
    blob: tuple[int, int] | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        return self.path, self.blob


@dataclass
class State:
    """What a snapshot lists: manifests by their paths, and what the list says of each."""

    snapshot_id: int
    manifests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def files(self) -> list[File]:
        return [file for each in self.manifests for file in each["files"]]


class OtherWriter:
    def __init__(self, place: Path, version: int, field_ids: bool = True, has_key: bool = False) -> None:
        self.place, self.field_ids, self.has_key = place, field_ids, has_key
        self.stated_version, self.version = version, min(version, 3)  # what is new in version 4 is not written
        place.mkdir(parents=True)
        self.schemas = [{1: ("id", "int"), 2: ("name", "string"), 3: ("region", "int")}]
        self.specs: list[list[dict[str, Any]]] = [
            [],
            [{"source-id": 3, "field-id": 1000, "name": "region", "transform": "identity"}],
        ]
        self.spec, self.next_id, self.next_row_id, self.count = 0, 0, 0, 0
        self.last_column = 3
        self.snapshots: list[dict[str, Any]] = []
        self.states: dict[int, State] = {}
        self.current: State | None = None

    # Files

    def _path(self, ending: str) -> str:
        self.count += 1
        return f"{self.place}/{self.count:04}.{ending}"

    def _write_parquet(self, columns: dict[str, tuple[int, str]], rows: list[dict[str, Any]]) -> str:
        ids = self.field_ids or not any(number < 1000 for number, _ in columns.values())
        fields = [
            pa.field(name, _ARROW[kind], metadata={"PARQUET:field_id": str(number)} if ids else None)
            for name, (number, kind) in columns.items()
        ]
        path = self._path("parquet")
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path)
        return path

    def data_file(self, rows: list[dict[str, Any]], region: int | None = None, lineage: bool = False) -> File:
        columns = {name: (number, kind) for number, (name, kind) in self.schemas[-1].items()}
        if lineage:
            columns |= {name: (_RESERVED[name], "long") for name in (ROW_ID, LAST_UPDATED)}
        path = self._write_parquet(columns, rows)
        spec = self.spec if region is not None or not self.spec else 0
        return File(path, tuple(rows), spec=spec, region=region if spec else None, size=Path(path).stat().st_size)

    def position_deletes(self, positions: set[tuple[str, int]], like: File, named: bool) -> File:
        columns = {"file_path": (_RESERVED["file_path"], "string"), "pos": (_RESERVED["pos"], "long")}
        rows = [{"file_path": path, "pos": at} for path, at in sorted(positions)]
        path, target = self._write_parquet(columns, rows), like.path if named else ""
        made = File(path, content=POSITIONS, spec=like.spec, region=like.region, size=Path(path).stat().st_size)
        return replace(made, target=target, positions=frozenset(positions))

    def deletion_vectors(self, positions: list[tuple[File, set[int]]]) -> list[File]:
        """One for each data file, all in one file."""
        path, whole, blobs, made = self._path("puffin"), b"PFA1", [], []
        for like, at in positions:
            data = b"\xd1\xd3\x39\x64" + BitMap64(at).serialize()
            blob = struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
            about = {"referenced-data-file": like.path, "cardinality": str(len(at))}
            place = {"offset": len(whole), "length": len(blob), "snapshot-id": -1, "sequence-number": -1}
            blobs.append({"type": "deletion-vector-v1", "fields": [_RESERVED["pos"]], **place, "properties": about})
            file = File(path, content=POSITIONS, spec=like.spec, region=like.region, target=like.path)
            deleted = frozenset((like.path, each) for each in at)
            made.append(replace(file, positions=deleted, blob=(len(whole), len(blob))))
            whole += blob
        foot = json.dumps({"blobs": blobs}).encode()
        whole += b"PFA1" + foot + struct.pack("<ii", len(foot), 0) + b"PFA1"
        Path(path).write_bytes(whole)
        return [replace(file, size=len(whole)) for file in made]

    def equality_deletes(self, column: str, values: list[Any], like: File) -> File:
        """In the partition of a file; everywhere if that has none."""
        number, kind = next((n, each[1]) for n, each in self.schemas[-1].items() if each[0] == column)
        rows = tuple({column: value} for value in values)
        path = self._write_parquet({column: (number, kind)}, list(rows))
        made = File(path, rows, EQUALITY, spec=like.spec, region=like.region, size=Path(path).stat().st_size)
        return replace(made, column=f"{number}")

    def alive(self, file: File) -> list[tuple[int, dict[str, Any]]]:
        """The rows of a data file that no delete file of the current state hits, with their positions."""
        assert self.current is not None
        rows = []
        deletes = [each for each in self.current.files if each.content != DATA]
        for at, row in enumerate(file.rows):
            hit = any((file.path, at) in each.positions and each.sequence >= file.sequence for each in deletes)
            for each in (each for each in deletes if each.content == EQUALITY and each.sequence > file.sequence):
                name = self.schemas[-1].get(int(each.column), ("",))[0]
                is_there = not each.spec or (each.spec, each.region) == (file.spec, file.region)
                hit |= is_there and any(deleted.get(name, 0) == row.get(name) for deleted in each.rows)
            if not hit:
                rows.append((at, row))
        return rows

    # Snapshots

    def commit(
        self,
        added: list[File],
        removed: set[Any] = frozenset(),  # type: ignore[assignment]
        operation: str = "overwrite",
        renamed: str = "",
        layout: str = "delta",
        marks: str = "own",
        counts: str = "right",
        orphan: bool = False,
        snapshot_id: int | None = None,
        row_ids_from: int | None = None,
        late: int = 0,
    ) -> int:
        """Commit files; ``layout`` says which manifests are written again, ``marks`` how removed files are marked.

        ``renamed``: an operation that no release knows, in place of one that changes rows. ``late``: by how much the
        sequence number is too low.
        """
        number = len(self.snapshots) + 1
        snapshot_id = snapshot_id or 1000 + number
        sequence = max(1, number - late) if self.version > 1 else 0
        before = self.current.manifests if self.current else []
        first_row_id = self.next_row_id if row_ids_from is None else row_ids_from
        state, next_row_id = State(snapshot_id), first_row_id
        fresh = [replace(file, sequence=sequence, snapshot=snapshot_id) for file in added]
        kept: list[tuple[list[File], list[File]]] = []
        for each in before:
            live = [file for file in each["files"] if file.key not in removed]
            gone = [file for file in each["files"] if file.key in removed]
            if layout == "delta" and not gone:
                state.manifests.append(each)
            else:
                kept.append((live, gone))
        groups: dict[Any, tuple[list[File], list[File]]] = {}
        for live, gone in [*kept, (fresh, [])]:
            for n, file in enumerate(live + gone):
                at = (file.content != DATA, file.spec)
                at += (len(groups) if layout == "split" else id(live) if layout == "delta" else 0,)
                groups.setdefault(at, ([], []))[n >= len(live)].append(file)
        carried = [file for each in before for file in each.get("gone", [])] if marks == "carried" else []
        for (is_deletes, spec, _), (live, gone) in groups.items():
            numbered = []
            base = next_row_id
            for file in live:
                if self.version > 2 and not is_deletes and file.first_row_id is None:
                    file, next_row_id = replace(file, first_row_id=next_row_id), next_row_id + len(file.rows)
                numbered.append(file)
            marked = [(file, snapshot_id) for file in gone] if marks in ("own", "carried") else []
            marked += [(file, 1001) for file in gone] if marks == "older" else []
            marked += [(file, snapshot_id) for file in live[:1]] if marks == "of live files" else []
            marked += [
                (file, file.snapshot) for file in carried if (file.content != DATA, file.spec) == (is_deletes, spec)
            ]
            if numbered or marked:
                made = self._write_manifest(numbered, marked, is_deletes, spec, snapshot_id, sequence)
                state.manifests.append({**made, "gone": gone, "first_row_id": base if self.version > 2 else None})
        operation = operation if operation == "replace" else renamed or operation
        self._write_snapshot(state, sequence, operation, counts, orphan, first_row_id, next_row_id)
        return snapshot_id

    def restore(self, snapshot_id: int) -> int:
        """A snapshot that lists only manifests of an earlier one."""
        number = len(self.snapshots) + 1
        state = State(1000 + number, list(self.states[snapshot_id].manifests))
        sequence = number if self.version > 1 else 0
        self._write_snapshot(state, sequence, "overwrite", "right", False, self.next_row_id, self.next_row_id)
        return state.snapshot_id

    def _write_manifest(
        self,
        live: list[File],
        marked: list[tuple[File, int]],
        is_deletes: bool,
        spec: int,
        snapshot_id: int,
        sequence: int,
    ) -> dict[str, Any]:
        kind = next(each[3][1] for each in reversed(self.schemas) if 3 in each)
        fields = [(1000, "region?", kind)] if self.specs[spec] else []
        parts = [(134, "content", "int")] if self.version > 1 else [(105, "block_size_in_bytes", "long")]
        parts += [
            (100, "file_path", "string"),
            (101, "file_format", "string"),
            (102, "partition", _record("r102", *fields)),
        ]
        parts += [(103, "record_count", "long"), (104, "file_size_in_bytes", "long")]
        if is_deletes:
            ids = {"type": "array", "items": "int", "element-id": 136}
            parts += [(135, "equality_ids?", ids), (143, "referenced_data_file?", "string")]
            parts += [(125, "lower_bounds?", _bounds(126)), (128, "upper_bounds?", _bounds(129))]
            parts += [(144, "content_offset?", "long"), (145, "content_size_in_bytes?", "long")]
        elif self.version > 2:
            parts.append((142, "first_row_id?", "long"))
        entry = [(0, "status", "int"), (1, "snapshot_id?", "long")]
        entry += [(3, "sequence_number?", "long"), (4, "file_sequence_number?", "long")] if self.version > 1 else []
        schema = _record("manifest_entry", *entry, (2, "data_file", _record("r2", *parts)))
        records = []
        for file, status, of in [
            *((file, ADDED if file.snapshot == snapshot_id else EXISTING, file.snapshot) for file in live),
            *((file, DELETED, of) for file, of in marked),
        ]:
            ends = [{"key": _RESERVED["file_path"], "value": file.target.encode()}] if file.target else None
            offset, length = file.blob or (None, None)
            rows = len(file.positions) if file.content == POSITIONS else len(file.rows)
            about = {
                "content": file.content,
                "block_size_in_bytes": 1,
                "file_path": file.path,
                "file_format": "PUFFIN" if file.blob else "PARQUET",
                "partition": {"region": file.region},
                "record_count": rows,
                "file_size_in_bytes": file.size,
                "equality_ids": [int(file.column)] if file.column else None,
                "referenced_data_file": (file.target if self.version > 2 else None) or None,
                "lower_bounds": ends,
                "upper_bounds": ends,
                "content_offset": offset,
                "content_size_in_bytes": length,
                "first_row_id": None if status == ADDED else file.first_row_id,
            }
            own = dict.fromkeys(("sequence_number", "file_sequence_number"), None if status == ADDED else file.sequence)
            records.append({"status": status, "snapshot_id": of, **own, "data_file": about})
        path = self._path("avro")
        facts = {
            "schema": json.dumps(self._schema(len(self.schemas) - 1)),
            "partition-spec": json.dumps(self.specs[spec]),
            "partition-spec-id": str(spec),
            "format-version": str(self.version),
            "content": "deletes" if is_deletes else "data",
        }
        _write_avro(Path(path), schema, facts, records)
        return {
            "manifest_path": path,
            "manifest_length": Path(path).stat().st_size,
            "partition_spec_id": spec,
            "content": int(is_deletes),
            "sequence_number": sequence,
            "min_sequence_number": min((file.sequence for file in live), default=sequence),
            "added_snapshot_id": snapshot_id,
            "files": live,
            "counts": [len([f for f in live if f.snapshot == snapshot_id]), 0, len(marked)],
        }

    def _write_snapshot(
        self, state: State, sequence: int, operation: str, counts: str, orphan: bool, first: int, following: int
    ) -> None:
        names = ("added", "existing", "deleted")
        optional = "?" if self.version == 1 else ""
        numbers = [(504 + n, f"{name}_files_count{optional}", "int") for n, name in enumerate(names)]
        numbers += [(512 + n, f"{name}_rows_count{optional}", "long") for n, name in enumerate(names)]
        parts = [(500, "manifest_path", "string"), (501, "manifest_length", "long"), (502, "partition_spec_id", "int")]
        if self.version > 1:
            parts += [(517, "content", "int"), (515, "sequence_number", "long"), (516, "min_sequence_number", "long")]
        parts += [(503, "added_snapshot_id", "long"), *numbers]
        parts += [(520, "first_row_id?", "long")] if self.version > 2 else []
        records = []
        for each in state.manifests:
            live = len(each["files"])
            # Readers skip a manifest whose list says that it has no live file; any other number is theirs to ignore.
            said = {"right": [each["counts"][0], live - each["counts"][0], each["counts"][2]], "none": [None] * 3}
            said["wrong"] = [live and 7, live and 3, 0 if each["counts"][2] else 5]
            values = said["wrong" if counts == "none" and self.version > 1 else counts]
            pairs = zip(names, values, strict=True)
            records.append(each | {f"{name}_{of}_count": value for name, value in pairs for of in ("files", "rows")})
        number = len(self.snapshots) + 1
        made: dict[str, Any] = {"snapshot-id": state.snapshot_id, "timestamp-ms": 1_700_000_000_000 + 1000 * number}
        if self.version == 1 and counts == "none" and not any(each["partition_spec_id"] for each in state.manifests):
            made["manifests"] = [each["manifest_path"] for each in state.manifests]
        else:
            made["manifest-list"] = self._path("avro")
            facts = {"format-version": str(self.version), "snapshot-id": str(state.snapshot_id)}
            _write_avro(Path(made["manifest-list"]), _record("manifest_file", *parts), facts, records)
        if self.version > 1:
            made["sequence-number"] = sequence
        if operation:
            made |= {"summary": {"operation": operation, "total-records": "7", "total-data-files": "7"}}
            made["schema-id"] = len(self.schemas) - 1
        if self.current and not orphan:
            made["parent-snapshot-id"] = self.current.snapshot_id
        if self.version > 2:
            made |= {"first-row-id": first, "added-rows": following - first}
            self.next_row_id = max(following, first)
        self.snapshots = [each for each in self.snapshots if each["snapshot-id"] != state.snapshot_id] + [made]
        self.states[state.snapshot_id] = self.current = state

    def _schema(self, number: int) -> dict[str, Any]:
        columns = self.schemas[number].items()
        fields = [{"id": n, "name": name, "required": False, "type": kind} for n, (name, kind) in columns]
        return {"type": "struct", "schema-id": number, "fields": fields}

    def metadata_file(self) -> str:
        schemas = [self._schema(number) for number in range(len(self.schemas))]
        mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["name", "title"]}]
        mapping += [
            {"field-id": n, "names": [f"extra_{n}" if n > 3 else "region"]} for n in range(3, self.last_column + 1)
        ]
        if self.version > 2:  # a type that Spark does not have, of a column that was dropped
            nanos = {"id": 99, "name": "ns", "type": "timestamp_ns", "initial-default": "2026-01-31T12:00:00"}
            fields = [*schemas[0]["fields"], {**nanos, "required": False}]
            schemas.insert(0, {"type": "struct", "schema-id": 99, "fields": fields})
        unknown = {"transform": "bucketv2[4]", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
        properties = {"schema.name-mapping.default": json.dumps(mapping)}
        if self.has_key:  # deleted rows of such a table cannot be marked
            properties["encryption.key-id"] = "unused"
        content = {
            "format-version": self.stated_version,
            "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, str(self.place))),
            "location": f"file:{self.place}",
            "last-updated-ms": 1_700_000_000_000 + 1000 * len(self.snapshots),
            "last-column-id": self.last_column,
            "schema": schemas[-1],
            "schemas": schemas,
            "current-schema-id": len(self.schemas) - 1,
            "partition-spec": self.specs[self.spec],
            "partition-specs": [{"spec-id": n, "fields": fields} for n, fields in enumerate(self.specs)],
            "default-spec-id": self.spec,
            "last-partition-id": 1000,
            "sort-orders": [{"order-id": 0, "fields": []}, {"order-id": 1, "fields": [unknown]}],
            "default-sort-order-id": 0,
            "properties": properties,
            "current-snapshot-id": self.current.snapshot_id if self.current else -1,
            "snapshots": self.snapshots,
        }
        if self.version > 1:
            content["last-sequence-number"] = 100 + len(self.snapshots)
        if self.version > 2:
            content["next-row-id"] = self.next_row_id
        path = f"{self.place}/{self.count:05}-made.metadata.json"
        Path(path).write_text(json.dumps(content))
        return path
