-- Projects with the names that questions may use, and the newest days without a gap.
select p.project_id as id, coalesce(p.name, p.project_id) as name,
  array(select coalesce(name, brand_id) from {schema}.brands b where b.project_id = p.project_id and is_own order by 1) as own_brands,
  array(select coalesce(name, brand_id) from {schema}.brands b where b.project_id = p.project_id and not is_own order by 1) as rivals,
  '{}'::text[] as channels,
  array(select coalesce(name, topic_id) from {schema}.topics t where t.project_id = p.project_id order by 1) as topics,
  array(select coalesce(name, tag_id) from {schema}.tags t where t.project_id = p.project_id order by 1) as tags,
  d.complete_from, d.complete_to, f.missing_days, f.is_stale
from {schema}.projects p
left join {schema}.freshness f on f.project_id = p.project_id and f.stream = {main_stream}
left join lateral (
  select min(i.date) as complete_from, max(i.date) as complete_to
  from (
    select s.date, s.date - (row_number() over (order by s.date))::integer as island
    from {schema}.data_status s where s.project_id = p.project_id and s.stream = {main_stream} and s.is_complete
  ) i
  group by i.island order by 2 desc limit 1
) d on true
order by name, id
