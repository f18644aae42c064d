-- What the views need to be honest about noise, to say how final a number is, and to answer at once.

-- A share is k of n answers. Its 95 % interval is Wilson's, with z = 1.96: it stays between 0 and 1, and is right where k is 0
-- or n. Rounding must not leave 0 and 1 either, and a count above its total must not end a query, hence greatest and least.
-- All of these are plain expressions, so that the planner puts them into the query.

create function {schema}.wilson_low(k double precision, n double precision) returns double precision
language sql immutable parallel safe
return case when n > 0 and k is not null then
  greatest(0, (k + 1.9208 - 1.96 * sqrt(greatest(0, k * (n - k) / n + 0.9604))) / (n + 3.8416)) end;

create function {schema}.wilson_high(k double precision, n double precision) returns double precision
language sql immutable parallel safe
return case when n > 0 and k is not null then
  least(1, (k + 1.9208 + 1.96 * sqrt(greatest(0, k * (n - k) / n + 0.9604))) / (n + 3.8416)) end;

-- A change from one share to another has Newcombe's interval, made of the two of Wilson.

create function {schema}.change_low(
  k double precision, n double precision, previous_k double precision, previous_n double precision
) returns double precision
language sql immutable parallel safe
return k / nullif(n, 0) - previous_k / nullif(previous_n, 0) - sqrt(
  (k / nullif(n, 0) - {schema}.wilson_low(k, n)) ^ 2
  + ({schema}.wilson_high(previous_k, previous_n) - previous_k / nullif(previous_n, 0)) ^ 2);

create function {schema}.change_high(
  k double precision, n double precision, previous_k double precision, previous_n double precision
) returns double precision
language sql immutable parallel safe
return k / nullif(n, 0) - previous_k / nullif(previous_n, 0) + sqrt(
  ({schema}.wilson_high(k, n) - k / nullif(n, 0)) ^ 2
  + (previous_k / nullif(previous_n, 0) - {schema}.wilson_low(previous_k, previous_n)) ^ 2);

-- Small samples come first: what few answers say is not to be called a change, however large it looks.
create function {schema}.verdict(
  k double precision, n double precision, previous_k double precision, previous_n double precision
) returns text
language sql immutable parallel safe
return case
  when previous_n is null then 'new'
  when n is null or n < 30 or previous_n < 30 then 'too_few'
  when {schema}.change_low(k, n, previous_k, previous_n) > 0 then 'up'
  when {schema}.change_high(k, n, previous_k, previous_n) < 0 then 'down'
  else 'no_clear_change' end;

-- The change over the half of its interval that lies towards zero: above 1 the interval is clear of zero.
create function {schema}.clarity(
  k double precision, n double precision, previous_k double precision, previous_n double precision
) returns double precision
language sql immutable parallel safe
return case
  when k / nullif(n, 0) > previous_k / nullif(previous_n, 0) then (k / n - previous_k / previous_n)
    / (k / n - previous_k / previous_n - {schema}.change_low(k, n, previous_k, previous_n))
  when k / nullif(n, 0) < previous_k / nullif(previous_n, 0) then (k / n - previous_k / previous_n)
    / (k / n - previous_k / previous_n - {schema}.change_high(k, n, previous_k, previous_n))
  when k / nullif(n, 0) = previous_k / nullif(previous_n, 0) then 0 end;

-- With what a day is compared to tell whether it is unusual.
create function {schema}.weekdays_before(day date) returns date[]
language sql immutable parallel safe
return array[day - 7, day - 14, day - 21, day - 28, day - 35, day - 42, day - 49, day - 56];

comment on function {schema}.wilson_low(double precision, double precision) is
  'Lower end of the 95 % Wilson interval of k out of n; null without answers.';
comment on function {schema}.wilson_high(double precision, double precision) is
  'Upper end of the 95 % Wilson interval of k out of n; null without answers.';
