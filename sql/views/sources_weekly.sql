-- Question 13: Which sources do the models cite? Every domain by week: retrieved, cited, own or of a rival.
-- Needs the report by: date
-- The report is one of domains. Without it the view is empty.
create or replace view {schema}.sources_weekly as
select
  s.project_id,
  s.project,
  s.week,
  s.domain,
  s.classification,
  coalesce(o.is_own, s.classification = 'OWN', false) as is_own,
  coalesce(not o.is_own, s.classification = 'COMPETITOR', false) as is_rival,
  s.retrieved_chat_count,
  s.answers,
  s.retrieved_chat_count / nullif(s.answers, 0) as retrieved_share,
  {schema}.wilson_low(s.retrieved_chat_count, s.answers) as retrieved_share_low,
  {schema}.wilson_high(s.retrieved_chat_count, s.answers) as retrieved_share_high,
  s.answers >= 30 as enough_answers,
  s.citation_count,
  s.citation_count / nullif(s.retrieved_chat_count, 0) as citations_per_answer,
  s.previous_retrieved_chat_count,
  s.previous_answers,
  s.previous_retrieved_chat_count / nullif(s.previous_answers, 0) as previous_retrieved_share,
  s.retrieved_chat_count / nullif(s.answers, 0) - s.previous_retrieved_chat_count / nullif(s.previous_answers, 0) as change,
  {schema}.change_low(s.retrieved_chat_count, s.answers, s.previous_retrieved_chat_count, s.previous_answers) as change_low,
  {schema}.change_high(s.retrieved_chat_count, s.answers, s.previous_retrieved_chat_count, s.previous_answers) as change_high,
  case when s.retrieved_chat_count is not null and s.answers is not null
      and (s.previous_days = 0 or s.previous_retrieved_chat_count is not null and s.previous_answers is not null) then
    {schema}.verdict(s.retrieved_chat_count, s.answers, s.previous_retrieved_chat_count, s.previous_answers) end as verdict,
  s.previous_citation_count,
  rank() over (partition by s.project_id, s.project, s.week order by s.citation_count desc nulls last) as rank,
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional,
  case when s.previous_days > 0 then coalesce(k.is_complete and k.previous_is_complete, false) end as comparison_is_complete,
  s.retrieval_count,
  s.retrieval_count / nullif(s.answers, 0) as retrieval_rate,
  s.citation_count / nullif(s.retrieval_count, 0) as citation_rate
from (
  -- A sum is null if a day does not have the number: days that do would pass for the whole week.
  select g.project_id, g.project, g.week, g.domain, g.classification, g.rows, g.previous_days,
    case when g.retrieved_rows = g.rows then g.retrieved_chat_count end as retrieved_chat_count,
    case when g.cited_rows = g.rows then g.citation_count end as citation_count,
    case when g.retrieval_rows = g.rows then g.retrieval_count end as retrieval_count,
    case when g.unknown_days = 0 then g.answers end as answers,
    -- The report lists only what is retrieved, so a domain that is not in it was retrieved by no answer.
    case when g.previous_days > 0 and g.previous_retrieved_rows = g.previous_rows then coalesce(g.previous_retrieved_chat_count, 0) end
      as previous_retrieved_chat_count,
    case when g.previous_days > 0 and g.previous_cited_rows = g.previous_rows then coalesce(g.previous_citation_count, 0) end
      as previous_citation_count,
    case when g.previous_unknown_days = 0 then g.previous_answers end as previous_answers
  from (
    select r.project_id, r.project, r.week, r.domain,
      (array_agg(r.classification order by r.date desc) filter (where r.ago = 0))[1] as classification,
      count(*) filter (where r.ago = 0) as rows,
      count(r.retrieved_chat_count) filter (where r.ago = 0) as retrieved_rows,
      sum(r.retrieved_chat_count) filter (where r.ago = 0) as retrieved_chat_count,
      count(r.citation_count) filter (where r.ago = 0) as cited_rows,
      sum(r.citation_count) filter (where r.ago = 0) as citation_count,
      count(r.retrieval_count) filter (where r.ago = 0) as retrieval_rows,
      sum(r.retrieval_count) filter (where r.ago = 0) as retrieval_count,
      count(*) filter (where r.ago = 1) as previous_rows,
      count(r.retrieved_chat_count) filter (where r.ago = 1) as previous_retrieved_rows,
      sum(r.retrieved_chat_count) filter (where r.ago = 1) as previous_retrieved_chat_count,
      count(r.citation_count) filter (where r.ago = 1) as previous_cited_rows,
      sum(r.citation_count) filter (where r.ago = 1) as previous_citation_count,
      -- Of all domains: total_chat_count stands on every row of a day and counts once.
      sum(sum(r.total_chat_count) filter (where r.is_first and r.ago = 0)) over w as answers,
      sum(sum(r.total_chat_count) filter (where r.is_first and r.ago = 1)) over w as previous_answers,
      sum(count(*) filter (where r.is_first and r.ago = 0 and r.total_chat_count is null)) over w as unknown_days,
      sum(count(*) filter (where r.is_first and r.ago = 1 and r.total_chat_count is null)) over w as previous_unknown_days,
      sum(count(*) filter (where r.is_first and r.ago = 1)) over w as previous_days
    from (
      select r.project_id, coalesce(p.name, p.project_id) as project, c.week, c.ago, r.date, r.domain, r.classification,
        r.citation_count, r.retrieved_chat_count, r.total_chat_count, r.retrieval_count,
        row_number() over (
          partition by r.project_id, coalesce(p.name, p.project_id), c.week, r.date order by r.total_chat_count desc nulls last
        ) = 1 as is_first
      from {schema}.projects p
      join {report date} r on r.project_id = p.project_id
      join {ops}.weeks_compared c on c.date = r.date
    ) r
    group by r.project_id, r.project, r.week, r.domain
    window w as (partition by r.project_id, r.project, r.week)
  ) g
) s
{part domain_brands}
{part week_read}
where s.rows > 0;
