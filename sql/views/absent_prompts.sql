-- Question 6: On which prompts are we absent while rivals appear? By week and model, one row for each absent own brand.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.absent_prompts as
select
  s.project_id,
  s.project,
  s.start as week,
  s.prompt_id,
  coalesce(q.text, s.prompt_id) as prompt,
  q.topic_id,
  coalesce(t.name, q.topic_id, '(no topic)') as topic,
  s.model_id,
  s.brand_id as own_brand_id,
  coalesce(b.name, s.brand_id) as own_brand,
  s.answers,
  r.rivals,
  r.best_rival_visibility,
  r.rival_names,
  array_to_string(r.rival_names, ', ') as rival_list,
  {schema}.wilson_low(0, s.answers) as visibility_low,
  {schema}.wilson_high(0, s.answers) as visibility_high,
  s.answers >= 30 as enough_answers,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional
from (
  select g.*, g.start as week from {ops}.prompt_sums_now g
  where g.unit = 'week' and g.grain = 'prompt_model' and g.visibility_count = 0 and g.named_ids is not null
) s
-- Not an inner join: for that the planner expects one row, and repeats the joins below for each of many.
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
-- Of the brands that are named, those that are rivals as of now.
cross join lateral (
  select count(*) as rivals, max(n.visibility) as best_rival_visibility,
    array_agg(coalesce(e.name, n.brand_id) order by e.name, n.brand_id) as rival_names
  from unnest(s.named_ids, s.named_visibility) as n(brand_id, visibility)
  left join {schema}.brands e on e.project_id = s.project_id and e.brand_id = n.brand_id
  where e.is_own is not true
) r
left join {schema}.prompts q on q.project_id = s.project_id and q.prompt_id = s.prompt_id
left join {schema}.topics t on t.project_id = s.project_id and t.topic_id = q.topic_id
{part week_read}
where coalesce(b.is_own, false) and r.rivals > 0;
