-- Question 7: Is our average position improving? Lower is better, so a negative change is an improvement.
-- Needs the report by: date, model_id
create or replace view {schema}.position_by_model_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.model_id,
  s.position_points / nullif(s.position_count, 0) as position,
  s.position_count,
  s.previous_position_points / nullif(s.previous_position_count, 0) as previous_position,
  s.previous_position_count,
  s.position_points / nullif(s.position_count, 0)
    - s.previous_position_points / nullif(s.previous_position_count, 0) as change,
  s.position_points / nullif(s.position_count, 0)
    < s.previous_position_points / nullif(s.previous_position_count, 0) as is_improving,
  s.answers,
  s.position_points,
  s.previous_position_points,
{part period_state}
from (
  -- The service's own positions, weighted by their counts.
  select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
  from {schema}.projects p
{part each_week}
  cross join lateral (
    select r.brand_id, r.model_id,
      sum(r.position * r.position_count) filter (where r.date >= w.week) as position_points,
      sum(case when r.position is null then 0 else r.position_count end) filter (where r.date >= w.week) as position_count,
      sum(r.position * r.position_count) filter (where r.date < w.week) as previous_position_points,
      sum(case when r.position is null then 0 else r.position_count end) filter (where r.date < w.week) as previous_position_count,
      sum(r.visibility_total) filter (where r.date >= w.week) as answers,
      sum(r.visibility_total) filter (where r.date < w.week) as previous_answers
    from {report date model_id} r
    where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
    group by r.brand_id, r.model_id
    having sum(r.visibility_total) filter (where r.date >= w.week) is not null
  ) g
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
{part week_read};
