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
  v.own_count / nullif(v.own_answers, 0) as own_visibility,
  v.rival_count / nullif(v.rival_answers, 0) as rival_visibility,
  v.own_count / nullif(v.own_answers, 0) - v.rival_count / nullif(v.rival_answers, 0) as lead,
  v.own_mentions / nullif(v.own_mentions + v.rival_mentions, 0) as own_share_of_both,
  v.own_mentions as own_mention_count,
  v.rival_mentions as rival_mention_count,
  v.rival_answers as answers,
  v.own_count as own_visibility_count,
  v.own_answers as own_answers,
  v.rival_count as rival_visibility_count,
  {schema}.wilson_low(v.own_count, v.own_answers) as own_visibility_low,
  {schema}.wilson_high(v.own_count, v.own_answers) as own_visibility_high,
  {schema}.wilson_low(v.rival_count, v.rival_answers) as rival_visibility_low,
  {schema}.wilson_high(v.rival_count, v.rival_answers) as rival_visibility_high,
  v.own_answers >= 30 and v.rival_answers >= 30 as enough_answers,
  -- Both are seen in the same answers, so their intervals must not touch: that holds however they depend on each other.
  case
    when v.own_answers >= 30 is not true or v.rival_answers >= 30 is not true then 'too_few'
    when {schema}.wilson_low(v.own_count, v.own_answers) > {schema}.wilson_high(v.rival_count, v.rival_answers) then 'ahead'
    when {schema}.wilson_high(v.own_count, v.own_answers) < {schema}.wilson_low(v.rival_count, v.rival_answers) then 'behind'
    else 'no_clear_lead'
  end as lead_verdict,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional,
  v.own_previous_count / nullif(v.own_previous_answers, 0) as previous_own_visibility,
  v.own_previous_answers as previous_own_answers,
  v.own_count / nullif(v.own_answers, 0) - v.own_previous_count / nullif(v.own_previous_answers, 0) as own_change,
  {schema}.verdict(v.own_count, v.own_answers, v.own_previous_count, v.own_previous_answers) as own_verdict,
  v.rival_previous_count / nullif(v.rival_previous_answers, 0) as previous_rival_visibility,
  v.rival_previous_answers as previous_rival_answers,
  v.rival_count / nullif(v.rival_answers, 0) - v.rival_previous_count / nullif(v.rival_previous_answers, 0) as rival_change,
  {schema}.verdict(v.rival_count, v.rival_answers, v.rival_previous_count, v.rival_previous_answers) as rival_verdict,
  case when v.own_previous_answers is not null and v.rival_previous_answers is not null
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
    array_agg(g.previous_answers) filter (where g.is_own) over w as own_previous_answers,
    array_agg(g.first_seen_on) filter (where g.is_own) over w as own_first_days
  from (
    select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
    from {schema}.projects p
{part each_week}
    cross join lateral (
      select r.model_id, r.brand_id, b.name,
        coalesce(b.is_own, false) as is_own, b.first_seen_on,
        sum(r.visibility_count) filter (where r.date >= w.week) as visibility_count,
        sum(r.mention_count) filter (where r.date >= w.week) as mention_count,
        sum(r.visibility_total) filter (where r.date >= w.week) as answers,
        sum(r.visibility_count) filter (where r.date < w.week) as previous_count,
        sum(r.visibility_total) filter (where r.date < w.week) as previous_answers
      from {report date model_id} r
      left join {schema}.brands b on b.project_id = r.project_id and b.brand_id = r.brand_id
      where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
      group by r.model_id, r.brand_id, b.name, b.is_own, b.first_seen_on
    ) g
  ) g
  where g.answers is not null
  window w as (partition by g.project_id, g.project, g.week, g.model_id)
) s
cross join lateral unnest(
  s.own_ids, s.own_names, s.own_counts, s.own_mentions, s.own_answers, s.own_previous_counts, s.own_previous_answers, s.own_first_days
) as o(brand_id, name, visibility_count, mention_count, answers, previous_count, previous_answers, first_seen_on)
-- Only days count on which both are tracked: those of the weeks as a whole, unless one of them is new.
cross join lateral (
  select o.visibility_count as own_count, o.mention_count as own_mentions, o.answers as own_answers,
    o.previous_count as own_previous_count, o.previous_answers as own_previous_answers,
    s.visibility_count as rival_count, s.mention_count as rival_mentions, s.answers as rival_answers,
    s.previous_count as rival_previous_count, s.previous_answers as rival_previous_answers
  where (greatest(o.first_seen_on, s.first_seen_on) > s.week - 7) is not true
  union all
  select sum(r.visibility_count) filter (where r.brand_id = o.brand_id and r.date >= s.week),
    sum(r.mention_count) filter (where r.brand_id = o.brand_id and r.date >= s.week),
    sum(r.visibility_total) filter (where r.brand_id = o.brand_id and r.date >= s.week),
    sum(r.visibility_count) filter (where r.brand_id = o.brand_id and r.date < s.week),
    sum(r.visibility_total) filter (where r.brand_id = o.brand_id and r.date < s.week),
    sum(r.visibility_count) filter (where r.brand_id = s.brand_id and r.date >= s.week),
    sum(r.mention_count) filter (where r.brand_id = s.brand_id and r.date >= s.week),
    sum(r.visibility_total) filter (where r.brand_id = s.brand_id and r.date >= s.week),
    sum(r.visibility_count) filter (where r.brand_id = s.brand_id and r.date < s.week),
    sum(r.visibility_total) filter (where r.brand_id = s.brand_id and r.date < s.week)
  from {report date model_id} r
  where r.project_id = s.project_id and r.model_id is not distinct from s.model_id and r.brand_id in (o.brand_id, s.brand_id)
    and r.date between greatest(o.first_seen_on, s.first_seen_on) and s.week + 6
  having greatest(o.first_seen_on, s.first_seen_on) > s.week - 7
) v
{part week_read}
where not s.is_own;
