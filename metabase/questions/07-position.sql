-- 7. Is our average position improving?
-- Shown as: line week,model_id position
select week, brand, model_id, position, previous_position, change, is_improving, position_count, comparison_is_complete
from visibility.position_by_model_weekly
where is_own
order by week desc, change nulls last;
