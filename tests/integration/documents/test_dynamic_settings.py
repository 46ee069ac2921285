"""Which settings an open index takes, asked of the server itself."""

from __future__ import annotations

import re

from opensearchpy.exceptions import RequestError

from icecdc_core.documents.spec import is_dynamic

DOCUMENTS_CHANGE = {"default_pipeline", "final_pipeline"}
REMOVED = {"mapper.dynamic", "optimize_auto_generated_id"}


class DescribeDynamicSettings:
    def it_knows_all_that_the_server_changes_on_an_open_index(self, opensearch, name):
        opensearch.indices.create(index=name)
        try:
            shown = {"include_defaults": "true", "flat_settings": "true"}
            found = opensearch.indices.get_settings(index=name, params=shown)[name]
            settings = {each.removeprefix("index."): value for part in found.values() for each, value in part.items()}
            opensearch.indices.put_settings(index=name, body={k: v for k, v in settings.items() if is_dynamic(k)})
            others = {k: v for k, v in settings.items() if not is_dynamic(k) and k not in REMOVED}
            while others.keys() - DOCUMENTS_CHANGE:
                try:
                    opensearch.indices.put_settings(index=name, body=others)
                    break
                except RequestError as error:  # it names some that it refuses
                    refused = re.findall(r"index\.([\w.]+)", error.info["error"]["reason"])
                    others = {k: v for k, v in others.items() if k not in refused}
        finally:
            opensearch.indices.delete(index=name)
        pulled = {each for each in others if each.startswith("ingestion_source.")}
        assert others.keys() - pulled == DOCUMENTS_CHANGE
