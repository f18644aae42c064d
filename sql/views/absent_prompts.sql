-- Question 6: On which prompts are we absent while rivals appear? By week and model, one row for each absent own brand.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.absent_prompts as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.week,
  s.prompt_id,
  coalesce(q.text, s.prompt_id) as prompt,
  q.topic_id,
  coalesce(t.name, q.topic_id, '(no topic)') as topic,
  s.model_id,
  s.brand_id as own_brand_id,
  coalesce(s.name, s.brand_id) as own_brand,
  s.answers,
  s.rivals,
  s.best_rival_visibility,
  s.rival_names
from (
  select g.*, b.name, coalesce(b.is_own, false) as is_own,
    count(*) filter (where g.visibility_count > 0 and b.is_own is not true) over w as rivals,
    max(g.visibility_count / nullif(g.answers, 0)) filter (where b.is_own is not true) over w as best_rival_visibility,
    array_agg(coalesce(b.name, g.brand_id)) filter (where g.visibility_count > 0 and b.is_own is not true) over w
      as rival_names
  from (
    select r.project_id, c.week, r.prompt_id, r.model_id, r.brand_id,
      sum(r.visibility_count) as visibility_count, sum(r.visibility_total) as answers
    from {schema}.calendar c join {report date prompt_id model_id} r on r.date = c.date
    group by r.project_id, c.week, r.prompt_id, r.model_id, r.brand_id
  ) g
  left join {schema}.brands b on b.project_id = g.project_id and b.brand_id = g.brand_id
  window w as (partition by g.project_id, g.week, g.prompt_id, g.model_id)
) s
left join {schema}.projects p on p.project_id = s.project_id
left join {schema}.prompts q on q.project_id = s.project_id and q.prompt_id = s.prompt_id
left join {schema}.topics t on t.project_id = s.project_id and t.topic_id = q.topic_id
where s.is_own and s.visibility_count = 0 and s.rivals > 0;
