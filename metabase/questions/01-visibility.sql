-- 1. How visible are we, against the previous equal period?
-- Shown as: line week,brand visibility
select week, brand, visibility, visibility_low, visibility_high, previous_visibility, change, change_low, change_high, verdict,
  change_same_prompts, answers, previous_answers, is_complete, is_provisional, comparison_is_complete
from visibility.visibility_weekly
where is_own
order by week desc, brand;
