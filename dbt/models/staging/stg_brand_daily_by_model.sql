-- How each brand appears in answers, by date, model_id. Ratios: divide sums, never average them. The parts of every ratio, to be summed and then divided.
select
  project_id,
  date,
  brand_id,
  model_id,
  visibility_count,
  visibility_total as answers,
  mention_count,
  sum(mention_count) over (partition by project_id, date, model_id) as all_mentions,
  position * position_count as position_points,
  position_count,
  sentiment * sentiment_count as sentiment_points,
  sentiment_count,
  changed_at
from {{ source('visibility', 'brand_daily_by_model') }}
