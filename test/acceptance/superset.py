"""Imports the bundle twice over Superset's API, and compares the data of each chart with SQL written by hand."""

import datetime
import decimal
import io
import json
import os
import sys
import urllib.request
import uuid

import psycopg2

BASE, BUNDLE = sys.argv[1:]
PASSWORD = os.environ["PGPASSWORD"]
MONDAY = "date_trunc('week', date::timestamp)::date"

# For each chart: the columns that tell its rows apart, those that are compared, and the statement.
CHARTS = {
    "Visibility by week": (
        ["date", "project", "brand"], ["visibility"],
        f"""select {MONDAY} as date, project, brand, sum(visibility_count) / nullif(sum(answers), 0) as visibility
            from visibility.visibility_daily where is_own group by 1, 2, 3"""),
    "Share of voice by week": (
        ["date", "project", "brand"], ["share_of_voice"],
        "select week as date, project, brand, share_of_voice from visibility.share_of_voice_weekly"),
    "Visibility by model": (
        ["model_id", "project", "brand"], ["visibility"],
        """select model_id, p.name as project, b.name as brand, sum(visibility_count) / nullif(sum(visibility_total), 0) as visibility
           from visibility.brand_daily_by_model d join visibility.brands b using (project_id, brand_id)
           join visibility.projects p using (project_id) where is_own group by 1, 2, 3"""),
    "Visibility by country": (
        ["country_code", "project", "brand"], ["visibility"],
        """select country_code, p.name as project, b.name as brand, sum(visibility_count) / nullif(sum(visibility_total), 0) as visibility
           from visibility.brand_daily_by_country d join visibility.brands b using (project_id, brand_id)
           join visibility.projects p using (project_id) where is_own group by 1, 2, 3"""),
    "Mean position by week": (
        ["week", "project", "brand"], ["position"],
        f"""select {MONDAY} as week, p.name as project, b.name as brand, sum(d.position * d.position_count) / nullif(sum(d.position_count), 0) as position
           from visibility.brand_daily_by_model d
           join visibility.brands b using (project_id, brand_id) join visibility.projects p using (project_id)
           where is_own group by 1, 2, 3"""),
    "Mean sentiment by week": (
        ["week", "project", "brand"], ["sentiment"],
        f"""select {MONDAY} as week, p.name as project, b.name as brand, sum(d.sentiment * d.sentiment_count) / nullif(sum(d.sentiment_count), 0) as sentiment
           from visibility.brand_daily_by_topic d
           join visibility.brands b using (project_id, brand_id) join visibility.projects p using (project_id)
           where is_own group by 1, 2, 3"""),
    "Visibility by topic": (
        ["topic", "project", "brand"], ["visibility"],
        """select coalesce(t.name, d.topic_id, '(no topic)') as topic, p.name as project, b.name as brand,
             sum(visibility_count) / nullif(sum(visibility_total), 0) as visibility
           from visibility.brand_daily_by_topic d join visibility.brands b using (project_id, brand_id)
           join visibility.projects p using (project_id) left join visibility.topics t using (project_id, topic_id)
           where is_own group by 1, 2, 3"""),
    "Answers by week": (
        ["date", "project"], ["answers_total"],
        f"select {MONDAY} as date, project, sum(answers) as answers_total from visibility.answers_daily group by 1, 2"),
    "Clearest changes": (
        ["week", "project", "brand", "topic", "model_id"], ["visibility", "change", "rank", "answers"],
        "select week, project, brand, topic, model_id, visibility, change, rank, answers from visibility.movers_weekly where rank <= 10"),
    "Freshness": (
        ["project", "stream"], ["missing_days", "held_days", "quarantined_rows", "is_stale"],
        "select project, stream, missing_days, held_days, quarantined_rows, is_stale from visibility.freshness"),
}


def call(path, token=None, body=None, content="application/json"):
    headers = {"Content-Type": content} if body is not None else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{BASE}/api/v1/{path}", data=body, headers=headers)
    try:
        return json.loads(urllib.request.urlopen(request, timeout=300).read())
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{path}: HTTP {error.code}: {error.read()[:2000]!r}")


