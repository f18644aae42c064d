-- 11. Which countries lead or lag?
-- Shown as: bar country_code,brand visibility
select week, country_code, brand, visibility, visibility_low, visibility_high, rank, change, verdict, answers
from visibility.visibility_by_country_weekly
where is_own
order by week desc, brand, rank;
