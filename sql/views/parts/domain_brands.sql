-- Whose domain it is, by the domains that the service lists for brands; "www." makes no difference.
left join (
  select b.project_id, lower(regexp_replace(d.domain, '^www\.', '')) as domain, bool_or(b.is_own) as is_own
  from {schema}.brands b
  cross join lateral jsonb_array_elements_text(
    case when jsonb_typeof(b.domains) = 'array' then b.domains else '[]'::jsonb end
  ) d(domain)
  group by 1, 2
) o on o.project_id = s.project_id and o.domain = lower(regexp_replace(s.domain, '^www\.', ''))
