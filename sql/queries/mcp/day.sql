-- The visibility of a brand on a day, and what is usual.
select d.visibility as value, d.visibility_low as low, d.visibility_high as high, d.visibility_count as count, d.answers as sample,
  d.usual_visibility as usual, d.is_unusual, a.answers, a.usual_answers, a.is_unusual as are_unusual
from {schema}.visibility_daily d
left join {schema}.answers_daily a on a.project_id = d.project_id and a.date = d.date
where d.project_id = {project} and d.brand_id = {brand} and d.date = {day}
