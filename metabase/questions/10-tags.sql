-- 10. Branded or not, or by funnel stage?
-- Shown as: bar tag,brand visibility
select week, tag, brand, visibility, visibility_low, visibility_high, previous_visibility, change, verdict, answers
from visibility.visibility_by_tag_weekly
where is_own
order by week desc, tag, brand;
