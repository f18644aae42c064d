-- Question 3: Which models are strongest and weakest for us? By channel: its series goes on when the model behind it changes.
-- Needs the report by: date, model_channel_id
create or replace view {schema}.visibility_by_channel_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.model_channel_id,
{part visibility_compared}
  rank() over (
    partition by s.project_id, s.project, s.week, s.brand_id order by s.visibility_count / nullif(s.answers, 0) desc nulls last
  ) as rank,
{part visibility_intervals}
{part period_state}
from (
  select r.project_id, coalesce(p.name, p.project_id) as project, c.week, r.brand_id, r.model_channel_id,
    sum(r.visibility_count) filter (where c.ago = 0) as visibility_count,
    sum(r.visibility_total) filter (where c.ago = 0) as answers,
    sum(r.visibility_count) filter (where c.ago = 1) as previous_visibility_count,
    sum(r.visibility_total) filter (where c.ago = 1) as previous_answers
  from {schema}.projects p
  join {report date model_channel_id} r on r.project_id = p.project_id
  join {ops}.weeks_compared c on c.date = r.date
  group by r.project_id, p.project_id, c.week, r.brand_id, r.model_channel_id
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
{part week_read}
where s.answers is not null;