def bring_in(token):
    """As the button "Import dashboard" does."""
    boundary = uuid.uuid4().hex
    fields = {
        "passwords": json.dumps({"databases/AI_visibility.yaml": PASSWORD}),
        "overwrite": "true",
    }
    body = io.BytesIO()
    for name, value in fields.items():
        body.write(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode())
    body.write(f'--{boundary}\r\nContent-Disposition: form-data; name="formData"; filename="visibility.zip"\r\n'
               "Content-Type: application/zip\r\n\r\n".encode())
    body.write(open(BUNDLE, "rb").read())
    body.write(f"\r\n--{boundary}--\r\n".encode())
    call("dashboard/import/", token, body.getvalue(), f"multipart/form-data; boundary={boundary}")


def plain(cell):
    """Days as texts, numbers as floats: Superset sends days as milliseconds."""
    if isinstance(cell, (datetime.date, datetime.datetime)):
        return cell.isoformat()[:10]
    if isinstance(cell, decimal.Decimal):
        return float(cell)
    return cell


def key_of(row, names):
    cells = []
    for name in names:
        cell = plain(row[name])
        if name in ("date", "week") and isinstance(cell, (int, float)):
            cell = datetime.datetime.fromtimestamp(cell / 1000, datetime.timezone.utc).date().isoformat()
        cells.append(cell[:10] if name in ("date", "week") else cell)
    return tuple(cells)


def same(one, other):
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None or isinstance(one, str):
        return one == other
    return abs(float(one) - float(other)) <= 1e-9 * max(1.0, abs(float(other)))


def main():
    login = {"username": "admin", "password": os.environ["SUPERSET_ADMIN_PASSWORD"], "provider": "db", "refresh": False}
    token = call("security/login", body=json.dumps(login).encode())["access_token"]
    bring_in(token)
    bring_in(token)
    charts = call("chart/?q=(page_size:100)", token)["result"]
    names = sorted(chart["slice_name"] for chart in charts)
    assert names == sorted(CHARTS), f"the charts are {names}"
    dashboards = call("dashboard/", token)["result"]
    assert [one["dashboard_title"] for one in dashboards] == ["AI visibility at a glance"], dashboards
    on_it = call(f"dashboard/{dashboards[0]['id']}/charts", token)["result"]
    assert len(on_it) == len(CHARTS), f"{len(on_it)} charts are on the dashboard"
    metadata = json.loads(call(f"dashboard/{dashboards[0]['id']}", token)["result"]["json_metadata"])
    assert len(metadata["native_filter_configuration"]) == 3, metadata
    cursor = psycopg2.connect("").cursor()
    for chart in charts:
        keys, values, statement = CHARTS[chart["slice_name"]]
        data = call(f"chart/{chart['id']}/data/", token)["result"][0]["data"]
        cursor.execute(statement)
        columns = [column[0] for column in cursor.description]
        wanted = [dict(zip(columns, row)) for row in cursor.fetchall()]
        have = {key_of(row, keys): row for row in data}
        want = {key_of(row, keys): row for row in wanted}
        assert len(have) == len(data) and len(want) == len(wanted), f"{chart['slice_name']}: rows that look alike"
        assert have.keys() == want.keys() and want, (
            f"{chart['slice_name']}: {len(have)} rows, wanted {len(want)}; {sorted(map(str, have.keys() ^ want.keys()))[:4]}")
        for key, row in want.items():
            for value in values:
                assert same(plain(have[key][value]), plain(row[value])), (chart["slice_name"], key, value, have[key][value], row[value])
        print(f"superset-acceptance: {chart['slice_name']}: {len(want)} rows as in SQL")
    datasets = {one["table_name"]: one["id"] for one in call("dataset/?q=(page_size:100)", token)["result"]}
    # What the filters choose from: the tables of projects and brands.
    for chosen in metadata["native_filter_configuration"][:2]:
        assert chosen["targets"][0]["datasetId"] == datasets["brands_of_projects"], chosen
    query = {"columns": ["project", "brand"], "metrics": [], "orderby": [], "row_limit": 1000}
    asked = {"datasource": {"id": datasets["brands_of_projects"], "type": "table"}, "queries": [query]}
    rows = call("chart/data", token, json.dumps(asked).encode())["result"][0]["data"]
    cursor.execute("select p.name, b.name from visibility.brands b join visibility.projects p using (project_id)")
    assert sorted((row["project"], row["brand"]) for row in rows) == sorted(cursor.fetchall()), rows
    # Descriptions and formats.
    known = call(f"dataset/{datasets['visibility_daily']}", token)["result"]
    visibility = next(one for one in known["metrics"] if one["metric_name"] == "visibility")
    assert visibility["d3format"] == ".1%" and "sum(visibility_count)" in visibility["expression"], visibility
    assert all(column["description"] for column in known["columns"]), "a column without a description"


main()
