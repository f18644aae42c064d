-- How many days of the week were read; whether all of it was, and all of the one before; whether it may still change.
left join (
  select d.project_id, d.project, d.week,
    count(*)::integer as days,
    count(*) filter (where d.is_whole) = 7 as is_complete,
    bool_or(d.is_provisional) as is_provisional,
    lag(count(*) filter (where d.is_whole)) over w = 7 and lag(d.week) over w = d.week - 7 as previous_is_complete
  from {ops}.days_read d
  where d.stream = {stream}
  group by d.project_id, d.project, d.week
  window w as (partition by d.project_id, d.project order by d.week)
) k on k.project_id = s.project_id and k.project = s.project and k.week = s.week
