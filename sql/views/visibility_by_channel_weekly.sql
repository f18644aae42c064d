-- Question 3: Which models are strongest and weakest for us? By channel: its series goes on when the model behind it changes.
-- Needs the report by: date, model_channel_id
create or replace view {schema}.visibility_by_channel_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.model_channel_id,
{part visibility_compared}
  s.rank,
{part visibility_intervals}
{part period_state}
from (
  select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
  from {schema}.projects p
{part each_week}
  cross join lateral (
    select r.brand_id, r.model_channel_id,
      sum(r.visibility_count) filter (where r.date >= w.week) as visibility_count,
      sum(r.visibility_total) filter (where r.date >= w.week) as answers,
      sum(r.visibility_count) filter (where r.date < w.week) as previous_visibility_count,
      sum(r.visibility_total) filter (where r.date < w.week) as previous_answers,
      rank() over (partition by r.brand_id order by {part week_visibility} desc nulls last) as rank
    from {report date model_channel_id} r
    where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
    group by r.brand_id, r.model_channel_id
    having sum(r.visibility_total) filter (where r.date >= w.week) is not null
  ) g
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
{part week_read};
