-- Question 6: For which prompts are we missing where competitors appear? Every prompt, compared with itself in the week before.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.visibility_by_prompt_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.prompt_id,
  coalesce(t.text, s.prompt_id) as prompt,
  t.topic_id,
  coalesce(n.name, t.topic_id, '(no topic)') as topic,
{part visibility_compared}
{part visibility_intervals}
{part period_state}
from (
  select g.*, g.start as week from {ops}.prompt_sums_now g where g.unit = 'week' and g.grain = 'prompt'
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {schema}.prompts t on t.project_id = s.project_id and t.prompt_id = s.prompt_id
left join {schema}.topics n on n.project_id = t.project_id and n.topic_id = t.topic_id
{part week_read};
