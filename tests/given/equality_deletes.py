"""Commits as Flink makes them: equality deletes and upserts, written by Iceberg's own Java writers."""

import uuid
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.session.jvm import iceberg_class, java_class


def upsert(spark: SparkSession, name: str, column: str, rows: Sequence[dict[str, Any]]) -> None:
    """Commit rows together with an equality delete of their keys, as an upsert stream does at each checkpoint.

    The table is not partitioned, and columns are INT, STRING or DOUBLE: py4j makes every small whole number an Integer.
    """
    table = iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, name)
    keys = table.schema().select(java_class(spark, "java.util.ArrayList")([column]))
    ids = spark.sparkContext._gateway.new_array(java_class(spark, "int"), 1)
    ids[0] = table.schema().findField(column).fieldId()
    kind = table.properties().getOrDefault("write.format.default", "parquet")
    kind = iceberg_class(spark, "FileFormat").fromString(kind)
    files = iceberg_class(spark, "io.OutputFileFactory").builderFor(table, 1, 1)
    files = files.format(kind).operationId(uuid.uuid4().hex).build()
    builder = iceberg_class(spark, "data.GenericFileWriterFactory").Builder(table)
    builder = builder.dataFileFormat(kind).deleteFileFormat(kind).equalityFieldIds(ids).equalityDeleteRowSchema(keys)

    def write(writer: Any, schema: Any, records: Sequence[dict[str, Any]]) -> Any:
        for each in records:
            record = iceberg_class(spark, "data.GenericRecord").create(schema)
            for field, value in each.items():
                record.setField(field, value)
            writer.write(record)
        writer.close()
        return writer

    place = table.spec(), None
    data = write(builder.build().newDataWriter(files.newOutputFile(), *place), table.schema(), rows)
    deletes = builder.build().newEqualityDeleteWriter(files.newOutputFile(), *place)
    deletes = write(deletes, keys, [{column: row[column]} for row in rows])
    table.newRowDelta().addRows(data.toDataFile()).addDeletes(deletes.toDeleteFile()).commit()
