-- Question 1: How visible are we, against the previous equal period? Week by week.
-- Needs the report by: date
create or replace view {schema}.visibility_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
{part visibility_compared}
{part visibility_intervals}
  coalesce(q.visibility_count / q.answers - q.previous_visibility_count / q.previous_answers,
    o.visibility_count / o.answers - o.previous_visibility_count / o.previous_answers) as change_same_prompts,
{part period_state}
from (
  select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
  from {schema}.projects p
{part each_week}
  cross join lateral (
    select r.brand_id,
      sum(r.visibility_count) filter (where r.date >= w.week) as visibility_count,
      sum(r.visibility_total) filter (where r.date >= w.week) as answers,
      sum(r.visibility_count) filter (where r.date < w.week) as previous_visibility_count,
      sum(r.visibility_total) filter (where r.date < w.week) as previous_answers
    from {report date} r
    where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
    group by r.brand_id
    having sum(r.visibility_total) filter (where r.date >= w.week) is not null
  ) g
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
{part week_read}
-- Of a week that is summed, looked up for each row that is shown: the planner expects many more, and would read all weeks.
left join lateral (
  select * from {ops}.kept_sums q
  where q.unit = 'week' and q.grain = 'same' and q.project_id = s.project_id and q.start = s.week and q.brand_id = s.brand_id
  offset 0
) q on true
left join {ops}.open_sums o on o.unit = 'week' and o.grain = 'same'
  and o.project_id = s.project_id and o.project = s.project and o.start = s.week and o.brand_id = s.brand_id;
