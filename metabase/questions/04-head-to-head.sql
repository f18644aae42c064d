-- 4. Head to head with one competitor, by model?
-- Shown as: table
select week, model_id, own_brand, rival_brand, own_visibility, rival_visibility, lead, lead_verdict, own_share_of_both, answers
from visibility.head_to_head_weekly
order by week desc, rival_brand, lead;
