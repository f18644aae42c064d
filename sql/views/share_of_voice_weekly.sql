-- Question 2: Share of voice over time, against each competitor? Week by week.
-- Needs the report by: date
create or replace view {schema}.share_of_voice_weekly as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.mention_count / nullif(s.all_mentions, 0) as share_of_voice,
  s.mention_count,
  s.all_mentions,
  s.answers,
  s.previous_mention_count / nullif(s.previous_all_mentions, 0) as previous_share_of_voice,
  s.previous_all_mentions,
  s.mention_count / nullif(s.all_mentions, 0)
    - s.previous_mention_count / nullif(s.previous_all_mentions, 0) as change
from (
  select r.project_id, c.week, r.brand_id,
    sum(r.mention_count) filter (where c.ago = 0) as mention_count,
    sum(sum(r.mention_count) filter (where c.ago = 0)) over (partition by r.project_id, c.week) as all_mentions,
    sum(r.visibility_total) filter (where c.ago = 0) as answers,
    sum(r.mention_count) filter (where c.ago = 1) as previous_mention_count,
    sum(sum(r.mention_count) filter (where c.ago = 1)) over (partition by r.project_id, c.week) as previous_all_mentions
  from {schema}.weeks_compared c join {report date} r on r.date = c.date
  group by r.project_id, c.week, r.brand_id
) s
left join {schema}.projects p on p.project_id = s.project_id
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
where s.answers is not null;
