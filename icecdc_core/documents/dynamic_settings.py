"""The index settings that OpenSearch changes on an open index, and that change no document.

They are those of OpenSearch 2.19 and 3.8 and of the k-NN plugin. `default_pipeline` and `final_pipeline` are dynamic,
too, but what is indexed before and after their change differs.
"""

from __future__ import annotations

_DYNAMIC = frozenset(
    {
        *("number_of_replicas", "number_of_search_replicas", "auto_expand_replicas", "auto_expand_search_replicas"),
        *("refresh_interval", "gc_deletes", "priority", "hidden", "compound_format", "flush_after_merge"),
        *("periodic_flush_interval", "allocation.max_retries", "auto_force_merge.enabled", "requests.cache.enable"),
        *("analyze.max_token_count", "highlight.max_analyzed_offset", "write.wait_for_active_shards", "warmer.enabled"),
        *("unreferenced_file_cleanup.enabled", "bulk.adaptive_shard_selection.enabled"),
        *("aggregation.streaming.min_segment_size", "context_aware.max_retry_on_lookup_map_acquisition_exception"),
        *("derived_source.translog.enabled", "segment_replication.publish_referenced_segments_interval"),
        *("mapping.total_fields.limit", "mapping.depth.limit", "mapping.nested_fields.limit"),
        *("mapping.nested_objects.limit", "mapping.field_name_length.limit"),
        *("mapping.dynamic_properties.lucene_field.limit", "query.default_field", "query.derived_field.enabled"),
        *("query.max_nested_depth", "search.idle.after", "search.default_pipeline", "search.star_tree_index.enabled"),
        *("translog.durability", "translog.flush_threshold_size", "translog.generation_threshold_size"),
        *("translog.sync_interval", "remote_store.translog.buffer_interval", "remote_store.translog.keep_extra_gen"),
        *("knn.algo_param.ef_search", "knn.advanced.approximate_threshold"),
        *("knn.advanced.filtered_exact_search_threshold", "knn.disk.vector.shard_level_rescoring_disabled"),
    }
)
_DYNAMIC_PARTS = (
    *("max_", "blocks.", "routing.", "unassigned.", "search.slowlog.", "indexing.slowlog.", "tiered.storage.slowlog."),
    *("merge.policy.", "merge.scheduler.", "merge.log_byte_size_policy.", "merge_on_flush.", "soft_deletes.retention"),
    *("search.concurrent", "translog.retention.", "optimize_doc_id_lookup."),
)


def is_dynamic(name: str) -> bool:
    """Return whether a setting can change on an open index, and leaves every document as it is."""
    return name in _DYNAMIC or name.startswith(_DYNAMIC_PARTS)
