-- Question 9: Who gained or lost most this week? By topic and model; rank 1 is the clearest change within its project and week.
-- Needs the report by: date, topic_id, model_id
create or replace view {schema}.movers_weekly as
select
  m.project_id,
  m.project,
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
  -- Rounded, so that changes that are as clear as each other share a rank.
  rank() over (partition by m.project_id, m.project, m.week order by round(m.clarity::numeric, 9) desc) as rank,
  m.visibility_count,
  m.previous_visibility_count,
  {schema}.wilson_low(m.visibility_count, m.answers) as visibility_low,
  {schema}.wilson_high(m.visibility_count, m.answers) as visibility_high,
  m.answers >= 30 as enough_answers,
  {schema}.change_low(m.visibility_count, m.answers, m.previous_visibility_count, m.previous_answers) as change_low,
  {schema}.change_high(m.visibility_count, m.answers, m.previous_visibility_count, m.previous_answers) as change_high,
  {schema}.verdict(m.visibility_count, m.answers, m.previous_visibility_count, m.previous_answers) as verdict,
  m.clarity,
  rank() over (partition by m.project_id, m.project, m.week order by abs(m.change) desc) as rank_by_size,
  coalesce(m.days, 0) as days,
  coalesce(m.is_complete, false) as is_complete,
  coalesce(m.is_provisional, true) as is_provisional,
  coalesce(m.is_complete and m.previous_is_complete, false) as comparison_is_complete
from (
  -- The smallest samples make the largest swings, so changes are ordered by how clear they are.
  select s.*, k.days, k.is_complete, k.is_provisional, k.previous_is_complete,
    s.visibility_count / nullif(s.answers, 0) as visibility,
    s.previous_visibility_count / nullif(s.previous_answers, 0) as previous_visibility,
    s.visibility_count / nullif(s.answers, 0) - s.previous_visibility_count / nullif(s.previous_answers, 0) as change,
    {schema}.clarity(s.visibility_count, s.answers, s.previous_visibility_count, s.previous_answers) as clarity
  from (
    select p.project_id, coalesce(p.name, p.project_id) as project, c.week, r.brand_id, r.topic_id, r.model_id,
      sum(r.visibility_count) filter (where c.ago = 0) as visibility_count,
      sum(r.visibility_total) filter (where c.ago = 0) as answers,
      sum(r.visibility_count) filter (where c.ago = 1) as previous_visibility_count,
      sum(r.visibility_total) filter (where c.ago = 1) as previous_answers
    from {schema}.projects p
    join {report date topic_id model_id} r on r.project_id = p.project_id
    join {schema}.weeks_compared c on c.date = r.date
    group by p.project_id, p.name, c.week, r.brand_id, r.topic_id, r.model_id
  ) s
  {part week_read}
) m
left join {schema}.brands b on b.project_id = m.project_id and b.brand_id = m.brand_id
left join {schema}.topics t on t.project_id = m.project_id and t.topic_id = m.topic_id
-- Without a week before, nothing moved.
where m.change is not null;
