-- Question 7: Is our average position improving? Lower is better, so a negative change is an improvement.
-- Needs the report by: date, model_id
create or replace view {schema}.position_by_model_weekly as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.model_id,
  s.position_sum / nullif(s.position_count, 0) as position,
  s.position_count,
  s.previous_position_sum / nullif(s.previous_position_count, 0) as previous_position,
  s.previous_position_count,
  s.position_sum / nullif(s.position_count, 0)
    - s.previous_position_sum / nullif(s.previous_position_count, 0) as change,
  s.position_sum / nullif(s.position_count, 0)
    < s.previous_position_sum / nullif(s.previous_position_count, 0) as is_improving,
  s.answers
from (
  select r.project_id, c.week, r.brand_id, r.model_id,
    sum(r.position_sum) filter (where c.ago = 0) as position_sum,
    sum(r.position_count) filter (where c.ago = 0) as position_count,
    sum(r.position_sum) filter (where c.ago = 1) as previous_position_sum,
    sum(r.position_count) filter (where c.ago = 1) as previous_position_count,
    sum(r.visibility_total) filter (where c.ago = 0) as answers
  from {schema}.weeks_compared c join {report date model_id} r on r.date = c.date
  group by r.project_id, c.week, r.brand_id, r.model_id
) s
left join {schema}.projects p on p.project_id = s.project_id
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
where s.answers is not null;
