-- Answers of one week by day, prompt and model, by chats and by report.
-- Needs the report by: date, prompt_id, model_id
create or replace function {ops}.counts_of(project text, monday date) returns setof {ops}.prompt_days
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
select project, monday, e.date, e.prompt_id, e.model_id, sum(e.chats)::integer, coalesce(max(e.answers), 0)
from (
  select c.project_id, c.date, c.prompt_id, c.model_id, 1 as chats, null::double precision as answers
  from {schema}.chats c
  union all
  -- It stands on every brand's row of the group, so the largest is taken, not the sum.
  select r.project_id, r.date, r.prompt_id, r.model_id, 0, r.visibility_total from {report date prompt_id model_id} r
) e
where e.project_id = project and e.date >= monday and e.date < monday + 7
group by e.date, e.prompt_id, e.model_id
$$;
