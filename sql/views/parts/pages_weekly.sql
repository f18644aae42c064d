(
  -- A page may have several addresses. The one that is shown is cited most. Its key is computed once for each address and week.
  select u.project_id, u.project, u.week, {schema}.url_key(u.url) as url_key,
    (array_agg(u.url order by u.most_citations desc nulls last, u.url))[1] as url,
    (array_agg(u.title order by u.titled_on desc) filter (where u.title is not null))[1] as title,
    (array_agg(u.classification order by u.classified_on desc) filter (where u.classification is not null))[1] as classification,
    lower(substring(min(u.url) from '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#:]+)')) as domain,
    -- A sum is null if a row does not have the number: the others would pass for the whole week.
    case when bool_and(u.has_usage) then sum(u.usage_count) end as usage_count,
    case when bool_and(u.has_citations) then sum(u.citation_count) end as citation_count,
    case when bool_and(u.has_retrievals) then sum(u.retrievals) end as retrievals,
    jsonb_path_query_array(jsonb_agg(u.mentioned) filter (where u.mentioned is not null), '$[*][*]') as mentioned
  from (
    select r.project_id, coalesce(p.name, p.project_id) as project, c.week, r.url,
      max(r.citation_count) as most_citations,
      (array_agg(r.title order by r.date desc) filter (where r.title is not null))[1] as title,
      max(r.date) filter (where r.title is not null) as titled_on,
      (array_agg(r.classification order by r.date desc) filter (where r.classification is not null))[1] as classification,
      max(r.date) filter (where r.classification is not null) as classified_on,
      sum(r.usage_count) as usage_count, count(r.usage_count) = count(*) as has_usage,
      sum(r.citation_count) as citation_count, count(r.citation_count) = count(*) as has_citations,
      sum(coalesce(r.retrieval_count, r.retrievals)) as retrievals,
      count(coalesce(r.retrieval_count, r.retrievals)) = count(*) as has_retrievals,
      jsonb_agg(distinct r.mentioned_brands) filter (where jsonb_typeof(r.mentioned_brands) = 'array') as mentioned
    from {schema}.projects p
    join {report date} r on r.project_id = p.project_id
    join {ops}.calendar c on c.date = r.date
    group by r.project_id, p.project_id, c.week, r.url
  ) u
  group by u.project_id, u.project, u.week, {schema}.url_key(u.url)
)
