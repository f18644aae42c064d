-- Sums of the report by prompt and model over weeks or months, and over the one before each. Each row is read once.
-- Needs the report by: date, prompt_id, model_id
create or replace function {ops}.sums_of_periods(project text, period_unit text, starts date[]) returns setof {ops}.prompt_sums
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
with needed as (
  select start, (start + length)::date as next
  from (select case period_unit when 'week' then interval '7 days' else interval '1 month' end as length) l
  cross join lateral (select unnest(starts) as start union select (unnest(starts) - length)::date) p
), sums_of_period as (
  select n.start, n.next, r.*
  from needed n cross join lateral (
    select r.brand_id, r.prompt_id, r.model_id,
      sum(r.visibility_count) as visibility_count,
      sum(r.visibility_total) as answers,
      sum(r.sentiment * r.sentiment_count) as sentiment_points,
      sum(case when r.sentiment is null then 0 else r.sentiment_count end) as sentiment_count
    from {report date prompt_id model_id} r
    where r.project_id = project and r.date >= n.start and r.date < n.next
    group by r.brand_id, r.prompt_id, r.model_id
  ) r
), both_periods as (
  select s.start as period, true as is_now, s.* from sums_of_period s where s.start = any(starts)
  union all
  select s.next, false, s.* from sums_of_period s where s.next = any(starts)
), sums as (
  select period, brand_id, prompt_id, model_id, grouping(model_id) = 1 as all_models,
    sum(visibility_count) filter (where is_now) as visibility_count,
    sum(answers) filter (where is_now) as answers,
    sum(sentiment_points) filter (where is_now) as sentiment_points,
    sum(sentiment_count) filter (where is_now) as sentiment_count,
    sum(visibility_count) filter (where not is_now) as previous_visibility_count,
    sum(answers) filter (where not is_now) as previous_answers,
    sum(sentiment_points) filter (where not is_now) as previous_sentiment_points,
    sum(sentiment_count) filter (where not is_now) as previous_sentiment_count
  from both_periods
  group by grouping sets ((period, brand_id, prompt_id, model_id), (period, brand_id, prompt_id))
  having bool_or(is_now)
), named as (
  select period, prompt_id, model_id, array_agg(brand_id order by brand_id) as ids,
    array_agg(visibility_count / answers order by brand_id) as visibility
  from sums where not all_models and visibility_count > 0 and answers > 0
  group by period, prompt_id, model_id
)
select project, period_unit, s.period, case when s.all_models then 'prompt' else 'prompt_model' end,
  s.brand_id, s.prompt_id, s.model_id, s.visibility_count, s.answers, s.sentiment_points, s.sentiment_count,
  s.previous_visibility_count, s.previous_answers, s.previous_sentiment_points, s.previous_sentiment_count,
  n.ids, n.visibility
from sums s
-- An empty text for no id: a join can hash that.
left join named n on n.period = s.period and not s.all_models and s.visibility_count = 0
  and coalesce(n.prompt_id, '') = coalesce(s.prompt_id, '') and coalesce(n.model_id, '') = coalesce(s.model_id, '')
where period_unit = 'week'
union all
select project, period_unit, period, case when all_models then 'same' else 'same_model' end, brand_id, null, model_id,
  sum(visibility_count), sum(answers), sum(sentiment_points), sum(sentiment_count), sum(previous_visibility_count),
  sum(previous_answers), sum(previous_sentiment_points), sum(previous_sentiment_count), null, null
from sums where answers > 0 and previous_answers > 0 and (period_unit = 'week' or all_models)
group by period, all_models, brand_id, model_id
$$;

create or replace function {ops}.sums_of(project text, period_unit text, period_start date) returns setof {ops}.prompt_sums
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as 'select * from {ops}.sums_of_periods(project, period_unit, array[period_start])';
