-- Question 1: How visible are we, against the previous equal period? Month by month.
-- Needs the report by: date
create or replace view {schema}.visibility_monthly as
select
  s.project_id,
  s.project,
  s.month,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
{part visibility_compared}
{part visibility_intervals}
  coalesce(q.visibility_count / q.answers - q.previous_visibility_count / q.previous_answers,
    o.visibility_count / o.answers - o.previous_visibility_count / o.previous_answers) as change_same_prompts,
{part period_state}
from (
  select r.project_id, coalesce(p.name, p.project_id) as project, c.month, r.brand_id,
    sum(r.visibility_count) filter (where c.ago = 0) as visibility_count,
    sum(r.visibility_total) filter (where c.ago = 0) as answers,
    sum(r.visibility_count) filter (where c.ago = 1) as previous_visibility_count,
    sum(r.visibility_total) filter (where c.ago = 1) as previous_answers
  from {schema}.projects p
  join {report date} r on r.project_id = p.project_id
  join {ops}.months_compared c on c.date = r.date
  group by r.project_id, p.project_id, c.month, r.brand_id
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
{part month_read}
-- Of a month that is summed, looked up for each row that is shown: the planner expects many more, and would read all months.
left join lateral (
  select * from {ops}.kept_sums q
  where q.unit = 'month' and q.grain = 'same' and q.project_id = s.project_id and q.start = s.month and q.brand_id = s.brand_id
  offset 0
) q on true
left join {ops}.open_sums o on o.unit = 'month' and o.grain = 'same'
  and o.project_id = s.project_id and o.project = s.project and o.start = s.month and o.brand_id = s.brand_id
where s.answers is not null;
