-- Question 5: Which topics do we own, and where are we invisible? Rank 1 leads a topic.
-- Needs the report by: date, topic_id
create or replace view {schema}.topics_weekly as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
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
  s.visibility_count / nullif(s.answers, 0) - s.best as gap_to_leader
from (
  select r.project_id, c.week, r.topic_id, r.brand_id,
    sum(r.visibility_count) as visibility_count,
    sum(r.visibility_total) as answers,
    rank() over (
      partition by r.project_id, c.week, r.topic_id
      order by sum(r.visibility_count) / nullif(sum(r.visibility_total), 0) desc nulls last
    ) as rank,
    max(sum(r.visibility_count) / nullif(sum(r.visibility_total), 0))
      over (partition by r.project_id, c.week, r.topic_id) as best
  from {schema}.calendar c join {report date topic_id} r on r.date = c.date
  group by r.project_id, c.week, r.topic_id, r.brand_id
) s
left join {schema}.projects p on p.project_id = s.project_id
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {schema}.topics t on t.project_id = s.project_id and t.topic_id = s.topic_id;
