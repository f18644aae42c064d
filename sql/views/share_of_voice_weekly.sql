-- Question 2: Share of voice over time, against each competitor? Week by week.
-- Needs the report by: date
create or replace view {schema}.share_of_voice_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.mention_count / nullif(coalesce(t.all_mentions, s.all_mentions), 0) as share_of_voice,
  s.mention_count,
  coalesce(t.all_mentions, s.all_mentions) as all_mentions,
  s.answers,
  s.previous_mention_count / nullif(coalesce(t.previous_all_mentions, s.previous_all_mentions), 0) as previous_share_of_voice,
  coalesce(t.previous_all_mentions, s.previous_all_mentions) as previous_all_mentions,
  s.mention_count / nullif(coalesce(t.all_mentions, s.all_mentions), 0)
    - s.previous_mention_count / nullif(coalesce(t.previous_all_mentions, s.previous_all_mentions), 0) as change,
  s.answers >= 30 as enough_answers,
  s.previous_mention_count,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional,
  case when s.previous_mention_count is not null then coalesce(k.is_complete and k.previous_is_complete, false) end as comparison_is_complete
from (
  -- Mentions within one answer are not independent, so there is no interval; the sample tells how much it is worth.
  select p.project_id, coalesce(p.name, p.project_id) as project, w.week, g.*
  from {schema}.projects p
{part each_week}
  cross join lateral (
    select r.brand_id,
      sum(r.mention_count) filter (where r.date >= w.week) as mention_count,
      sum(sum(r.mention_count) filter (where r.date >= w.week)) over w as all_mentions,
      sum(r.visibility_total) filter (where r.date >= w.week) as answers,
      sum(r.mention_count) filter (where r.date < w.week) as previous_mention_count,
      sum(sum(r.mention_count) filter (where r.date < w.week)) over w as previous_all_mentions
    from {report date} r
    where r.project_id = p.project_id and r.date >= w.week - 7 and r.date < w.week + 7
    group by r.brand_id
    window w as ()
  ) g
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
-- Of a brand that is tracked since Wednesday, earlier days do not count.
left join lateral (
  select sum(r.mention_count) filter (where r.date >= s.week) as all_mentions,
    sum(r.mention_count) filter (where r.date < s.week) as previous_all_mentions
  from {report date} r
  where b.first_seen_on > s.week - 7 and r.project_id = s.project_id and r.date between b.first_seen_on and s.week + 6
) t on true
{part week_read}
where s.answers is not null;
