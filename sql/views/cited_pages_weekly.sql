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
  coalesce(k.is_provisional, true) as is_provisional,
  s.url_key
from {part pages_weekly} s
{part domain_brands}
{part week_read};
