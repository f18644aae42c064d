-- Question 6: On which prompts are we absent while rivals appear? By week and model, one row for each absent own brand.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.absent_prompts as
select
  s.project_id,
  s.project,
  s.week,
  s.prompt_id,
  coalesce(q.text, s.prompt_id) as prompt,
  q.topic_id,
  coalesce(t.name, q.topic_id, '(no topic)') as topic,
  s.model_id,
  o.brand_id as own_brand_id,
  coalesce(o.name, o.brand_id) as own_brand,
  o.answers,
  s.rivals,
  s.best_rival_visibility,
  s.rival_names,
  array_to_string(s.rival_names, ', ') as rival_list,
  {schema}.wilson_low(0, o.answers) as visibility_low,
  {schema}.wilson_high(0, o.answers) as visibility_high,
  o.answers >= 30 as enough_answers,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional
from (
  -- The absent own brands of a prompt and model ride along with its rivals, so that the sums are read once.
  select g.project_id, g.project, g.start as week, g.prompt_id, g.model_id,
    count(*) filter (where g.visibility_count > 0 and b.is_own is not true) as rivals,
    max(g.visibility_count / nullif(g.answers, 0)) filter (where b.is_own is not true) as best_rival_visibility,
    array_agg(coalesce(b.name, g.brand_id) order by b.name, g.brand_id)
      filter (where g.visibility_count > 0 and b.is_own is not true) as rival_names,
    array_agg(g.brand_id) filter (where g.visibility_count = 0 and b.is_own) as absent_ids,
    array_agg(b.name) filter (where g.visibility_count = 0 and b.is_own) as absent_names,
    array_agg(g.answers) filter (where g.visibility_count = 0 and b.is_own) as absent_answers
  from {ops}.prompt_sums_now g
  left join {schema}.brands b on b.project_id = g.project_id and b.brand_id = g.brand_id
  where g.unit = 'week' and g.grain = 'prompt_model'
  group by g.project_id, g.project, g.start, g.prompt_id, g.model_id
  having count(*) filter (where g.visibility_count > 0 and b.is_own is not true) > 0
    and count(*) filter (where g.visibility_count = 0 and b.is_own) > 0
) s
cross join lateral unnest(s.absent_ids, s.absent_names, s.absent_answers) as o(brand_id, name, answers)
left join {schema}.prompts q on q.project_id = s.project_id and q.prompt_id = s.prompt_id
left join {schema}.topics t on t.project_id = s.project_id and t.topic_id = q.topic_id
{part week_read};
