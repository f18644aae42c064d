-- 3. Which models are strongest and weakest for us?
-- Shown as: bar model_id,week visibility
select week, brand, model_id, visibility, rank, change, answers
from visibility.visibility_by_model_weekly
where is_own
order by week desc, brand, rank;
