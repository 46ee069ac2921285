"""The parameters of every job: each is declared once, typed and checked before any work.

In: values and strings from notebook cells, widgets, the command line and files. Out: one frozen `SyncConfig`,
or one `ConfigError` that lists every problem.
"""

from icecdc_core.config.sync import SyncConfig

__all__ = ["SyncConfig"]
