-- 1. How visible are we, against the previous equal period?
-- Shown as: line week,brand visibility
select week, brand, visibility, previous_visibility, change, answers, previous_answers
from visibility.visibility_weekly
where is_own
order by week desc, brand;
