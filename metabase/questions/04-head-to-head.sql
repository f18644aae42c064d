-- 4. Head to head with one competitor, by model?
-- Shown as: table
-- Filtered by: head_to_head_weekly project week own_brand
select week, project, model_id, own_brand, rival_brand, own_visibility, rival_visibility, lead, lead_verdict,
  own_share_of_both, answers
from visibility.head_to_head_weekly
where true
  -- filters
order by week desc, project, own_brand, rival_brand, lead;
