-- Question 10: Branded or not, or by funnel stage? A prompt carries several tags, so rows of different tags overlap: never add them up.
-- Needs the report by: date, tag_id
create or replace view {schema}.visibility_by_tag_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.tag_id,
  coalesce(t.name, s.tag_id, '(no tag)') as tag,
{part visibility_compared}
{part visibility_intervals}
{part period_state}
from (
  select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
  from {schema}.projects p
{part each_week}
  cross join lateral (
    select r.brand_id, r.tag_id,
      sum(r.visibility_count) filter (where r.date >= w.week) as visibility_count,
      sum(r.visibility_total) filter (where r.date >= w.week) as answers,
      sum(r.visibility_count) filter (where r.date < w.week) as previous_visibility_count,
      sum(r.visibility_total) filter (where r.date < w.week) as previous_answers
    from {report date tag_id} r
    where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
    group by r.brand_id, r.tag_id
    having sum(r.visibility_total) filter (where r.date >= w.week) is not null
  ) g
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {schema}.tags t on t.project_id = s.project_id and t.tag_id = s.tag_id
{part week_read};
