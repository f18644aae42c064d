-- One row for each day, for metrics over time.
select generate_series(date '2015-01-01', current_date + 7, interval '1 day')::date as date_day
