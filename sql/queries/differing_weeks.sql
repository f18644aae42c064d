-- The days of weeks whose sums or counts differ from the rows of the report and of chats.
-- Needs the report by: date, prompt_id, model_id
select project_id, week + number as date
from (
  select project_id, week
  from (
    select project_id, date - (extract(isodow from date)::integer - 1) as week, visibility_count as seen, visibility_total as answers,
      sentiment * sentiment_count as points, 0 as chats
    from {report date prompt_id model_id}
    union all
    select project_id, date - (extract(isodow from date)::integer - 1), 0, 0, 0, 1 from {schema}.chats
    union all
    select project_id, start, -visibility_count, -answers, -sentiment_points, 0
    from {ops}.prompt_sums where unit = 'week' and grain = 'prompt_model'
    union all
    select project_id, week, 0, 0, 0, -chats from {ops}.prompt_days
  ) r
  group by project_id, week
  having sum(seen) <> 0 or sum(answers) <> 0 or abs(sum(points)) > 1e-9 * sum(abs(points)) or sum(chats) <> 0
) w cross join generate_series(0, 6) number
