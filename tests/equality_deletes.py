"""Commits as Flink makes them: equality deletes and upserts, written by Iceberg's own Java writers."""

import uuid
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.session.jvm import iceberg_class, java_class


class EqualityWriter:
    """Commits equality deletes to one table, which is not partitioned or by identity.

    Columns must be INT, STRING or DOUBLE: py4j makes every small whole number an Integer.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._table = iceberg_class(self._spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, name)

    def delete(self, columns: Sequence[str], *keys: Sequence[Any], partition: Sequence[Any] = ()) -> None:
        self._table.refresh()
        self._table.newRowDelta().addDeletes(self._delete_file(columns, keys, partition)).commit()

    def upsert(self, columns: Sequence[str], *rows: dict[str, Any], partition: Sequence[Any] = ()) -> None:
        """Commit rows together with an equality delete of their keys, as an upsert stream does at each checkpoint."""
        self._table.refresh()
        keys = [[row[name] for name in columns] for row in rows]
        factory = self._builder().dataFileFormat(self._format()).build()
        writer = factory.newDataWriter(*self._place(partition))
        self._write(writer, self._table.schema(), rows)
        delta = self._table.newRowDelta().addRows(writer.toDataFile())
        delta.addDeletes(self._delete_file(columns, keys, partition)).commit()

    def _delete_file(self, columns: Sequence[str], keys: Sequence[Sequence[Any]], partition: Sequence[Any]) -> Any:
        schema = self._table.schema().select(java_class(self._spark, "java.util.ArrayList")(columns))
        ids = self._spark.sparkContext._gateway.new_array(java_class(self._spark, "int"), len(columns))
        for position, name in enumerate(columns):
            ids[position] = self._table.schema().findField(name).fieldId()
        builder = self._builder().deleteFileFormat(self._format()).equalityFieldIds(ids)
        factory = builder.equalityDeleteRowSchema(schema).build()
        writer = factory.newEqualityDeleteWriter(*self._place(partition))
        self._write(writer, schema, [dict(zip(columns, key, strict=True)) for key in keys])
        return writer.toDeleteFile()

    def _write(self, writer: Any, schema: Any, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            record = iceberg_class(self._spark, "data.GenericRecord").create(schema)
            for name, value in row.items():
                record.setField(name, value)
            writer.write(record)
        writer.close()

    def _builder(self) -> Any:
        return iceberg_class(self._spark, "data.GenericFileWriterFactory").Builder(self._table)

    def _format(self) -> Any:
        name = self._table.properties().getOrDefault("write.format.default", "parquet")
        return iceberg_class(self._spark, "FileFormat").fromString(name)

    def _place(self, values: Sequence[Any]) -> tuple[Any, Any, Any]:
        """A new file, the partitioning of the table, and the partition with these values."""
        files = iceberg_class(self._spark, "io.OutputFileFactory").builderFor(self._table, 1, 1)
        factory, spec = files.format(self._format()).operationId(uuid.uuid4().hex).build(), self._table.spec()
        if not values:
            return factory.newOutputFile(), spec, None
        data = iceberg_class(self._spark, "PartitionData")(spec.partitionType())
        for position, value in enumerate(values):
            data.set(position, value)
        return factory.newOutputFile(spec, data), spec, data
