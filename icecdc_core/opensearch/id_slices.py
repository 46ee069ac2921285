"""Parts of an index by its document ids: the function by which OpenSearch slices a search, for ids of a table.

It is the hash murmur3_x86_32 of the term under which OpenSearch indexes an id. Nobody promises that, so whoever reads a
slice proves it of every id that no row has.
"""

from typing import NamedTuple, Self

from pyspark.sql import Column, SparkSession, functions as F

from icecdc_core.session.jvm import java_class

_SEED = 7919
# Text that base64 without padding could have made: no bit of the last character is unused.
_BASE64 = r"^(?:[A-Za-z0-9_-]{4})*+(?:[A-Za-z0-9_-][AQgw]|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048])?\z"


class Part(NamedTuple):
    """One of so many parts of all ids, counted from 0."""

    number: int = 0
    parts: int = 1

    @classmethod
    def of(cls, text: str) -> Self:
        number, _, parts = text.partition("/")
        return cls(int(number) - 1, int(parts)) if text else cls()

    def __str__(self) -> str:
        return f"{self.number + 1}/{self.parts}" if self.parts > 1 else ""


EVERYTHING = Part()


def part_of(spark: SparkSession, document_id: Column, parts: int) -> Column:
    """Return the number of the part that an id is in; computed in the JVM, which needs no Python worker."""
    catalyst = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    invoke = java_class(spark, "org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke")
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    murmur3 = loader.loadClass("org.apache.commons.codec.digest.MurmurHash3")
    integer = java_class(spark, "org.apache.spark.sql.types.DataType").fromJson('"integer"')
    to_seq = java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq
    term = _term(document_id)
    given = [catalyst.expression(each._jc) for each in (term, F.lit(0), F.octet_length(term), F.lit(_SEED))]
    nothing = java_class(spark, "scala.Option").empty()
    hashed = invoke(murmur3, integer, "hash32x86", to_seq(given), to_seq([]), True, False, True, nothing)
    return F.pmod(Column(catalyst.column(hashed)), F.lit(parts))


def is_in_part(spark: SparkSession, document_id: Column, part: Part) -> Column:
    # As texts, because a number would be in the code that Spark compiles, another one for each part.
    return part_of(spark, document_id, part.parts).cast("string").eqNullSafe(str(part.number))


def _term(document_id: Column) -> Column:
    """The bytes under which OpenSearch indexes an id: packed digits, decoded base64, or else UTF-8."""
    odd = F.when(F.length(document_id) % 2 == 1, "f").otherwise("")
    packed = F.unhex(F.concat(F.lit("fe"), document_id, odd))
    standard = F.replace(F.replace(document_id, F.lit("-"), F.lit("+")), F.lit("_"), F.lit("/"))
    decoded = F.unbase64(standard)
    decoded = F.when(document_id.rlike("^_[Q-Za-z0-9_-]"), F.concat(F.lit(b"\xfd"), decoded)).otherwise(decoded)
    text = F.concat(F.lit(b"\xff"), document_id.cast("binary"))
    return F.when(document_id.rlike(r"^[0-9]+\z"), packed).when(document_id.rlike(_BASE64), decoded).otherwise(text)
