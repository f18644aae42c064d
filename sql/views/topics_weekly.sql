-- Question 5: Which topics do we own, and where are we invisible? Rank 1 leads a topic.
-- Needs the report by: date, topic_id
create or replace view {schema}.topics_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.topic_id,
  coalesce(t.name, s.topic_id, '(no topic)') as topic,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.visibility_count / nullif(s.answers, 0) as visibility,
  s.visibility_count,
  s.answers,
  s.rank,
  s.rank = 1 and s.visibility_count > 0 as leads,
  s.visibility_count = 0 as is_invisible,
  s.visibility_count / nullif(s.answers, 0) - s.best as gap_to_leader,
  {schema}.wilson_low(s.visibility_count, s.answers) as visibility_low,
  {schema}.wilson_high(s.visibility_count, s.answers) as visibility_high,
  s.answers >= 30 as enough_answers,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional,
  s.previous_visibility_count / nullif(s.previous_answers, 0) as previous_visibility,
  s.previous_visibility_count,
  s.previous_answers,
  s.visibility_count / nullif(s.answers, 0) - s.previous_visibility_count / nullif(s.previous_answers, 0) as change,
  {schema}.change_low(s.visibility_count, s.answers, s.previous_visibility_count, s.previous_answers) as change_low,
  {schema}.change_high(s.visibility_count, s.answers, s.previous_visibility_count, s.previous_answers) as change_high,
  {schema}.verdict(s.visibility_count, s.answers, s.previous_visibility_count, s.previous_answers) as verdict,
  case when s.previous_answers is not null then coalesce(k.is_complete and k.previous_is_complete, false) end as comparison_is_complete
from (
  select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
  from {schema}.projects p
{part each_week}
  cross join lateral (
    select r.topic_id, r.brand_id,
      sum(r.visibility_count) filter (where r.date >= w.week) as visibility_count,
      sum(r.visibility_total) filter (where r.date >= w.week) as answers,
      sum(r.visibility_count) filter (where r.date < w.week) as previous_visibility_count,
      sum(r.visibility_total) filter (where r.date < w.week) as previous_answers,
      rank() over (t order by {part week_visibility} desc nulls last) as rank,
      max({part week_visibility}) over t as best
    from {report date topic_id} r
    where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
    group by r.topic_id, r.brand_id
    having sum(r.visibility_total) filter (where r.date >= w.week) is not null
    window t as (partition by r.topic_id)
  ) g
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {schema}.topics t on t.project_id = s.project_id and t.topic_id = s.topic_id
{part week_read};
