-- The last week of which all days are complete, and the last day that was read.
select max(week) filter (where days = 7) as week, max(last) as last
from (
  select date_trunc('week', s.date::timestamp)::date as week, count(*) filter (where {whole}) as days, max(s.date) as last
  from {schema}.data_status s
  where s.project_id = {project} and s.stream = {stream}
  group by 1
) w
