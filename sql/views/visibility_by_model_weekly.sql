-- Question 3: Which models are strongest and weakest for us? Rank 1 is the model with the highest visibility of a brand.
-- Needs the report by: date, model_id
create or replace view {schema}.visibility_by_model_weekly as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.model_id,
  s.visibility_count / nullif(s.answers, 0) as visibility,
  s.visibility_count,
  s.answers,
  s.previous_visibility_count / nullif(s.previous_answers, 0) as previous_visibility,
  s.previous_answers,
  s.visibility_count / nullif(s.answers, 0) - s.previous_visibility_count / nullif(s.previous_answers, 0) as change,
  rank() over (
    partition by s.project_id, s.week, s.brand_id order by s.visibility_count / nullif(s.answers, 0) desc nulls last
  ) as rank
from (
  select r.project_id, c.week, r.brand_id, r.model_id,
    sum(r.visibility_count) filter (where c.ago = 0) as visibility_count,
    sum(r.visibility_total) filter (where c.ago = 0) as answers,
    sum(r.visibility_count) filter (where c.ago = 1) as previous_visibility_count,
    sum(r.visibility_total) filter (where c.ago = 1) as previous_answers
  from {schema}.weeks_compared c join {report date model_id} r on r.date = c.date
  group by r.project_id, c.week, r.brand_id, r.model_id
) s
left join {schema}.projects p on p.project_id = s.project_id
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
where s.answers is not null;
