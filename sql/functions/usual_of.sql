-- What is usual on these days of a project, for each brand that has a row on them.
-- Needs the report by: date
-- Without nested loops: the planner takes any list of days for a short one, and would compare every day with every other.
create or replace function {ops}.usual_of(project text, days date[]) returns setof {ops}.usual_days
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp set enable_nestloop = off as $$
with shown as (
  select r.date, r.brand_id, r.visibility_count / nullif(r.visibility_total, 0) as visibility,
    r.mention_count / nullif(sum(r.mention_count) over (partition by r.date), 0) as share_of_voice
  from {report date} r
  where r.project_id = project
    and r.date between (select min(day) from unnest(days) day) - 56 and (select max(day) from unnest(days) day)
), before as (
  select d.date, d.brand_id, e.visibility, e.share_of_voice
  from (
    select s.date, s.brand_id, unnest({schema}.weekdays_before(s.date)) as earlier
    from unnest(days) day join shown s on s.date = day
  ) d
  join shown e on e.date = d.earlier and e.brand_id = d.brand_id
), usual as (
  select date, brand_id,
    case when count(visibility) >= 5 then percentile_cont(0.5) within group (order by visibility) end as visibility,
    case when count(share_of_voice) >= 5 then percentile_cont(0.5) within group (order by share_of_voice) end as share_of_voice
  from before group by date, brand_id
)
select project, u.date, u.brand_id,
  u.visibility, percentile_cont(0.5) within group (order by abs(b.visibility - u.visibility)),
  u.share_of_voice, percentile_cont(0.5) within group (order by abs(b.share_of_voice - u.share_of_voice))
from usual u join before b on b.date = u.date and b.brand_id = u.brand_id
where u.visibility is not null or u.share_of_voice is not null
group by u.date, u.brand_id, u.visibility, u.share_of_voice
$$;
