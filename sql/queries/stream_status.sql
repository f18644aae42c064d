-- What is known of each stream of projects. Months are counted by their sums, and those that lie across an end of the range day by
-- day. Of a list, the length counts when it was last read. Nobody waits for what the service does not have.
-- $1 and $2 the days of interest, $3 projects, $4 to $6 streams, whether each is read by days, and its table, $7 the schema.
with summed as (
  select project_id, stream, max(last_read_at) as last_read_at, min(first_day) as first_day, max(last_day) as last_day,
    sum(days)::int as days, sum(rows)::bigint as rows,
    sum(days) filter (where first_day >= $1::date and last_day <= $2::date)::int as days_inside
  from {ops}.coverage_months group by 1, 2
), unsettled as (
  select project_id, stream, count(*) filter (where state = 'held')::int as held,
    count(*) filter (where state = 'quarantined')::int as quarantined,
    count(*) filter (where state = 'stale')::int as stale,
    count(*) filter (where state = 'unreconciled')::int as unreconciled
  from {ops}.coverage where state <> 'read' group by 1, 2
), across as (
  select m.project_id, m.stream, count(*)::int as days_inside
  from {ops}.coverage_months m join {ops}.coverage c on c.project_id = m.project_id and c.stream = m.stream
    and c.date >= m.month and c.date < m.month + interval '1 month'
  where not (m.first_day >= $1::date and m.last_day <= $2::date) and c.date between $1::date and $2::date
    and m.month in (date_trunc('month', $1::date)::date, date_trunc('month', $2::date)::date)
  group by 1, 2
)
select p.project_id, s.stream, t.last_read_at, case when s.dated then t.first_day end as first_day,
  case when s.dated then t.last_day end as last_day, case when s.dated then coalesce(t.days, 0) else 0 end as days_read,
  case when s.dated then
    greatest(0, $2::date - $1::date + 1) - coalesce(t.days_inside, 0) - coalesce(a.days_inside, 0) end as days_missing,
  coalesce(u.held, 0) as days_held, coalesce(u.quarantined, 0) as days_quarantined,
  coalesce(u.stale, 0) as days_stale, coalesce(u.unreconciled, 0) as days_unreconciled,
  coalesce(case when s.dated then t.rows else l.rows end, 0) as rows,
  not s.has_table and exists (select from {ops}.coverage_months m
    where m.project_id = p.project_id collate "C" and m.stream = s.stream collate "C") as is_table_missing
from unnest($3::text[]) with ordinality p(project_id, position)
cross join (
  select stream, dated, position, to_regclass(format('%I.%I', $7::text, name)) is not null as has_table
  from unnest($4::text[], $5::boolean[], $6::text[]) with ordinality s(stream, dated, name, position)
) s
left join summed t on s.has_table and t.project_id = p.project_id collate "C" and t.stream = s.stream collate "C"
left join unsettled u on s.has_table and u.project_id = p.project_id collate "C" and u.stream = s.stream collate "C"
left join across a on s.has_table and a.project_id = p.project_id collate "C" and a.stream = s.stream collate "C"
left join lateral (
  select rows from {ops}.coverage c where not s.dated and s.has_table and c.project_id = p.project_id collate "C"
    and c.stream = s.stream collate "C" order by date desc limit 1
) l on true
where t.stream is not null or not exists (
  select from {ops}.not_offered n where n.project_id = p.project_id collate "C" and n.stream = s.stream collate "C")
order by p.position, s.position
