-- How fresh and how whole each stream is, those that need attention first.
select *, not is_stale and coalesce(missing_days, 0) + held_days + unreconciled_days + quarantined_rows = 0 as is_fine
from {schema}.freshness
where project_id = {project}
order by is_fine, stream
