"""dlt as an expert sets it up: windows of days that fit a page, Arrow tables, COPY, and whole days replaced by a merge key."""
import json
import os
from datetime import date, timedelta

import dlt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import requests

peer = json.loads(os.environ["PEER"])
WINDOW = timedelta(days=peer["window_days"])


def flat(body: bytes) -> pa.Table:
    """The rows of an answer, with ids instead of objects."""
    lines = body[len(b'{"data":[') : -len(b"]}")].replace(b"},{", b"}\n{")
    table = pa.json.read_json(pa.BufferReader(lines), read_options=pa.json.ReadOptions(block_size=1 << 24))
    for name in ("brand", "prompt", "model"):
        ids = pc.struct_field(table.column(name), "id")
        table = table.drop_columns([name]).append_column(f"{name}_id", ids)
    return table


@dlt.resource(
    name="fine",
    write_disposition={"disposition": "merge", "strategy": "delete-insert"},
    merge_key="date",
    primary_key=["date", "brand_id", "prompt_id", "model_id", "country_code"],
)
def fine():
    session = requests.Session()
    start, last = date.fromisoformat(peer["from"]), date.fromisoformat(peer["to"])
    while start <= last:
        end = min(start + WINDOW - timedelta(days=1), last)
        answer = session.post(
            peer["url"] + "/reports/brands",
            headers={"X-API-Key": "k"},
            json={
                "start_date": start.isoformat(),
                "end_date": end.isoformat(),
                "dimensions": ["date", "prompt_id", "model_id", "country_code"],
                "limit": 10000,
            },
        )
        answer.raise_for_status()
        table = flat(answer.content)
        if len(table) >= 10000:
            raise ValueError(f"{start} to {end}: a full page may be truncated")
        yield table
        start = end + timedelta(days=1)


pipeline = dlt.pipeline(
    pipeline_name="peer",
    pipelines_dir=peer["folder"],
    destination=dlt.destinations.postgres(peer["database"]),
    dataset_name="peer",
)
pipeline.run(fine, loader_file_format="csv")
