-- The last day of the last complete week, or the last day that was read.
select coalesce(max(week) filter (where days = 7) + 6, max(last)) as day
from (
  select date_trunc('week', s.date::timestamp)::date as week, count(*) filter (where s.is_complete) as days, max(s.date) as last
  from {schema}.data_status s
  where s.project_id = {project} and s.stream = {main_stream}
  group by 1
) w
