-- Sums of several periods at once: each row is read once, and not again for the period after.
-- Made anew, as sums_of, once the report by prompt and model is configured.

create function {ops}.sums_of_periods(project text, period_unit text, starts date[]) returns setof {ops}.prompt_sums
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as 'select * from {ops}.prompt_sums where false';
