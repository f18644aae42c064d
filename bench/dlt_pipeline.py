"""The same rows through dlt's REST source, merged into Postgres by their key."""
import sys

import dlt
from dlt.sources.helpers.rest_client.paginators import OffsetPaginator
from dlt.sources.rest_api import rest_api_source

url, start, end, database, folder = sys.argv[1:6]

KEY = ["date", "brand__id", "prompt__id", "model__id", "country_code"]
source = rest_api_source(
    {
        "client": {"base_url": url + "/", "headers": {"X-API-Key": "k"}},
        "resources": [
            {
                "name": "fine",
                "primary_key": KEY,
                "write_disposition": "merge",
                "endpoint": {
                    "path": "reports/brands",
                    "method": "POST",
                    "json": {
                        "start_date": start,
                        "end_date": end,
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
    pipeline_name="bench",
    pipelines_dir=folder,
    destination=dlt.destinations.postgres(database),
    dataset_name="visibility_dlt",
)
print(pipeline.run(source))
