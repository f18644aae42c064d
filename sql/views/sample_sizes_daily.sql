-- Question 12: Can I trust it: did every prompt and model run, is the sample large enough? By day and model.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.sample_sizes_daily as
select
  s.project_id,
  s.project,
  s.date,
  s.model_id,
  s.chats,
  s.answers,
  s.chats = s.answers as agrees,
  s.prompts_asked,
  s.prompts_of_the_day,
  s.prompts_of_the_day - s.prompts_asked as prompts_missing,
  -- Half the width of a 95 % interval around a visibility of one half: the widest it can be.
  0.98 / sqrt(nullif(s.answers, 0)) as margin_of_error,
  s.answers >= 30 as enough_answers
from (
  select g.project_id, g.project, g.date, g.model_id, sum(g.chats)::integer as chats, sum(g.answers) as answers,
    count(*)::integer as prompts_asked,
    -- As many as there are different prompts on that day, whichever model was asked.
    sum(count(*) filter (where g.is_first)) over (partition by g.project_id, g.project, g.date)::integer as prompts_of_the_day
  from (
    select d.*, row_number() over (partition by d.project_id, d.project, d.date, d.prompt_id) = 1 as is_first
    from {ops}.prompt_days_now d
  ) g
  group by g.project_id, g.project, g.date, g.model_id
) s;
