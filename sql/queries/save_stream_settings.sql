-- What the configuration asks of each stream, and how late days were changed so far: within the last 60 days, the latest twentieth
-- left out. A day that changes after more than 30 days was rewritten, as history is when a brand is renamed; it did not arrive late.
-- $1 projects, $2 streams, $3 whether each is read by days, $4 to $7 settings. What the service never offered is not missing.
insert into {ops}.stream_settings as t
  (project_id, stream, by_day, lookback_days, first_day, last_day, max_staleness, restated_days)
select p.project_id, s.stream, s.by_day, $4::int, $5::date, $6::date, $7::interval, r.days
from unnest($1::text[]) p(project_id) cross join lateral (
  select p.project_id, s.* from unnest($2::text[], $3::boolean[]) s(stream, by_day)
) s
left join (
  select project_id, stream,
    percentile_disc(0.95) within group (order by (seen_at at time zone 'UTC')::date - date) + 1 as days
  from {ops}.restatements
  where seen_at > now() - interval '60 days' and (seen_at at time zone 'UTC')::date - date <= 30
  group by 1, 2
) r on r.project_id = p.project_id and r.stream = s.stream
where not exists (
  select from {ops}.not_offered n where n.project_id = s.project_id and n.stream = s.stream
    and not exists (select from {ops}.coverage c where c.project_id = n.project_id and c.stream = n.stream and c.rows > 0))
on conflict (project_id, stream) do update set by_day = excluded.by_day, lookback_days = excluded.lookback_days,
  first_day = excluded.first_day, last_day = excluded.last_day, max_staleness = excluded.max_staleness,
  restated_days = excluded.restated_days
where (t.by_day, t.lookback_days, t.first_day, t.last_day, t.max_staleness, t.restated_days) is distinct from
  (excluded.by_day, excluded.lookback_days, excluded.first_day, excluded.last_day, excluded.max_staleness, excluded.restated_days)
