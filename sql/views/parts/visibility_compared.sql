  -- The visibility of this period and of the one before.
  s.visibility_count / nullif(s.answers, 0) as visibility,
  s.visibility_count,
  s.answers,
  s.previous_visibility_count / nullif(s.previous_answers, 0) as previous_visibility,
  s.previous_answers,
  s.visibility_count / nullif(s.answers, 0) - s.previous_visibility_count / nullif(s.previous_answers, 0) as change,
