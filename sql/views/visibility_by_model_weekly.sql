-- Question 3: Which models are strongest and weakest for us? Rank 1 is the model with the highest visibility of a brand.
-- Needs the report by: date, model_id
create or replace view {schema}.visibility_by_model_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.model_id,
{part visibility_compared}
  s.rank,
{part visibility_intervals}
  coalesce(q.visibility_count / q.answers - q.previous_visibility_count / q.previous_answers,
    o.visibility_count / o.answers - o.previous_visibility_count / o.previous_answers) as change_same_prompts,
{part period_state},
  s.mention_count / nullif(coalesce(t.all_mentions, s.all_mentions), 0) as share_of_voice,
  s.mention_count,
  coalesce(t.all_mentions, s.all_mentions) as all_mentions
from (
  select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
  from {schema}.projects p
{part each_week}
  cross join lateral (
    select r.brand_id, r.model_id,
      sum(r.visibility_count) filter (where r.date >= w.week) as visibility_count,
      sum(r.visibility_total) filter (where r.date >= w.week) as answers,
      sum(r.visibility_count) filter (where r.date < w.week) as previous_visibility_count,
      sum(r.visibility_total) filter (where r.date < w.week) as previous_answers,
      sum(r.mention_count) filter (where r.date >= w.week) as mention_count,
      sum(sum(r.mention_count) filter (where r.date >= w.week)) over (partition by r.model_id) as all_mentions,
      rank() over (partition by r.brand_id order by {part week_visibility} desc nulls last) as rank
    from {report date model_id} r
    where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
    group by r.brand_id, r.model_id
    having sum(r.visibility_total) filter (where r.date >= w.week) is not null
  ) g
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
-- Of a brand that is tracked since Wednesday, earlier days do not count.
left join lateral (
  select sum(r.mention_count) as all_mentions from {report date model_id} r
  where b.first_seen_on > s.week and r.project_id = s.project_id and r.date between b.first_seen_on and s.week + 6
    and r.model_id is not distinct from s.model_id
) t on true
{part week_read}
-- Of a week that is summed, looked up for each row that is shown: the planner expects many more, and would read all weeks.
left join lateral (
  select * from {ops}.kept_sums q
  where q.unit = 'week' and q.grain = 'same_model' and q.project_id = s.project_id and q.start = s.week and q.brand_id = s.brand_id and q.model_id is not distinct from s.model_id
  offset 0
) q on true
left join {ops}.open_sums o on o.unit = 'week' and o.grain = 'same_model'
  and o.project_id = s.project_id and o.project = s.project and o.start = s.week and o.brand_id = s.brand_id and o.model_id is not distinct from s.model_id;
