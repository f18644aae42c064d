-- Question 9: Who gained or lost most this week? By topic and model; rank 1 moved most within its project and week.
-- Needs the report by: date, topic_id, model_id
create or replace view {schema}.movers_weekly as
select
  m.project_id,
  coalesce(p.name, m.project_id) as project,
  m.week,
  m.brand_id,
  coalesce(b.name, m.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  m.topic_id,
  coalesce(t.name, m.topic_id, '(no topic)') as topic,
  m.model_id,
  m.visibility,
  m.answers,
  m.previous_visibility,
  m.previous_answers,
  m.change,
  rank() over (partition by m.project_id, m.week order by abs(m.change) desc) as rank
from (
  select s.*,
    s.visibility_count / nullif(s.answers, 0) as visibility,
    s.previous_visibility_count / nullif(s.previous_answers, 0) as previous_visibility,
    s.visibility_count / nullif(s.answers, 0) - s.previous_visibility_count / nullif(s.previous_answers, 0) as change
  from (
    select r.project_id, c.week, r.brand_id, r.topic_id, r.model_id,
      sum(r.visibility_count) filter (where c.ago = 0) as visibility_count,
      sum(r.visibility_total) filter (where c.ago = 0) as answers,
      sum(r.visibility_count) filter (where c.ago = 1) as previous_visibility_count,
      sum(r.visibility_total) filter (where c.ago = 1) as previous_answers
    from {schema}.weeks_compared c join {report date topic_id model_id} r on r.date = c.date
    group by r.project_id, c.week, r.brand_id, r.topic_id, r.model_id
  ) s
) m
left join {schema}.projects p on p.project_id = m.project_id
left join {schema}.brands b on b.project_id = m.project_id and b.brand_id = m.brand_id
left join {schema}.topics t on t.project_id = m.project_id and t.topic_id = m.topic_id
-- Without a week before, nothing moved.
where m.change is not null;
