-- 6. On which prompts are we absent while rivals appear?
-- Shown as: table
-- Filtered by: absent_prompts project week own_brand
select week, project, prompt, topic, model_id, own_brand, visibility_high, rivals, best_rival_visibility, rival_list, answers
from visibility.absent_prompts
where true
  -- filters
order by week desc, best_rival_visibility desc, answers desc;
