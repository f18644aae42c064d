-- Question 12: Can I trust it: did every prompt and model run, is the sample large enough? By day, prompt and model.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.sample_sizes as
select
  s.project_id,
  s.project,
  s.date,
  s.prompt_id,
  coalesce(q.text, s.prompt_id) as prompt,
  s.model_id,
  s.chats,
  s.answers,
  s.chats = s.answers as agrees
from {ops}.prompt_days_now s
left join {schema}.prompts q on q.project_id = s.project_id and q.prompt_id = s.prompt_id;
