-- Question 13: Which sources do the models cite? Every page by week. The report has no number of answers, so there are no shares.
-- Needs the report by: date
-- The report is one of URLs, and may have more dimensions. Without it the view is empty.
create or replace view {schema}.cited_pages_weekly as
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
  s.usage_count,
  s.citation_count,
  s.retrievals,
  s.citation_count / nullif(s.retrievals, 0) as citations_per_retrieval,
  rank() over (partition by s.project_id, s.project, s.week order by s.citation_count desc nulls last) as rank,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional
from (
  select r.project_id, coalesce(p.name, p.project_id) as project, c.week, r.url,
    (array_agg(r.title order by r.date desc) filter (where r.title is not null))[1] as title,
    (array_agg(r.classification order by r.date desc) filter (where r.classification is not null))[1] as classification,
    lower(substring(r.url from '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#:]+)')) as domain,
    -- A sum is null if a row does not have the number: the others would pass for the whole week.
    case when count(r.usage_count) = count(*) then sum(r.usage_count) end as usage_count,
    case when count(r.citation_count) = count(*) then sum(r.citation_count) end as citation_count,
    case when count(r.retrievals) = count(*) then sum(r.retrievals) end as retrievals
  from {schema}.projects p
  join {report date} r on r.project_id = p.project_id
  join {schema}.calendar c on c.date = r.date
  group by r.project_id, p.project_id, c.week, r.url
) s
{part domain_brands}
{part week_read};
