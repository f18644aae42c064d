-- What ids meant and when: a prompt's text, topic, tags and country, and a brand's name. A row is open (valid_to is null) until
-- a load sees something else. What was before the first row is not known.

create table {schema}.prompt_history (
  project_id text collate "C" not null,
  prompt_id text collate "C" not null,
  text text,
  topic_id text collate "C",
  tags text[] not null,
  country_code text collate "C",
  valid_from timestamptz not null,
  valid_to timestamptz,
  primary key (project_id, prompt_id, valid_from)
);

create unique index prompt_history_open on {schema}.prompt_history (project_id, prompt_id) where valid_to is null;

insert into {schema}.prompt_history
select p.project_id, p.prompt_id, p.text, p.topic_id,
  array(select t.tag_id from {schema}.prompt_tags t where t.project_id = p.project_id and t.prompt_id = p.prompt_id order by 1),
  p.country_code, now(), null
from {schema}.prompts p;

create table {schema}.brand_history (
  project_id text collate "C" not null,
  brand_id text collate "C" not null,
  name text,
  valid_from timestamptz not null,
  valid_to timestamptz,
  primary key (project_id, brand_id, valid_from)
);

create unique index brand_history_open on {schema}.brand_history (project_id, brand_id) where valid_to is null;

insert into {schema}.brand_history select project_id, brand_id, name, now(), null from {schema}.brands;

-- Brands get their names from rows of any stream and from labels: the table itself knows best when one changes.
create function {ops}.keep_brand_history() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
declare
  changed_at timestamptz;
begin
  if exists (
    select from {schema}.brand_history h where h.project_id = new.project_id and h.brand_id = new.brand_id
      and h.valid_to is null and h.name is not distinct from new.name
  ) then return null; end if;
  -- The time at which it is seen: transactions that began earlier may come later.
  update {schema}.brand_history h set valid_to = greatest(clock_timestamp(), h.valid_from + interval '1 microsecond')
  where h.project_id = new.project_id and h.brand_id = new.brand_id and h.valid_to is null
  returning h.valid_to into changed_at;
  insert into {schema}.brand_history (project_id, brand_id, name, valid_from)
  values (new.project_id, new.brand_id, new.name, coalesce(changed_at, clock_timestamp()));
  return null;
end $$;

create trigger keep_new_name after insert on {schema}.brands
  for each row execute function {ops}.keep_brand_history();
create trigger keep_changed_name after update on {schema}.brands
  for each row when (old.name is distinct from new.name) execute function {ops}.keep_brand_history();
