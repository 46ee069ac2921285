"""The check of bundle.yml against the schema of the Databricks CLI, with a schema of the same style."""

from __future__ import annotations

from tests.bundle_schema import problems

VARIABLE = {"type": "string", "pattern": r"\$\{(var(\.\p{L}+([-_]*[\p{L}\p{N}]+)*)+)\}"}
SCHEMA = {
    "type": "object",
    "properties": {"runs": {"oneOf": [{"type": "integer"}, VARIABLE]}},
    "additionalProperties": False,
}


class DescribeTheCheckAgainstASchema:
    def it_accepts_a_reference_to_a_variable(self):
        assert problems({"runs": "${var.größte_zahl2}"}, SCHEMA) == []

    def it_names_the_place_of_a_wrong_value(self):
        assert [problem.partition(":")[0] for problem in problems({"runs": "many"}, SCHEMA)] == ["runs"]

    def it_refuses_a_misspelt_field(self):
        assert "'rans' was unexpected" in problems({"rans": 1}, SCHEMA)[0]
