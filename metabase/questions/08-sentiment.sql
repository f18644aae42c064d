-- 8. Where is sentiment falling?
-- Shown as: table
select week, brand, topic, sentiment, previous_sentiment, change, sentiment_count, previous_sentiment_count, comparison_is_complete
from visibility.sentiment_by_topic_weekly
where is_falling
order by week desc, change;
