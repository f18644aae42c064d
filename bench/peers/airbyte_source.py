"""PyAirbyte: a declarative source with offset pages, read into its cache in Postgres."""
import json
import os
from urllib.parse import urlsplit

import airbyte as ab
from airbyte.caches import PostgresCache

peer = json.loads(os.environ["PEER"])
METRICS = (
    "mention_count visibility visibility_count visibility_total share_of_voice sentiment sentiment_sum sentiment_count "
    "position position_sum position_count"
).split()
KEY = ["date", "brand_id", "prompt_id", "model_id", "country_code"]
properties = {name: {"type": ["null", "number"]} for name in METRICS}
properties |= {name: {"type": ["null", "string"]} for name in KEY}
manifest = {
    "version": "6.0.0",
    "type": "DeclarativeSource",
    "check": {"type": "CheckStream", "stream_names": ["fine"]},
    "spec": {"type": "Spec", "connection_specification": {"type": "object", "properties": {}}},
    "streams": [
        {
            "type": "DeclarativeStream",
            "name": "fine",
            "primary_key": KEY,
            "schema_loader": {
                "type": "InlineSchemaLoader",
                "schema": {"type": "object", "additionalProperties": True, "properties": properties},
            },
            "transformations": [
                {
                    "type": "AddFields",
                    "fields": [
                        {"path": [f"{name}_id"], "value": "{{ record['" + name + "']['id'] }}"}
                        for name in ("brand", "prompt", "model")
                    ],
                },
                {"type": "RemoveFields", "field_pointers": [["brand"], ["prompt"], ["model"]]},
            ],
            "retriever": {
                "type": "SimpleRetriever",
                "record_selector": {
                    "type": "RecordSelector",
                    "extractor": {"type": "DpathExtractor", "field_path": ["data"]},
                },
                "requester": {
                    "type": "HttpRequester",
                    "url_base": peer["url"],
                    "path": "/reports/brands",
                    "http_method": "POST",
                    "request_headers": {"X-API-Key": "k"},
                    "request_body_json": {
                        "start_date": peer["from"],
                        "end_date": peer["to"],
                        "dimensions": ["date", "prompt_id", "model_id", "country_code"],
                    },
                },
                "paginator": {
                    "type": "DefaultPaginator",
                    "page_size_option": {"type": "RequestOption", "inject_into": "body_json", "field_name": "limit"},
                    "page_token_option": {"type": "RequestOption", "inject_into": "body_json", "field_name": "offset"},
                    "pagination_strategy": {"type": "OffsetIncrement", "page_size": 10000},
                },
            },
        }
    ],
}
source = ab.get_source("source-report", source_manifest=manifest, config={}, streams="*")
address = urlsplit(peer["database"])
cache = PostgresCache(
    host=address.hostname,
    port=address.port,
    username=address.username,
    password=address.password,
    database=address.path[1:],
    schema_name="peer",
)
source.read(cache=cache)
