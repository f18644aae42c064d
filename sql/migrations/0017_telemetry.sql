-- What processes that end leave for those that come after: counters, and what people were told when.

-- Counters over all processes that end. One that counts from nothing would stand at 1 after each run, and no rate would
-- see the second one.
create table {ops}.metric_totals (
  -- As in the text that Prometheus reads: name{label="value"}.
  sample text collate "C" primary key,
  value double precision not null
) with (fillfactor = 50);

-- The last message of a condition. More of the same is gathered for a while after it.
alter table {ops}.alerts add column told_at timestamptz;
update {ops}.alerts set told_at = raised_at;
-- False where some of it came while more of the same is gathered.
alter table {ops}.alerts add column is_told boolean not null default true;
-- Over, but remembered, so that what comes and goes is not told each time.
alter table {ops}.alerts add column cleared_at timestamptz;

-- Rows that left the quarantine long ago are found by this, to be removed.
create index quarantine_resolved on {ops}.quarantine (resolved_at) where resolved_at is not null;
