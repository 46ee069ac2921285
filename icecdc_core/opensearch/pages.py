"""The size of the pages in which indexes are read; Python workers import it, so this module imports nothing."""

from __future__ import annotations

PAGE_DOCUMENTS = 5000
"""Documents of a page that the validation reads; an index must allow pages of this size."""
