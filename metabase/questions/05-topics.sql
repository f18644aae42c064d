-- 5. Which topics do we own, and where are we invisible?
-- Shown as: table
-- Filtered by: topics_weekly project week brand
select week, project, topic, brand, visibility, visibility_low, visibility_high, rank, leads, is_invisible, gap_to_leader,
  answers, enough_answers
from visibility.topics_weekly
where is_own
  -- filters
order by week desc, gap_to_leader;
