"""The parent of Spark's Python workers in tests: its workers look for no modules in archives, and for less garbage.

A worker reads the directory of each of Spark's jars, and before Spark 4.2 in each task of Python 3.11. Jobs avoid that
(see `icecdc_core.dependencies`), but a test's `createDataFrame` runs such tasks too.
"""

import gc
import sys
from zipimport import zipimporter

sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook is not zipimporter]
sys.path_importer_cache.clear()

# What each worker would import again.
import pandas  # noqa: E402, F401
import pyarrow  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import icecdc_core.opensearch.bulk  # noqa: E402, F401

# A worker collects garbage after each task. None of these objects is garbage, and to look at them takes 45 ms.
gc.freeze()

if __name__ == "__main__":
    manager()
