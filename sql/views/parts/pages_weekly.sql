(
  -- A page may have several addresses. The one that is shown is cited most.
  select r.project_id, coalesce(p.name, p.project_id) as project, c.week, {schema}.url_key(r.url) as url_key,
    (array_agg(r.url order by r.citation_count desc nulls last, r.url))[1] as url,
    (array_agg(r.title order by r.date desc) filter (where r.title is not null))[1] as title,
    (array_agg(r.classification order by r.date desc) filter (where r.classification is not null))[1] as classification,
    lower(substring(min(r.url) from '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#:]+)')) as domain,
    -- A sum is null if a row does not have the number: the others would pass for the whole week.
    case when count(r.usage_count) = count(*) then sum(r.usage_count) end as usage_count,
    case when count(r.citation_count) = count(*) then sum(r.citation_count) end as citation_count,
    case when count(coalesce(r.retrieval_count, r.retrievals)) = count(*) then sum(coalesce(r.retrieval_count, r.retrievals)) end as retrievals,
    jsonb_agg(distinct r.mentioned_brands) filter (where jsonb_typeof(r.mentioned_brands) = 'array') as mentioned
  from {schema}.projects p
  join {report date} r on r.project_id = p.project_id
  join {ops}.calendar c on c.date = r.date
  group by r.project_id, p.project_id, c.week, {schema}.url_key(r.url)
)
