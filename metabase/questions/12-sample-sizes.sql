-- 12. Can I trust it: did every prompt and model run, is the sample large enough?
-- Shown as: table
-- Filtered by: sample_sizes_daily project date
select date, project, model_id, answers, enough_answers, chats, agrees, prompts_asked, prompts_of_the_day, prompts_missing,
  margin_of_error
from visibility.sample_sizes_daily
where true
  -- filters
order by date desc, project, model_id;
