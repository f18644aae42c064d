  -- How much of this period and of the one before was read.
  coalesce(k.days, 0) as days,
  coalesce(k.is_complete, false) as is_complete,
  coalesce(k.is_provisional, true) as is_provisional,
  case when s.previous_answers is not null then coalesce(k.is_complete and k.previous_is_complete, false) end as comparison_is_complete