comment on function {schema}.change_low(double precision, double precision, double precision, double precision) is
  'Lower end of the 95 % Newcombe interval of the change to k out of n from previous_k out of previous_n.';
comment on function {schema}.change_high(double precision, double precision, double precision, double precision) is
  'Upper end of the 95 % Newcombe interval of the change to k out of n from previous_k out of previous_n.';
comment on function {schema}.verdict(double precision, double precision, double precision, double precision) is
  'A change in words: new, too_few (a sample under 30 answers), up, down, or no_clear_change.';
comment on function {schema}.clarity(double precision, double precision, double precision, double precision) is
  'How clear a change is: the change over the half of its interval that lies towards zero. Above 1 it is clear.';
comment on function {schema}.weekdays_before(date) is 'The same weekday of the eight weeks before a day.';

-- What the configuration asks of each stream, as the last run had it: views have no other way to know.
create table {ops}.stream_settings (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  -- False for lists, which are read whole.
  by_day boolean not null,
  lookback_days integer not null,
  first_day date not null,
  -- Null: today.
  last_day date,
  max_staleness interval not null,
  -- How many days back changes were found lately; null where none were.
  restated_days integer,
  -- A day that was read at this age or later is not expected to change any more.
  final_after_days integer not null generated always as (greatest(1, lookback_days, restated_days)) stored,
  primary key (project_id, stream)
);

-- Sums of the report by prompt and model, which is too large to be summed whenever a BI tool lists the values of a column.
-- Rows that change open the weeks and months they are in; the views sum open ones on the fly, and each run sums them for good.

create table {ops}.open_periods (
  project_id text collate "C" not null,
  -- The table whose rows changed. Loads of one stream follow each other; with streams apart they never wait for one another here.
  stream text collate "C" not null,
  unit text collate "C" not null check (unit in ('week', 'month')),
  start date not null,
  primary key (project_id, stream, unit, start)
);

create table {ops}.prompt_sums (
  project_id text collate "C" not null,
  unit text collate "C" not null,
  start date not null,
  -- prompt_model, prompt (all models), and of prompts that the period before has too: same_model, same (all models).
  grain text collate "C" not null,
  brand_id text collate "C" not null,
  prompt_id text collate "C",
  model_id text collate "C",
  visibility_count double precision,
  answers double precision,
  sentiment_points double precision,
  sentiment_count double precision,
  previous_visibility_count double precision,
  previous_answers double precision,
  previous_sentiment_points double precision,
  previous_sentiment_count double precision,
  -- Where no answer of the prompt and model names the brand: the brands that are named, and how visible each is.
  named_ids text[] collate "C",
  named_visibility double precision[]
);

create index prompt_sums_by_period on {ops}.prompt_sums (project_id, unit, grain, start);

create table {ops}.prompt_days (
  project_id text collate "C" not null,
  week date not null,
  date date not null,
  prompt_id text collate "C",
  model_id text collate "C",
  chats integer not null,
  answers double precision not null
);

create index prompt_days_by_date on {ops}.prompt_days (project_id, date);

-- Sums and counts of one period, from the report by prompt and model. Made anew once it is configured: its table has the name
-- that the configuration gives it. With the rights of their owner, as views have, and apart from them: planning the sums anew for
-- every query would take longer than most queries do.

create function {ops}.sums_of(project text, period_unit text, period_start date) returns setof {ops}.prompt_sums
language sql stable parallel safe security definer set search_path = pg_catalog
as 'select * from {ops}.prompt_sums where false';

create function {ops}.counts_of(project text, monday date) returns setof {ops}.prompt_days
language sql stable parallel safe security definer set search_path = pg_catalog
as 'select * from {ops}.prompt_days where false';

