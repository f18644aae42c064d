-- The calendar reaches a week beyond today and the last day of interest, and back to the first.
-- $1 the first day of interest, $2 the last; either may be null.
insert into {ops}.calendar
select day, day - (extract(isodow from day)::integer - 1), date_trunc('month', day::timestamp)::date,
  date_trunc('quarter', day::timestamp)::date, extract(year from day)::integer, extract(isodow from day)::integer,
  to_char(day, 'IYYY-"W"IW')
from (select min(date) as first, max(date) as last from {ops}.calendar) known
cross join lateral (
  select known.last + number as day from generate_series(1, greatest(current_date, $2::date) + 7 - known.last) number
  union all
  select known.first - number from generate_series(1, known.first - coalesce($1::date, known.first)) number
) missing
