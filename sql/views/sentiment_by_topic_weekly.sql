-- Question 8: Where is sentiment falling? By topic, on the service's own scale; null without mentions.
-- Needs the report by: date, topic_id
create or replace view {schema}.sentiment_by_topic_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.topic_id,
  coalesce(t.name, s.topic_id, '(no topic)') as topic,
  s.sentiment_points / nullif(s.sentiment_count, 0) as sentiment,
  s.sentiment_count,
  s.previous_sentiment_points / nullif(s.previous_sentiment_count, 0) as previous_sentiment,
  s.previous_sentiment_count,
  s.sentiment_points / nullif(s.sentiment_count, 0)
    - s.previous_sentiment_points / nullif(s.previous_sentiment_count, 0) as change,
  s.sentiment_points / nullif(s.sentiment_count, 0)
    < s.previous_sentiment_points / nullif(s.previous_sentiment_count, 0) as is_falling,
  s.answers,
  s.sentiment_points,
  s.previous_sentiment_points,
{part period_state}
from (
  -- The service's own sentiments, weighted by their counts: right on any scale.
  select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
  from {schema}.projects p
{part each_week}
  cross join lateral (
    select r.brand_id, r.topic_id,
      sum(r.sentiment * r.sentiment_count) filter (where r.date >= w.week) as sentiment_points,
      sum(case when r.sentiment is null then 0 else r.sentiment_count end) filter (where r.date >= w.week) as sentiment_count,
      sum(r.sentiment * r.sentiment_count) filter (where r.date < w.week) as previous_sentiment_points,
      sum(case when r.sentiment is null then 0 else r.sentiment_count end) filter (where r.date < w.week) as previous_sentiment_count,
      sum(r.visibility_total) filter (where r.date >= w.week) as answers,
      sum(r.visibility_total) filter (where r.date < w.week) as previous_answers
    from {report date topic_id} r
    where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
    group by r.brand_id, r.topic_id
    having sum(r.visibility_total) filter (where r.date >= w.week) is not null
  ) g
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {schema}.topics t on t.project_id = s.project_id and t.topic_id = s.topic_id
{part week_read};
