-- The probability of a change at least as clear as this one if nothing changed: the complementary error function, by Abramowitz and
-- Stegun 7.1.28, whose error is below 3e-7. A change whose interval ends at zero has 0.05. The factors include 1.96 / sqrt(2).
create function {schema}.p_value(clarity double precision) returns double precision
language sql immutable parallel safe
return (1 + 0.0977382041 * abs(clarity) + 0.0812123046 * clarity ^ 2 + 0.024677645 * abs(clarity) ^ 3
  + 0.0005608114 * clarity ^ 4 + 0.0014140545 * abs(clarity) ^ 5 + 0.0003051483 * clarity ^ 6) ^ -16;

comment on function {schema}.p_value(double precision) is
  'Two-sided p-value that belongs to the clarity of a change. A change whose interval ends at zero has 0.05.';
