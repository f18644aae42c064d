-- Question 13: Which sources do the models cite? Cited pages that mention rivals and not the own brand, by week.
-- Needs the report by: date
-- The report is one of URLs, and may have more dimensions. Without it the view is empty.
create or replace view {schema}.page_gaps_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.url,
  s.title,
  s.classification,
  s.domain,
  coalesce(o.is_own, false) as is_own,
  coalesce(not o.is_own, false) as is_rival,
  m.rival_names,
  s.citation_count,
  s.retrievals,
  rank() over (partition by s.project_id, s.project, s.week order by s.citation_count desc) as rank,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional,
  s.url_key
from {part pages_weekly} s
cross join lateral (
  select array_agg(distinct coalesce(e.name, b.brand ->> 'id') order by coalesce(e.name, b.brand ->> 'id'))
      filter (where e.is_own is not true) as rival_names,
    coalesce(bool_or(e.is_own), false) as names_own
  from jsonb_array_elements(s.mentioned) l(list) cross join lateral jsonb_array_elements(l.list) b(brand)
  left join {schema}.brands e on e.project_id = s.project_id and e.brand_id = b.brand ->> 'id'
) m
{part domain_brands}
{part week_read}
where s.citation_count > 0 and m.rival_names is not null and not m.names_own;
