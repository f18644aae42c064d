-- 8. Where is sentiment falling?
-- Shown as: table
-- Filtered by: sentiment_by_topic_weekly project week brand
select week, project, brand, topic, sentiment, previous_sentiment, change, sentiment_count, previous_sentiment_count,
  comparison_is_complete
from visibility.sentiment_by_topic_weekly
where is_falling
  -- filters
order by week desc, change;
