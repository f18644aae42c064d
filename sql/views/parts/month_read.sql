-- How many days of the month were read; whether all of it was, and all of the one before; whether it may still change.
left join (
  select d.project_id, d.project, d.month,
    count(*)::integer as days,
    count(*) filter (where d.is_whole) = (d.month + interval '1 month')::date - d.month as is_complete,
    bool_or(d.is_provisional) as is_provisional,
    lag(count(*) filter (where d.is_whole)) over w = d.month - lag(d.month) over w
      and lag(d.month) over w = (d.month - interval '1 month')::date as previous_is_complete
  from {ops}.days_read d
  where d.stream = {stream}
  group by d.project_id, d.project, d.month
  window w as (partition by d.project_id, d.project order by d.month)
) k on k.project_id = s.project_id and k.project = s.project and k.month = s.month
