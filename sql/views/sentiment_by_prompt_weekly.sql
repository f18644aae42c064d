-- Question 8: Where is sentiment falling? By prompt, on the service's own scale; null without mentions.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.sentiment_by_prompt_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.prompt_id,
  coalesce(t.text, s.prompt_id) as prompt,
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
  select g.*, g.start as week from {ops}.prompt_sums_now g where g.unit = 'week' and g.grain = 'prompt'
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {schema}.prompts t on t.project_id = s.project_id and t.prompt_id = s.prompt_id
{part week_read};
