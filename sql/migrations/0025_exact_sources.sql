-- The aliases and the pattern by which the service finds a brand. If they or its name change, the service computes the brand's past
-- again, so the control totals of all days are read by the next run. first_seen_on is the first day with rows of the brand.

alter table {schema}.brands add aliases jsonb, add regex text, add first_seen_on date;
alter table {schema}.brand_history add aliases jsonb, add regex text;

create or replace function {ops}.keep_brand_history() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
declare
  changed_at timestamptz;
  known {schema}.brand_history;
begin
  select * into known from {schema}.brand_history h
  where h.project_id = new.project_id and h.brand_id = new.brand_id and h.valid_to is null;
  if known.project_id is not null and (known.name, known.aliases, known.regex) is not distinct from (new.name, new.aliases, new.regex)
  then return null; end if;
  -- The time at which it is seen: transactions that began earlier may come later.
  update {schema}.brand_history h set valid_to = greatest(clock_timestamp(), h.valid_from + interval '1 microsecond')
  where h.project_id = new.project_id and h.brand_id = new.brand_id and h.valid_to is null
  returning h.valid_to into changed_at;
  insert into {schema}.brand_history (project_id, brand_id, name, aliases, regex, valid_from)
  values (new.project_id, new.brand_id, new.name, new.aliases, new.regex, coalesce(changed_at, clock_timestamp()));
  -- What is seen for the first time is no change.
  if known.name <> new.name or (known.aliases is not null or known.regex is not null)
    and (known.aliases, known.regex) is distinct from (new.aliases, new.regex)
  then delete from {ops}.history_checks where project_id = new.project_id; end if;
  return null;
end $$;

drop trigger keep_changed_name on {schema}.brands;
create trigger keep_changed_name after update on {schema}.brands for each row
  when ((old.name, old.aliases, old.regex) is distinct from (new.name, new.aliases, new.regex))
  execute function {ops}.keep_brand_history();

-- A change of a brand in the week before, after which the service computes history again.
alter table {ops}.restatements add cause text;

-- The first release had this table without the column.
alter table {ops}.alerts add column if not exists members text[] not null default '{}';

-- A page under its different addresses: without scheme, "www.", trailing slash, fragment and parameters for tracking.
create function {schema}.url_key(url text) returns text
language sql immutable parallel safe
return regexp_replace(regexp_replace(regexp_replace(regexp_replace(
    regexp_replace(lower(substring(url from '^(?:[A-Za-z][A-Za-z0-9+.-]*://)?([^/?#]*)')), '^(?:[^@]*@)?(?:www\.)?', '')
      || coalesce(substring(url from '^(?:[A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*([^#]*)'), ''),
    '([?&])(?:(?:utm_[^=&]*|gclid|fbclid|msclkid|mc_cid|mc_eid|ref|ref_src|igshid)(?:=[^&]*)?(?:&|$))+', '\1', 'gi'),
  '[?&]+$', ''), '/+(\?|$)', '\1'), ':(?:80|443)(?=/|\?|$)', '');

comment on function {schema}.url_key(text) is
  'The page behind an address: without scheme, "www.", trailing slash, fragment and parameters for tracking.';

-- Conditions on the rows of a report after the sums are made; null if it has none.
alter table {ops}.reports add "having" jsonb;
