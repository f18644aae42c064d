-- Each week is read with the one before it, by the index: joining the days of both to the calendar doubles all rows.
cross join (select distinct week from {ops}.calendar) w
