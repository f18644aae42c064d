"""A Singer tap for the report, by Meltano's SDK: pages by offset."""
import json
import os

from singer_sdk import Stream, Tap
from singer_sdk import typing as th
from singer_sdk.pagination import BaseOffsetPaginator
from singer_sdk.streams import RESTStream

peer = json.loads(os.environ["PEER"])
LIMIT = 10000
METRICS = (
    "mention_count visibility visibility_count visibility_total share_of_voice sentiment sentiment_sum sentiment_count "
    "position position_sum position_count"
).split()


class Offsets(BaseOffsetPaginator):
    def has_more(self, response):
        return len(response.json()["data"]) == LIMIT


class Fine(RESTStream):
    name = "fine"
    path = "/reports/brands"
    http_method = "POST"
    records_jsonpath = "$.data[*]"
    primary_keys = ("date", "brand_id", "prompt_id", "model_id", "country_code")
    url_base = peer["url"]
    schema = th.PropertiesList(
        th.Property("date", th.DateType),
        *(th.Property(name, th.StringType) for name in ("brand_id", "prompt_id", "model_id", "country_code")),
        *(th.Property(name, th.NumberType) for name in METRICS),
    ).to_dict()

    @property
    def http_headers(self):
        return {"X-API-Key": "k"}

    def get_new_paginator(self):
        return Offsets(0, LIMIT)

    def prepare_request_payload(self, context, next_page_token):
        return {
            "start_date": peer["from"],
            "end_date": peer["to"],
            "dimensions": ["date", "prompt_id", "model_id", "country_code"],
            "limit": LIMIT,
            "offset": next_page_token or 0,
        }

    def post_process(self, row, context=None):
        for name in ("brand", "prompt", "model"):
            row[f"{name}_id"] = row.pop(name)["id"]
        return row


class Report(Tap):
    name = "tap-report"
    config_jsonschema = th.PropertiesList().to_dict()

    def discover_streams(self) -> list[Stream]:
        return [Fine(self)]


Report.cli()
