-- Question 12: Can I trust it: did every prompt and model run, is the sample large enough? By day and model.
-- Needs the report by: date, prompt_id, model_id
create or replace view {schema}.sample_sizes_daily as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.date,
  s.model_id,
  s.chats,
  s.answers,
  s.chats = s.answers as agrees,
  s.prompts_asked,
  s.prompts_of_the_day,
  s.prompts_of_the_day - s.prompts_asked as prompts_missing,
  -- Half the width of a 95 % interval around a visibility of one half: the widest it can be.
  0.98 / sqrt(nullif(s.answers, 0)) as margin_of_error
from (
  select g.project_id, g.date, g.model_id, sum(g.chats)::integer as chats, sum(g.answers) as answers, count(*)::integer as prompts_asked,
    max(g.prompts_of_the_day)::integer as prompts_of_the_day
  from (
    select e.project_id, e.date, e.prompt_id, e.model_id, sum(e.chats)::integer as chats, coalesce(max(e.answers), 0) as answers,
      -- As many as there are different prompts on that day, whichever model was asked.
      dense_rank() over (partition by e.project_id, e.date order by e.prompt_id)
        + dense_rank() over (partition by e.project_id, e.date order by e.prompt_id desc) - 1 as prompts_of_the_day
    from (
      select c.project_id, c.date, c.prompt_id, c.model_id, 1 as chats, null::double precision as answers
      from {schema}.chats c
      union all
      select r.project_id, r.date, r.prompt_id, r.model_id, 0, r.visibility_total
      from {report date prompt_id model_id} r
    ) e
    group by e.project_id, e.date, e.prompt_id, e.model_id
  ) g
  group by g.project_id, g.date, g.model_id
) s
left join {schema}.projects p on p.project_id = s.project_id;
