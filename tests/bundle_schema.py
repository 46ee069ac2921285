"""Compare bundle.yml with the JSON schema that the Databricks CLI prints: `databricks bundle schema > schema.json`.

The schema is published under a licence of its own, so this repository has no copy. Run it with the file:
python -m tests.bundle_schema schema.json
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for

BUNDLE = Path(__file__).parents[1] / "bundle.yml"
# The schema's expressions are of a dialect with classes of Unicode, which Python's `re` does not have.
CLASSES = {r"[\p{L}\p{N}]": r"[^\W_]", r"\p{L}": r"[^\W\d_]"}


def problems(bundle: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    text = json.dumps(schema)
    for theirs, ours in CLASSES.items():
        text = text.replace(json.dumps(theirs)[1:-1], json.dumps(ours)[1:-1])
    readable = json.loads(text)
    found = [best_match([error]) for error in validator_for(readable)(readable).iter_errors(bundle)]
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found]


if __name__ == "__main__":
    wrong = problems(yaml.safe_load(BUNDLE.read_text()), json.loads(Path(sys.argv[1]).read_text()))
    print("\n".join(wrong) or f"{BUNDLE.name} fits the schema")
    sys.exit(bool(wrong))
