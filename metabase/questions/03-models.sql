-- 3. Which models are strongest and weakest for us?
-- Shown as: bar model_id,week visibility
select week, brand, model_id, visibility, visibility_low, visibility_high, rank, change, verdict, answers, is_complete
from visibility.visibility_by_model_weekly
where is_own
order by week desc, brand, rank;
