-- 9. Who gained or lost most this week?
-- Shown as: table
-- Filtered by: movers_weekly project week brand
select week, project, brand, topic, model_id, visibility, previous_visibility, change, change_low, change_high, verdict, rank,
  rank_by_size, answers, previous_answers
from visibility.movers_weekly
where rank <= 20
  -- filters
order by week desc, project, rank;
