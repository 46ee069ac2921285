"""Quote names for Spark SQL; imports nothing, so that parameters are checked without Spark."""


def quoted(name: str) -> str:
    """Quote a column name, so that Spark SQL reads every character of it literally."""
    return "`" + name.replace("`", "``") + "`"