-- With the project's name, so that a filter on it reaches the index.
create view {ops}.prompt_sums_now as
select s.*, coalesce(p.name, p.project_id) as project
from {schema}.projects p
join {ops}.prompt_sums s on s.project_id = p.project_id
where not exists (
  select from {ops}.open_periods o where o.project_id = s.project_id and o.unit = s.unit and o.start = s.start
)
union all
select p.project_id, o.unit, o.start, g.grain, g.brand_id, g.prompt_id, g.model_id,
  g.visibility_count, g.answers, g.sentiment_points, g.sentiment_count,
  g.previous_visibility_count, g.previous_answers, g.previous_sentiment_points, g.previous_sentiment_count,
  g.named_ids, g.named_visibility, coalesce(p.name, p.project_id)
from {schema}.projects p
join (select distinct project_id, unit, start from {ops}.open_periods) o on o.project_id = p.project_id
cross join lateral {ops}.sums_of(o.project_id, o.unit, o.start) g;

create view {ops}.prompt_days_now as
select d.*, coalesce(p.name, p.project_id) as project
from {schema}.projects p
join {ops}.prompt_days d on d.project_id = p.project_id
where not exists (
  select from {ops}.open_periods o where o.project_id = d.project_id and o.unit = 'week' and o.start = d.week
)
union all
select p.project_id, o.start, g.date, g.prompt_id, g.model_id, g.chats, g.answers, coalesce(p.name, p.project_id)
from {schema}.projects p
join (select distinct project_id, start from {ops}.open_periods where unit = 'week') o on o.project_id = p.project_id
cross join lateral {ops}.counts_of(o.project_id, o.start) g;

-- Runs list their projects before they load anything; whatever an old one loaded is listed too.
insert into {schema}.projects (project_id) select distinct project_id from {ops}.coverage_months on conflict do nothing;

-- Every day that was read, and how far it can be relied on.
create view {ops}.days_read as
select
  c.project_id,
  coalesce(p.name, p.project_id) as project,
  c.stream,
  c.date,
  date_trunc('week', c.date::timestamp)::date as week,
  date_trunc('month', c.date::timestamp)::date as month,
  c.rows,
  c.read_at,
  c.state,
  -- Read after it was over, with no row rejected and no answer held.
  c.state in ('read', 'stale') and (c.read_at at time zone 'UTC')::date > c.date as is_whole,
  -- Last read too early to be final, or known to be read again.
  c.state in ('held', 'stale')
    or (c.read_at at time zone 'UTC')::date - c.date < coalesce(t.final_after_days, 1) as is_provisional
from {schema}.projects p
join {ops}.coverage c on c.project_id = p.project_id
left join {ops}.stream_settings t on t.project_id = c.project_id and t.stream = c.stream;

-- The weeks and months that a day counts in: its own, and the next, which is compared with it.
create function {ops}.periods_of(date date) returns table (unit text, start date)
language sql immutable parallel safe
begin atomic
  select 'week', date - (extract(isodow from date)::integer - 1)
  union all select 'week', date - (extract(isodow from date)::integer - 8)
  union all select 'month', date_trunc('month', date::timestamp)::date
  union all select 'month', (date_trunc('month', date::timestamp) + interval '1 month')::date;
end;

-- With the rights of its owner: whoever may change rows of a report need not be able to write here.
create function {ops}.open_periods() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
begin
  if tg_op = 'TRUNCATE' then
    insert into {ops}.open_periods
    select project_id, tg_table_name, unit, start from {ops}.prompt_sums group by 1, 3, 4
    union
    select project_id, tg_table_name, 'week', week from {ops}.prompt_days
    on conflict do nothing;
  else
    insert into {ops}.open_periods
    select d.project_id, tg_table_name, p.unit, p.start
    from (select distinct project_id, date from changed) d cross join lateral {ops}.periods_of(d.date) p
    group by 1, 3, 4
    on conflict do nothing;
  end if;
  return null;
end $$;

-- Without these the planner takes a week and the one before it for a third of the calendar, and reads whole tables.
create statistics {schema}.calendar_next_week on (week + 7) from {schema}.calendar;
create statistics {schema}.calendar_next_month on (((month + interval '1 month')::date)) from {schema}.calendar;
analyze {schema}.calendar;
