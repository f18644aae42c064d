-- What the machinery remembers: runs, coverage, quarantine, drift and restatements.

-- A number for each read, taken before the request is sent: a later number is a newer answer, whichever machine asked.
create sequence {ops}.read_order;

create table {ops}.runs (
  run_id bigint generated always as identity primary key,
  command text not null,
  started_at timestamptz not null default now(),
  ended_at timestamptz,
  outcome text check (outcome in ('complete', 'partial', 'failed', 'interrupted')),
  host text not null,
  pid integer not null,
  version text not null,
  source text not null,
  summary jsonb,
  error text
);

-- One row for each day of a dated stream; for a list, one for each day on which it was read.
create table {ops}.coverage (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  date date not null,
  rows integer not null,
  read_at timestamptz not null,
  run_id bigint not null,
  state text not null check (state in ('read', 'quarantined', 'held', 'stale')),
  read_order bigint not null,
  -- Since when the days are held: the answer would have deleted more than half of the rows.
  held_since timestamptz,
  primary key (project_id, stream, date)
) with (fillfactor = 80);

-- Days that need another look are few among many.
create index coverage_unsettled on {ops}.coverage (project_id, stream, date) where state <> 'read';

create table {ops}.quarantine (
  quarantine_id bigint generated always as identity primary key,
  project_id text collate "C" not null,
  stream text collate "C" not null,
  reason text not null,
  -- json, not jsonb: it keeps a rejected row to the letter, escapes that jsonb refuses included.
  raw json not null,
  fingerprint text collate "C" not null,
  from_date date,
  to_date date,
  run_id bigint not null,
  first_seen_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  times_seen integer not null default 1,
  resolved_at timestamptz,
  resolution text,
  unique (project_id, stream, fingerprint)
);

create index quarantine_open on {ops}.quarantine (project_id, stream, from_date) where resolved_at is null;

create table {ops}.drift (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  kind text not null,
  name text not null,
  example text not null,
  first_seen_at timestamptz not null default now(),
  run_id bigint not null,
  primary key (project_id, stream, kind, name)
);

-- What a re-read changed in days that were read before.
create table {ops}.restatements (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  date date not null,
  rows_inserted integer not null,
  rows_updated integer not null,
  rows_deleted integer not null,
  seen_at timestamptz not null default now(),
  run_id bigint not null
);

create index restatements_by_day on {ops}.restatements (project_id, stream, date);

-- The breakdown of each report table: a changed one under the same name would mix two kinds of rows.
create table {ops}.reports (
  name text collate "C" primary key,
  dimensions text[] not null,
  filters jsonb not null,
  created_at timestamptz not null default now()
);
