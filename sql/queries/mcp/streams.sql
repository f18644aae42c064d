-- How fresh and how whole each stream is, in words as well, those that need attention first.
select *, problems = '' as is_fine,
  concat(coalesce(nullif(problems, ''), 'fine'), '; ',
    coalesce('last read ' || to_char(last_read_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC', 'never read')) as state
from (
  select *, concat_ws(', ',
    case when is_stale then 'stale' end,
    'days missing: ' || nullif(missing_days, 0),
    'days held for review: ' || nullif(held_days, 0),
    'days unreconciled: ' || nullif(unreconciled_days, 0),
    'changed days to be read again: ' || nullif(stale_days, 0),
    'rows in quarantine: ' || nullif(quarantined_rows, 0)) as problems
  from {schema}.freshness
  where project_id = {project}
) f
order by is_fine, stream
