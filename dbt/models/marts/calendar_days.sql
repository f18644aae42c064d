-- One row for each day, for metrics over time.
select date as date_day
from {{ source('visibility', 'calendar') }}
