-- Question 4: Head to head with one competitor, by model? One row for each own brand and rival.
-- Needs the report by: date, model_id
create or replace view {schema}.head_to_head_weekly as
select
  s.project_id,
  s.project,
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
  s.answers,
  o.visibility_count as own_visibility_count,
  o.answers as own_answers,
  s.visibility_count as rival_visibility_count,
  {schema}.wilson_low(o.visibility_count, o.answers) as own_visibility_low,
  {schema}.wilson_high(o.visibility_count, o.answers) as own_visibility_high,
  {schema}.wilson_low(s.visibility_count, s.answers) as rival_visibility_low,
  {schema}.wilson_high(s.visibility_count, s.answers) as rival_visibility_high,
  o.answers >= 30 and s.answers >= 30 as enough_answers,
  -- Both are seen in the same answers, so their intervals must not touch: that holds however they depend on each other.
  case
    when o.answers >= 30 is not true or s.answers >= 30 is not true then 'too_few'
    when {schema}.wilson_low(o.visibility_count, o.answers) > {schema}.wilson_high(s.visibility_count, s.answers) then 'ahead'
    when {schema}.wilson_high(o.visibility_count, o.answers) < {schema}.wilson_low(s.visibility_count, s.answers) then 'behind'
    else 'no_clear_lead'
  end as lead_verdict,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional,
  o.previous_count / nullif(o.previous_answers, 0) as previous_own_visibility,
  o.previous_answers as previous_own_answers,
  o.visibility_count / nullif(o.answers, 0) - o.previous_count / nullif(o.previous_answers, 0) as own_change,
  {schema}.verdict(o.visibility_count, o.answers, o.previous_count, o.previous_answers) as own_verdict,
  s.previous_count / nullif(s.previous_answers, 0) as previous_rival_visibility,
  s.previous_answers as previous_rival_answers,
  s.visibility_count / nullif(s.answers, 0) - s.previous_count / nullif(s.previous_answers, 0) as rival_change,
  {schema}.verdict(s.visibility_count, s.answers, s.previous_count, s.previous_answers) as rival_verdict,
  case when o.previous_answers is not null and s.previous_answers is not null
    then coalesce(k.is_complete and k.previous_is_complete, false) end as comparison_is_complete
from (
  -- The own brands of a week and model ride along with each rival, so that a week is read once.
  select g.*,
    array_agg(g.brand_id) filter (where g.is_own) over w as own_ids,
    array_agg(g.name) filter (where g.is_own) over w as own_names,
    array_agg(g.visibility_count) filter (where g.is_own) over w as own_counts,
    array_agg(g.mention_count) filter (where g.is_own) over w as own_mentions,
    -- Each brand has answers of its own: one that is tracked since Wednesday has fewer in this week.
    array_agg(g.answers) filter (where g.is_own) over w as own_answers,
    array_agg(g.previous_count) filter (where g.is_own) over w as own_previous_counts,
    array_agg(g.previous_answers) filter (where g.is_own) over w as own_previous_answers
  from (
    select r.project_id, coalesce(p.name, p.project_id) as project, c.week, r.model_id, r.brand_id, b.name,
      coalesce(b.is_own, false) as is_own,
      sum(r.visibility_count) filter (where c.ago = 0) as visibility_count,
      sum(r.mention_count) filter (where c.ago = 0) as mention_count,
      sum(r.visibility_total) filter (where c.ago = 0) as answers,
      sum(r.visibility_count) filter (where c.ago = 1) as previous_count,
      sum(r.visibility_total) filter (where c.ago = 1) as previous_answers
    from {schema}.projects p
    join {report date model_id} r on r.project_id = p.project_id
    join {ops}.weeks_compared c on c.date = r.date
    left join {schema}.brands b on b.project_id = r.project_id and b.brand_id = r.brand_id
    group by r.project_id, p.project_id, c.week, r.model_id, r.brand_id, b.name, b.is_own
  ) g
  where g.answers is not null
  window w as (partition by g.project_id, g.project, g.week, g.model_id)
) s
cross join lateral unnest(
  s.own_ids, s.own_names, s.own_counts, s.own_mentions, s.own_answers, s.own_previous_counts, s.own_previous_answers
) as o(brand_id, name, visibility_count, mention_count, answers, previous_count, previous_answers)
{part week_read}
where not s.is_own;
