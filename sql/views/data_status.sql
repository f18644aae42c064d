-- Question 12: Can I trust it? What was read of each day, when, and whether it may still change.
create or replace view {schema}.data_status as
select
  d.project_id,
  d.project,
  d.stream,
  d.date,
  d.rows,
  d.read_at,
  d.state,
  -- A list is as it was read; only days become final.
  d.is_provisional and t.by_day is not false as is_provisional,
  r.restated_at,
  r.restatements,
  d.is_reconciled,
  case when t.by_day is not false then d.is_whole end as is_complete
from {ops}.days_read d
left join {ops}.stream_settings t on t.project_id = d.project_id and t.stream = d.stream
left join lateral (
  select max(e.seen_at) as restated_at, count(*)::integer as restatements
  from {ops}.restatements e
  where e.project_id = d.project_id and e.stream = d.stream and e.date = d.date
) r on true;
