-- Question 9: Who gained or lost most this week? By topic and model; rank 1 is the clearest change within its project and week.
-- Needs the report by: date, topic_id, model_id
create or replace view {schema}.movers_weekly as
with cells as (
  select s.*, coalesce(k.days, 0) as days, coalesce(k.is_complete, false) as is_complete, coalesce(k.is_provisional, true) as is_provisional,
    coalesce(k.is_complete and k.previous_is_complete, false) as comparison_is_complete
  from (
    select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
    from {schema}.projects p
{part each_week}
    cross join lateral (
      select r.brand_id, r.topic_id, r.model_id,
        sum(r.visibility_count) filter (where r.date >= w.week) as k,
        sum(r.visibility_total) filter (where r.date >= w.week) as n,
        sum(r.visibility_count) filter (where r.date < w.week) as previous_k,
        sum(r.visibility_total) filter (where r.date < w.week) as previous_n
      from {report date topic_id model_id} r
      where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
      group by r.brand_id, r.topic_id, r.model_id
    ) g
  ) s
  {part week_read}
)
select
  m.project_id,
  m.project,
  m.week,
  m.brand_id,
  coalesce(b.name, m.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  m.topic_id,
  case when m.level > 2 then '(all topics)' else coalesce(t.name, m.topic_id, '(no topic)') end as topic,
  m.model_id,
  m.k / m.n as visibility,
  m.n as answers,
  m.previous_k / m.previous_n as previous_visibility,
  m.previous_n as previous_answers,
  m.k / m.n - m.previous_k / m.previous_n as change,
  m.rank,
  m.k as visibility_count,
  m.previous_k as previous_visibility_count,
  {schema}.wilson_low(m.k, m.n) as visibility_low,
  {schema}.wilson_high(m.k, m.n) as visibility_high,
  m.n >= 30 as enough_answers,
  {schema}.change_low(m.k, m.n, m.previous_k, m.previous_n) as change_low,
  {schema}.change_high(m.k, m.n, m.previous_k, m.previous_n) as change_high,
  {schema}.verdict(m.k, m.n, m.previous_k, m.previous_n) as verdict,
  m.clarity,
  rank() over (partition by m.project_id, m.project, m.week order by abs(m.k / m.n - m.previous_k / m.previous_n) desc) as rank_by_size,
  m.days,
  m.is_complete,
  m.is_provisional,
  m.comparison_is_complete,
  (array['topic and model', 'topic', 'model', 'brand'])[m.level] as grain,
  m.p_value,
  m.q_value,
  coalesce(m.q_value <= 0.1 and m.clarity > 1, false) as is_mover
from (
{part ranked_movers}
) m
left join {schema}.brands b on b.project_id = m.project_id and b.brand_id = m.brand_id
left join {schema}.topics t on t.project_id = m.project_id and t.topic_id = m.topic_id;
