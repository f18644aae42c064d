"""dlt as its defaults are: the REST source with offset pages, merged into Postgres by the key of a row."""
import json
import os

import dlt
from dlt.sources.helpers.rest_client.paginators import OffsetPaginator
from dlt.sources.rest_api import rest_api_source

peer = json.loads(os.environ["PEER"])
source = rest_api_source(
    {
        "client": {"base_url": peer["url"] + "/", "headers": {"X-API-Key": "k"}},
        "resources": [
            {
                "name": "fine",
                "primary_key": ["date", "brand__id", "prompt__id", "model__id", "country_code"],
                "write_disposition": "merge",
                "endpoint": {
                    "path": "reports/brands",
                    "method": "POST",
                    "json": {
                        "start_date": peer["from"],
                        "end_date": peer["to"],
                        "dimensions": ["date", "prompt_id", "model_id", "country_code"],
                    },
                    "data_selector": "data",
                    "paginator": OffsetPaginator(
                        limit=10000,
                        offset_param=None,
                        limit_param=None,
                        offset_body_path="offset",
                        limit_body_path="limit",
                        total_path=None,
                        stop_after_empty_page=True,
                    ),
                },
            }
        ],
    }
)
pipeline = dlt.pipeline(
    pipeline_name="peer",
    pipelines_dir=peer["folder"],
    destination=dlt.destinations.postgres(peer["database"]),
    dataset_name="peer",
)
pipeline.run(source)
