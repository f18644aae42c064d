-- Question 4: Head to head with one competitor, by model? One row for each own brand and rival.
-- Needs the report by: date, model_id
create or replace view {schema}.head_to_head_weekly as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.week,
  s.model_id,
  o.brand_id as own_brand_id,
  coalesce(o.name, o.brand_id) as own_brand,
  s.brand_id as rival_brand_id,
  coalesce(s.name, s.brand_id) as rival_brand,
  o.visibility_count / nullif(o.answers, 0) as own_visibility,
  s.visibility_count / nullif(s.answers, 0) as rival_visibility,
  o.visibility_count / nullif(o.answers, 0) - s.visibility_count / nullif(s.answers, 0) as lead,
  o.mention_count / nullif(o.mention_count + s.mention_count, 0) as own_share_of_both,
  o.mention_count as own_mention_count,
  s.mention_count as rival_mention_count,
  s.answers
from (
  -- The own brands of a week and model ride along with each rival, so that a week is read once.
  select r.project_id, c.week, r.model_id, r.brand_id, b.name, coalesce(b.is_own, false) as is_own,
    sum(r.visibility_count) as visibility_count, sum(r.mention_count) as mention_count, sum(r.visibility_total) as answers,
    array_agg(r.brand_id) filter (where b.is_own) over w as own_ids,
    array_agg(b.name) filter (where b.is_own) over w as own_names,
    array_agg(sum(r.visibility_count)) filter (where b.is_own) over w as own_counts,
    array_agg(sum(r.mention_count)) filter (where b.is_own) over w as own_mentions,
    -- Each brand has answers of its own: one that is tracked since Wednesday has fewer in this week.
    array_agg(sum(r.visibility_total)) filter (where b.is_own) over w as own_answers
  from {schema}.calendar c
  join {report date model_id} r on r.date = c.date
  left join {schema}.brands b on b.project_id = r.project_id and b.brand_id = r.brand_id
  group by r.project_id, c.week, r.model_id, r.brand_id, b.name, b.is_own
  window w as (partition by r.project_id, c.week, r.model_id)
) s
cross join lateral unnest(s.own_ids, s.own_names, s.own_counts, s.own_mentions, s.own_answers)
  as o(brand_id, name, visibility_count, mention_count, answers)
left join {schema}.projects p on p.project_id = s.project_id
where not s.is_own;
