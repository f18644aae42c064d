-- What is usual for a brand on a day, by the same weekday of the eight weeks before: the views of days show it beside each
-- value. Working it out for every row that is shown took most of their time. Triggers on the report by day keep it: a few days
-- that change are worked out in the same transaction, many at the end of the run.

create table {ops}.usual_days (
  project_id text collate "C" not null,
  date date not null,
  brand_id text collate "C" not null,
  -- Medians, where at least five of the eight days have a value, and the medians of the distances from them.
  usual_visibility double precision,
  visibility_deviation double precision,
  usual_share_of_voice double precision,
  share_of_voice_deviation double precision,
  primary key (project_id, date, brand_id)
    include (usual_visibility, visibility_deviation, usual_share_of_voice, share_of_voice_deviation)
);

create table {ops}.usual_projects (
  project_id text collate "C" primary key,
  -- Too much changed at once: what is usual is worked out at the end of the next run, and is null until then.
  is_due boolean not null default false,
  -- The first day of the report. If it is later now, months were dropped, which fires no trigger.
  first_day date
);

-- Made anew once the report by day is configured: its table has the name that the configuration gives it.
create function {ops}.usual_of(project text, days date[]) returns setof {ops}.usual_days
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as 'select * from {ops}.usual_days where false';

-- Those who change rows of one project wait for each other, so that each sees what the others changed.
create function {ops}.lock_usual(project text) returns void
language sql set search_path = pg_catalog, pg_temp
begin atomic
  select pg_advisory_xact_lock(hashtextextended('visibility-sync, usual days of ' || project, 0));
end;

-- Only differences are written. To be called under the lock, which is taken by a statement before: statements of one SQL
-- function may share a snapshot, and would not see what was committed while they waited.
create function {ops}.renew_usual(project text, days date[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp
begin atomic
  with fresh as materialized (
    select * from {ops}.usual_of(project, days)
  ), gone as (
    delete from {ops}.usual_days u
    where u.project_id = project and u.date = any(days)
      and not exists (select from fresh f where f.date = u.date and f.brand_id = u.brand_id)
  )
  insert into {ops}.usual_days as u select * from fresh order by date, brand_id
  on conflict (project_id, date, brand_id) do update set
    usual_visibility = excluded.usual_visibility,
    visibility_deviation = excluded.visibility_deviation,
    usual_share_of_voice = excluded.usual_share_of_voice,
    share_of_voice_deviation = excluded.share_of_voice_deviation
  where (u.usual_visibility, u.visibility_deviation, u.usual_share_of_voice, u.share_of_voice_deviation) is distinct from
    (excluded.usual_visibility, excluded.visibility_deviation, excluded.usual_share_of_voice, excluded.share_of_voice_deviation);
end;

-- A day that changes is compared with others, and others up to eight weeks later with it. A few days are renewed at once; many, as
-- in a first load, are left to the end of the run. It runs with the rights of its owner: a role that changes rows of a report needs no
-- rights on these tables.
create function {ops}.follow_days() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  projects text[];
  dates date[];
  changes record;
begin
  if tg_op = 'TRUNCATE' then
    update {ops}.usual_projects set is_due = true;
    delete from {ops}.usual_days;
    return null;
  elsif tg_op = 'UPDATE' then
    -- A row may have moved to another day.
    select array_agg(d.project_id), array_agg(d.date) into projects, dates
    from (select project_id, date from before union select project_id, date from changed) d;
  else
    select array_agg(d.project_id), array_agg(d.date) into projects, dates
    from (select distinct project_id, date from changed) d;
  end if;
  for changes in
    select d.project_id, array_agg(distinct d.date + 7 * week) as days, count(distinct d.date) as changed_days
    from unnest(projects, dates) d(project_id, date) cross join generate_series(0, 8) week
    group by 1 order by 1
  loop
    perform {ops}.lock_usual(changes.project_id);
    if changes.changed_days <= 14 then
      perform {ops}.renew_usual(changes.project_id, changes.days);
    else
      delete from {ops}.usual_days where project_id = changes.project_id and date = any(changes.days);
      insert into {ops}.usual_projects values (changes.project_id, true)
      on conflict (project_id) do update set is_due = true;
    end if;
  end loop;
  return null;
end $$;

revoke all on function {ops}.usual_of(text, date[]), {ops}.lock_usual(text), {ops}.renew_usual(text, date[]), {ops}.follow_days()
from public;

-- Names of types in these are looked up among temporary ones last.
alter function {ops}.open_periods() set search_path = pg_catalog, pg_temp;
alter function {ops}.keep_brand_history() set search_path = pg_catalog, pg_temp;

-- The two halves of prompt_sums_now: sums that are kept, which can be looked up row by row, and sums of open periods, which are
-- worked out once for a query.
create view {ops}.kept_sums as
select s.* from {ops}.prompt_sums s
where not exists (
  select from {ops}.open_periods o where o.project_id = s.project_id and o.unit = s.unit and o.start = s.start
);

create index prompt_sums_by_brand on {ops}.prompt_sums (project_id, unit, start, brand_id) where grain in ('same', 'same_model');

-- With the columns of the period, not of its sums: a filter on them is applied before anything is summed.
create view {ops}.open_sums as
select p.project_id, o.unit, o.start, g.grain, g.brand_id, g.prompt_id, g.model_id,
  g.visibility_count, g.answers, g.sentiment_points, g.sentiment_count,
  g.previous_visibility_count, g.previous_answers, g.previous_sentiment_points, g.previous_sentiment_count,
  g.named_ids, g.named_visibility, coalesce(p.name, p.project_id) as project
from {schema}.projects p
join (select distinct project_id, unit, start from {ops}.open_periods) o on o.project_id = p.project_id
cross join lateral {ops}.sums_of(o.project_id, o.unit, o.start) g;

-- A view of some weeks or months looks up their days, and those of the periods before, instead of reading the whole calendar.
create index calendar_by_week on {schema}.calendar (week);
create index calendar_by_next_week on {schema}.calendar ((week + 7));
create index calendar_by_month on {schema}.calendar (month);
create index calendar_by_next_month on {schema}.calendar (((month + interval '1 month')::date));
