-- Days are compared with the service's own totals before they are committed. The ledger stores the result of each comparison.

alter table {ops}.coverage
  add column reconciled_at timestamptz,
  add column counts_digest bigint,
  add column answers_digest bigint,
  add column difference text;
comment on column {ops}.coverage.reconciled_at is
  'When the day was last found to add up to the totals of the service; null if that is still to be shown.';

-- The report by date alone, as it was last read. `filters` is the JSON of the filters of a report, or an empty text.
create table {ops}.control_totals (
  project_id text collate "C" not null,
  filters text collate "C" not null,
  date date not null,
  -- {"brand id": [mention_count, visibility_count, visibility_total]}; null if a row of the day was rejected
  totals jsonb,
  answers double precision,
  counts_digest bigint,
  answers_digest bigint,
  -- Of all columns: any change of it means that the service changed the day.
  rows_digest bigint not null,
  read_at timestamptz not null,
  run_id bigint not null,
  primary key (project_id, filters, date)
) with (fillfactor = 80);

-- When the totals of the whole history were last read.
create table {ops}.history_checks (
  project_id text collate "C" primary key,
  checked_at timestamptz not null
);

-- Streams that were shown not to add up to the control totals, and the days that show it.
create table {ops}.not_additive (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  measure text not null check (measure in ('counts', 'answers')),
  evidence jsonb not null,
  decided_at timestamptz not null default now(),
  primary key (project_id, stream, measure)
);

alter table {ops}.coverage drop constraint if exists coverage_state_check;
alter table {ops}.coverage add constraint coverage_state_check
  check (state in ('read', 'quarantined', 'held', 'stale', 'unreconciled'));

alter table {ops}.coverage_months
  add column days_unreconciled integer not null default 0,
  add column days_uncompared integer not null default 0;

create or replace function {ops}.summarize_coverage() returns trigger language plpgsql as $$
begin
  if not exists (select from changed) then
    return null;
  end if;
  -- The rows are locked first: a second transaction then counts after the first one has committed.
  if tg_op <> 'DELETE' then
    insert into {ops}.coverage_months
    select distinct on (1, 2, 3) project_id, stream, date_trunc('month', date)::date, 0, date, date, 0, read_at, 0, 0, 0, 0, 0, 0
    from changed order by 1, 2, 3
    on conflict do nothing;
  end if;
  perform from {ops}.coverage_months m
  where (m.project_id, m.stream, m.month) in (select project_id, stream, date_trunc('month', date)::date from changed)
  order by m.project_id, m.stream, m.month for update;
  update {ops}.coverage_months m set
    days = s.days, first_day = s.first_day, last_day = s.last_day, rows = s.rows, last_read_at = s.last_read_at,
    days_held = s.days_held, days_quarantined = s.days_quarantined, days_stale = s.days_stale,
    days_unreconciled = s.days_unreconciled, days_uncompared = s.days_uncompared, youngest = s.youngest
  from (
    select k.project_id, k.stream, k.month, count(*) as days, min(c.date) as first_day, max(c.date) as last_day,
      sum(c.rows) as rows, max(c.read_at) as last_read_at,
      count(*) filter (where c.state = 'held') as days_held,
      count(*) filter (where c.state = 'quarantined') as days_quarantined,
      count(*) filter (where c.state = 'stale') as days_stale,
      count(*) filter (where c.state = 'unreconciled') as days_unreconciled,
      count(*) filter (where c.state = 'read' and c.reconciled_at is null) as days_uncompared,
      min((c.read_at at time zone 'UTC')::date - c.date) as youngest
    from (select distinct project_id, stream, date_trunc('month', date)::date as month from changed) k
    join {ops}.coverage c on c.project_id = k.project_id and c.stream = k.stream
      and c.date >= k.month and c.date < k.month + interval '1 month'
    group by 1, 2, 3
  ) s
  where m.project_id = s.project_id and m.stream = s.stream and m.month = s.month;
  if tg_op = 'DELETE' then
    delete from {ops}.coverage_months m
    where (m.project_id, m.stream, m.month) in (select project_id, stream, date_trunc('month', date)::date from changed)
      and not exists (
        select from {ops}.coverage c where c.project_id = m.project_id and c.stream = m.stream
          and c.date >= m.month and c.date < m.month + interval '1 month'
      );
  end if;
  return null;
end $$;

update {ops}.coverage_months m set days_uncompared = (
  select count(*) from {ops}.coverage c
  where c.project_id = m.project_id and c.stream = m.stream and c.state = 'read'
    and c.date >= m.month and c.date < m.month + interval '1 month'
);

create or replace view {ops}.days_read as
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
  c.state in ('held', 'stale', 'unreconciled')
    or (c.read_at at time zone 'UTC')::date - c.date < coalesce(t.final_after_days, 1) as is_provisional,
  c.reconciled_at is not null as is_reconciled
from {schema}.projects p
join {ops}.coverage c on c.project_id = p.project_id
left join {ops}.stream_settings t on t.project_id = c.project_id and t.stream = c.stream;

-- How many identical rows the latest answers had. `times_seen` counts the answers.
alter table {ops}.quarantine add column occurrences integer not null default 1;
