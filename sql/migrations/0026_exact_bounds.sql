-- Rounding made the lower bound of 0 of n 1e-17 and the upper bound of n of n 1 - 1e-16. Both are exact now.

create or replace function {schema}.wilson_low(k double precision, n double precision) returns double precision
language sql immutable parallel safe
return case when n > 0 and k <= 0 then 0 when n > 0 and k is not null then
  greatest(0, (k + 1.9208 - 1.96 * sqrt(greatest(0, k * (n - k) / n + 0.9604))) / (n + 3.8416)) end;

create or replace function {schema}.wilson_high(k double precision, n double precision) returns double precision
language sql immutable parallel safe
return case when n > 0 and k >= n then 1 when n > 0 and k is not null then
  least(1, (k + 1.9208 + 1.96 * sqrt(greatest(0, k * (n - k) / n + 0.9604))) / (n + 3.8416)) end;

comment on function {schema}.wilson_low(double precision, double precision) is
  'Lower end of the 95 % Wilson interval of k out of n; null without answers.';
comment on function {schema}.wilson_high(double precision, double precision) is
  'Upper end of the 95 % Wilson interval of k out of n; null without answers.';
