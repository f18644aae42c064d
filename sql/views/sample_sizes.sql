-- Question 12: Can I trust it: did every prompt and model run, is the sample large enough? By day, prompt and model.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.sample_sizes as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.date,
  s.prompt_id,
  coalesce(q.text, s.prompt_id) as prompt,
  s.model_id,
  s.chats,
  s.answers,
  s.chats = s.answers as agrees
from (
  select e.project_id, e.date, e.prompt_id, e.model_id, sum(e.chats)::integer as chats, coalesce(max(e.answers), 0) as answers
  from (
    select c.project_id, c.date, c.prompt_id, c.model_id, 1 as chats, null::double precision as answers
    from {schema}.chats c
    union all
    -- It stands on every brand's row of the group, so the largest is taken, not the sum.
    select r.project_id, r.date, r.prompt_id, r.model_id, 0, r.visibility_total from {report date prompt_id model_id} r
  ) e
  group by e.project_id, e.date, e.prompt_id, e.model_id
) s
left join {schema}.projects p on p.project_id = s.project_id
left join {schema}.prompts q on q.project_id = s.project_id and q.prompt_id = s.prompt_id;
