  -- How sure the visibility and its change are.
  {schema}.wilson_low(s.visibility_count, s.answers) as visibility_low,
  {schema}.wilson_high(s.visibility_count, s.answers) as visibility_high,
  s.answers >= 30 as enough_answers,
  s.previous_visibility_count,
  {schema}.change_low(s.visibility_count, s.answers, s.previous_visibility_count, s.previous_answers) as change_low,
  {schema}.change_high(s.visibility_count, s.answers, s.previous_visibility_count, s.previous_answers) as change_high,
  {schema}.verdict(s.visibility_count, s.answers, s.previous_visibility_count, s.previous_answers) as verdict,
