-- Streams whose day is not as it should be, edits of brands since the week before, and models with their prompts of the day.
-- The words are of the reason without its name.
select 'state' as kind,
  case when count(*) = streams then 'all ' || streams || ' streams' else string_agg(stream, ', ' order by stream) end as name, detail, count(*)::integer as count, null::integer as sample,
  detail as words
from (
  select f.stream, count(*) over () as streams, concat_ws(', ',
    case when s.date is null then 'never read' when s.state <> 'read' then s.state when s.is_reconciled is false then 'unreconciled' end,
    case when s.is_provisional then 'may still change' end,
    'changed by later reads (' || nullif(s.restatements, 0) || '), last on ' || (s.restated_at at time zone 'UTC')::date) as detail
  from {schema}.freshness f
  left join {schema}.data_status s on s.project_id = f.project_id and s.stream = f.stream and s.date = {day}
  where f.project_id = {project} and f.first_day is not null
) f
where detail <> ''
group by detail, streams
union all
select 'edit', name, detail, null, null, 'brand edit ' || detail
from (
  select coalesce(h.name, h.brand_id) as name, 'seen on ' || (h.valid_from at time zone 'UTC')::date
    || case when h.name is distinct from b.name then ', before ' || coalesce(b.name, b.brand_id) else ', aliases or pattern' end as detail
  from {schema}.brand_history h
  join {schema}.brand_history b on b.project_id = h.project_id and b.brand_id = h.brand_id and b.valid_to = h.valid_from
  where h.project_id = {project} and h.valid_from >= {day}::date - 7
) e
union all
select 'model', model_id, detail, chats, answers,
  concat_ws(', ', 'model with ' || coalesce(chats, 0) || ' chats', coalesce(answers, 0) || ' answers in the report', detail)
from (
  select *, 'did not answer ' || nullif(prompts_missing, 0) || ' of ' || prompts_of_the_day || ' prompts' as detail
  from {schema}.sample_sizes_daily where project_id = {project} and date = {day}
) m
