-- Which service this warehouse is filled from. One row: rows of two services must never mix.
create table {ops}.source (
  only_row boolean primary key default true check (only_row),
  -- An address without credentials, or "reference" for the reference service.
  address text not null,
  recorded_at timestamptz not null default now(),
  -- The address before it was moved on purpose.
  moved_from text
);

-- Warehouses of earlier versions say it in their runs.
insert into {ops}.source (address)
select case when source like 'the reference service%' then 'reference' else source end
from {ops}.runs where source <> '' order by run_id desc limit 1;

-- One run at a time for a project and stream. Rows instead of session locks: they outlive a restart of the server, and
-- they work behind a pooler that hands each transaction another connection.
create table {ops}.run_leases (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  run_id bigint not null,
  -- Runs that share the queue work beside each other; only an exclusive lease keeps all others off.
  is_shared boolean not null,
  primary key (project_id, stream, run_id)
);

-- A run renews its lease while its process is alive; one that was not renewed in time is up for others.
alter table {ops}.runs add column lease_expires_at timestamptz;
create index runs_open on {ops}.runs (run_id) where outcome is null;

-- The process of a run, by which others on the same machine see at once that it died. Empty where that cannot be told.
alter table {ops}.runs add column process text not null default '';
-- One for each attempt to lock, so that an attempt whose answer was lost is found again instead of made twice.
alter table {ops}.runs add column lock_token uuid unique;
