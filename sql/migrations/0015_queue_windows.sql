-- The queue on the public interface of pg-boss alone: what belongs to a run is in a table of our own, and the request
-- budget is one state that every process changes by the same rules.

drop function {ops}.take_request(text, integer);
drop function {ops}.learn_answer(text, bigint, integer, integer, double precision, double precision);
drop table {ops}.budget_requests;
drop table {ops}.budgets;
drop table {ops}.window_results;

-- One row for each project. Written only where the version is still the one that was read. Not logged: after a crash of
-- the server the next answers teach it again.
create unlogged table {ops}.request_budgets (
  project_id text collate "C" primary key,
  state jsonb not null,
  version bigint not null,
  -- What was configured where it was last used, for whoever shows it.
  per_minute integer not null
) with (fillfactor = 50);

-- The windows that a run has put into the queue, until it has taken their results.
create table {ops}.run_windows (
  -- Also the id of the job.
  window_id uuid primary key,
  run_id bigint not null,
  -- The queue of pg-boss that the job is in.
  queue text not null,
  project_id text collate "C" not null,
  stream text collate "C" not null,
  -- Null for a list.
  from_date date,
  to_date date,
  priority integer not null,
  -- What a worker needs to know besides: the page limit, the days of the lookback, whether deletions are let through.
  request jsonb not null,
  state text not null default 'queued' check (state in ('queued', 'taken', 'done')),
  worker_id uuid,
  -- Attempts that failed by the window's own fault, and attempts whose worker vanished.
  failures integer not null default 0,
  losses integer not null default 0,
  queued_at timestamptz not null default now(),
  taken_at timestamptz,
  -- When the worker last got on with it, and by when it must get on again.
  progress_at timestamptz,
  stalls_at timestamptz,
  result jsonb
) with (fillfactor = 70);
create index on {ops}.run_windows (run_id, state);
create index on {ops}.run_windows (worker_id) where state = 'taken';

-- Windows that were given up after several attempts, until their days are read.
create table {ops}.dead_windows (
  dead_id bigint generated always as identity primary key,
  run_id bigint not null,
  project_id text collate "C" not null,
  stream text collate "C" not null,
  from_date date,
  to_date date,
  reason text not null,
  failed_at timestamptz not null default now()
);

truncate {ops}.workers;
alter table {ops}.workers
  -- Its name is made of what the configuration means: workers of another configuration are on another queue.
  add queue text not null,
  add process text not null,
  add state text not null default 'working' check (state in ('working', 'backing off')),
  -- Why it backs off.
  add reason text,
  drop column projects,
  drop column streams;
