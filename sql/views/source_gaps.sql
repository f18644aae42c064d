-- Question 13: Which sources do the models cite? Domains that answers cite for prompts on which rivals appear and we do not.
-- Needs the report by: date, prompt_id, model_id
-- The report is one of domains; that of brands by the same dimensions says who appears. Without them the view is empty.
create or replace view {schema}.source_gaps as
select
  s.project_id,
  s.project,
  s.week,
  s.brand_id as own_brand_id,
  coalesce(b.name, s.brand_id) as own_brand,
  s.domain,
  s.classification,
  coalesce(o.is_own, s.classification = 'OWN', false) as is_own,
  coalesce(not o.is_own, s.classification = 'COMPETITOR', false) as is_rival,
  s.prompts,
  s.models,
  s.citation_count,
  s.retrieved_chat_count,
  rank() over (partition by s.project_id, s.project, s.week, s.brand_id order by s.citation_count desc) as rank,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional
from (
  select a.project_id, a.project, a.week, a.brand_id, r.domain,
    (array_agg(r.classification order by r.date desc))[1] as classification,
    count(distinct r.prompt_id) as prompts,
    count(distinct r.model_id) as models,
    case when count(r.citation_count) = count(*) then sum(r.citation_count) end as citation_count,
    case when count(r.retrieved_chat_count) = count(*) then sum(r.retrieved_chat_count) end as retrieved_chat_count
  from (
    select g.project_id, g.project, g.start as week, g.brand_id, g.prompt_id, g.model_id
    from {ops}.prompt_sums_now g
    join {schema}.brands e on e.project_id = g.project_id and e.brand_id = g.brand_id and e.is_own
    where g.unit = 'week' and g.grain = 'prompt_model' and g.visibility_count = 0
      -- Of the brands that are named, one is a rival as of now.
      and exists (
        select from unnest(g.named_ids) n(brand_id)
        left join {schema}.brands e on e.project_id = g.project_id and e.brand_id = n.brand_id
        where e.is_own is not true
      )
  ) a
  join {ops}.calendar c on c.week = a.week
  join {report date prompt_id model_id} r on r.project_id = a.project_id and r.date = c.date and r.prompt_id = a.prompt_id
    and coalesce(r.model_id, '') = coalesce(a.model_id, '')
  group by a.project_id, a.project, a.week, a.brand_id, r.domain
) s
join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
{part domain_brands}
{part week_read}
where s.citation_count > 0;
