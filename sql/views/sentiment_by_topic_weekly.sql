-- Question 8: Where is sentiment falling? By topic; 0 is worst, 100 best, null without mentions.
-- Needs the report by: date, topic_id
create or replace view {schema}.sentiment_by_topic_weekly as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.topic_id,
  coalesce(t.name, s.topic_id, '(no topic)') as topic,
  (s.sentiment_sum / nullif(s.sentiment_count, 0) / 2 + 0.5) * 100 as sentiment,
  s.sentiment_count,
  (s.previous_sentiment_sum / nullif(s.previous_sentiment_count, 0) / 2 + 0.5) * 100 as previous_sentiment,
  s.previous_sentiment_count,
  (s.sentiment_sum / nullif(s.sentiment_count, 0)
    - s.previous_sentiment_sum / nullif(s.previous_sentiment_count, 0)) / 2 * 100 as change,
  s.sentiment_sum / nullif(s.sentiment_count, 0)
    < s.previous_sentiment_sum / nullif(s.previous_sentiment_count, 0) as is_falling,
  s.answers
from (
  select r.project_id, c.week, r.brand_id, r.topic_id,
    sum(r.sentiment_sum) filter (where c.ago = 0) as sentiment_sum,
    sum(r.sentiment_count) filter (where c.ago = 0) as sentiment_count,
    sum(r.sentiment_sum) filter (where c.ago = 1) as previous_sentiment_sum,
    sum(r.sentiment_count) filter (where c.ago = 1) as previous_sentiment_count,
    sum(r.visibility_total) filter (where c.ago = 0) as answers
  from {schema}.weeks_compared c join {report date topic_id} r on r.date = c.date
  group by r.project_id, c.week, r.brand_id, r.topic_id
) s
left join {schema}.projects p on p.project_id = s.project_id
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {schema}.topics t on t.project_id = s.project_id and t.topic_id = s.topic_id
where s.answers is not null;
