-- What processes that share the work tell each other: who is about, what became of each window, and the request budget.

-- Processes that take windows from the queue. Whoever was not seen for a while is gone.
create unlogged table {ops}.workers (
  worker_id uuid primary key,
  host text not null,
  pid integer not null,
  version text not null,
  concurrency integer not null,
  started_at timestamptz not null default now(),
  seen_at timestamptz not null default now(),
  busy integer not null default 0,
  done bigint not null default 0
);

-- Results on their way to the run that asked; written with the rows in one transaction, and gone once they were read.
create table {ops}.window_results (
  result_id bigint generated always as identity primary key,
  run_id bigint not null,
  project_id text collate "C" not null,
  stream text collate "C" not null,
  -- Null for a list.
  from_date date,
  to_date date,
  result jsonb not null,
  created_at timestamptz not null default now()
);
create index on {ops}.window_results (run_id, result_id);

-- One row for each project: what is left of its requests, as the service last told. Not logged: after a crash of the
-- server the next answers teach it again.
create unlogged table {ops}.budgets (
  project_id text collate "C" primary key,
  per_minute integer not null,
  -- False while the number is the configured one.
  told boolean not null default false,
  remaining integer,
  resets_at timestamptz,
  paused_until timestamptz,
  counted_from timestamptz not null default '-infinity',
  last_told integer
);

-- Requests of the last minutes.
create unlogged table {ops}.budget_requests (
  request_id bigint generated always as identity primary key,
  project_id text collate "C" not null,
  sent_at timestamptz not null,
  answered boolean not null default false
) with (fillfactor = 80);
create index on {ops}.budget_requests (project_id, sent_at);

-- Leave to send one request, or how long to wait before asking again.
create function {ops}.take_request(
  project text, guess integer,
  out request bigint, out wait_ms double precision, out per_minute integer, out remaining integer
) language plpgsql as $$
declare
  known {ops}.budgets;
  at timestamptz;
  sent bigint;
  oldest timestamptz;
begin
  insert into {ops}.budgets (project_id, per_minute) values (project, guess) on conflict do nothing;
  select * into known from {ops}.budgets b where b.project_id = project for update;
  at := clock_timestamp();
  if not known.told and known.per_minute <> guess then
    known.per_minute := guess;
    update {ops}.budgets b set per_minute = guess where b.project_id = project;
  end if;
  per_minute := known.per_minute;
  if known.remaining is not null and at >= known.resets_at then
    -- A new period began, of whatever length the service keeps: the count of the last minute is void.
    known.remaining := null;
    known.counted_from := at;
    update {ops}.budgets b set remaining = null, counted_from = at where b.project_id = project;
  end if;
  remaining := known.remaining;
  if known.paused_until > at then
    wait_ms := extract(epoch from known.paused_until - at) * 1000;
    return;
  end if;
  if known.remaining <= 0 then
    wait_ms := extract(epoch from known.resets_at - at) * 1000;
    return;
  end if;
  if known.remaining is null then
    select count(*), min(r.sent_at) into sent, oldest from {ops}.budget_requests r
    where r.project_id = project and r.sent_at > at - interval '1 minute'
      and (r.sent_at > known.counted_from or not r.answered);
    if sent >= known.per_minute then
      wait_ms := extract(epoch from oldest + interval '1 minute' - at) * 1000;
      -- A service that sends headers tells with its next answer how much is left.
      if known.last_told is not null and exists (
        select from {ops}.budget_requests r
        where r.project_id = project and not r.answered and r.sent_at > at - interval '2 minutes'
      ) then
        wait_ms := least(wait_ms, 25);
      end if;
      return;
    end if;
  else
    remaining := known.remaining - 1;
    update {ops}.budgets b set remaining = b.remaining - 1 where b.project_id = project;
  end if;
  insert into {ops}.budget_requests (project_id, sent_at) values (project, at) returning request_id into request;
  if request % 64 = 0 then
    delete from {ops}.budget_requests r where r.project_id = project and r.sent_at < at - interval '5 minutes';
  end if;
  wait_ms := 0;
end $$;

-- What an answer told of the budget; without an answer, only that the request is no longer under way.
create function {ops}.learn_answer(
  project text, request bigint, told_limit integer, told_left integer, reset_ms double precision, pause_ms double precision
) returns void language plpgsql as $$
declare
  known {ops}.budgets;
  at timestamptz;
  resets timestamptz;
  under_way integer;
  same_period boolean;
begin
  select * into known from {ops}.budgets b where b.project_id = project for update;
  at := clock_timestamp();
  update {ops}.budget_requests r set answered = true where r.request_id = request;
  if told_left is not null and reset_ms is not null then
    resets := at + reset_ms * interval '1 millisecond';
    -- Services tell the end of a period in whole seconds. What belongs to an earlier period teaches nothing.
    same_period := known.remaining is not null and abs(extract(epoch from resets - known.resets_at)) < 1.2;
    if same_period and told_left > known.last_told then
      -- Counted before what was told last, but under way when that was learned: it was subtracted once too often.
      known.remaining := known.remaining + 1;
    elsif same_period or known.remaining is null or resets > known.resets_at then
      -- Requests under way may not have been counted yet when the service wrote this.
      select count(*) into under_way from {ops}.budget_requests r
      where r.project_id = project and not r.answered and r.sent_at > at - interval '2 minutes';
      known.remaining := told_left - under_way;
      known.resets_at := resets;
      known.last_told := told_left;
    end if;
  end if;
  if pause_ms is not null then
    known.paused_until := greatest(known.paused_until, at + pause_ms * interval '1 millisecond');
  end if;
  update {ops}.budgets b set
    per_minute = coalesce(told_limit, known.per_minute), told = known.told or told_limit is not null, remaining = known.remaining, resets_at = known.resets_at,
    paused_until = known.paused_until, last_told = known.last_told
  where b.project_id = project;
end $$;
