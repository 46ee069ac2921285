"""Keep OpenSearch indexes equal to Apache Iceberg tables: export, sync by snapshot diffs, validate."""
