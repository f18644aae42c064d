-- The days of streams that planning looks at: those of months that are not complete, and the recent ones.
-- $1 projects, $2 streams, $3 days before are not due, $4 from this day on days are recent,
-- $5 the age at which the days of a complete month were read at least.
select m.project_id, m.stream, json_agg(to_char(m.month, 'YYYY-MM')) filter (where m.is_complete) as complete,
  json_agg(d.days) filter (where d.days is not null) as days
from (
  select m.*, days = last_day - first_day + 1 and first_day <= greatest(month, $3::date)
    and last_day = (month + interval '1 month')::date - 1 and u.month is null and youngest >= $5::int as is_complete
  from {ops}.coverage_months m
  left join (
    select distinct project_id, stream, date_trunc('month', date::timestamp)::date as month
    from {ops}.coverage where state <> 'read'
  ) u using (project_id, stream, month)
  where project_id = any($1::text[]) and stream = any($2::text[])
) m
left join lateral (
  select json_agg(json_build_array(c.date, c.rows, c.state, floor(extract(epoch from c.read_at)), c.reconciled_at is not null)
    order by c.date) as days
  from {ops}.coverage c where c.project_id = m.project_id and c.stream = m.stream
    and c.date between case when m.is_complete then greatest(m.month, $4::date) else m.month end and m.last_day
    and (not m.is_complete or m.last_day >= $4::date)
) d on true
group by 1, 2
