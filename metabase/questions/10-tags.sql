-- 10. Branded or not, or by funnel stage?
-- Shown as: bar tag,brand visibility
select week, tag, brand, visibility, previous_visibility, change, answers
from visibility.visibility_by_tag_weekly
where is_own
order by week desc, tag, brand;
