"""Quote names for Spark SQL; imports nothing, so that parameters are checked without Spark."""


def quoted(name: str) -> str:
    """Quote a column name, so that Spark SQL reads every character of it literally.

    Example:
        >>> quoted("price in $.¢")
        '`price in $.¢`'
        >>> quoted("a`b")
        '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"
