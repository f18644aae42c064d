sum(r.visibility_count) filter (where r.date >= w.week) / nullif(sum(r.visibility_total) filter (where r.date >= w.week), 0)
