-- The tables that people query. {schema} and {ops} are filled in with the configured names, quoted.
-- Ids are the service's own strings, compared byte by byte: collate "C" makes joins and merges measurably faster.

create table {schema}.projects (
  project_id text collate "C" primary key,
  name text
);

create table {schema}.project_profiles (
  project_id text collate "C" primary key,
  name text,
  occupation text,
  industry text,
  brand_presentation jsonb,
  products_and_services jsonb,
  target_markets jsonb,
  audience_distribution jsonb,
  used_prepared_profile boolean,
  first_seen_at timestamptz not null default now(),
  removed_at timestamptz
);

create table {schema}.brands (
  project_id text collate "C" not null,
  brand_id text collate "C" not null,
  name text,
  is_own boolean not null default false,
  primary key (project_id, brand_id)
);

create table {schema}.topics (
  project_id text collate "C" not null,
  topic_id text collate "C" not null,
  name text,
  primary key (project_id, topic_id)
);

create table {schema}.tags (
  project_id text collate "C" not null,
  tag_id text collate "C" not null,
  name text,
  primary key (project_id, tag_id)
);

create table {schema}.models (
  project_id text collate "C" not null,
  model_id text collate "C" not null,
  primary key (project_id, model_id)
);

create table {schema}.prompts (
  project_id text collate "C" not null,
  prompt_id text collate "C" not null,
  text text,
  messages jsonb,
  topic_id text collate "C",
  user_location jsonb,
  country_code text collate "C",
  volume text,
  volume_number double precision generated always as (
    case when volume ~ '^-?[0-9]{1,15}(\.[0-9]{1,15})?$' then volume::double precision end
  ) stored,
  first_seen_at timestamptz not null default now(),
  removed_at timestamptz,
  primary key (project_id, prompt_id)
);

create table {schema}.prompt_tags (
  project_id text collate "C" not null,
  prompt_id text collate "C" not null,
  tag_id text collate "C" not null,
  primary key (project_id, prompt_id, tag_id)
);

create table {schema}.prompt_suggestions (
  project_id text collate "C" not null,
  suggestion_id text collate "C" not null,
  text text,
  messages jsonb,
  topic_id text collate "C",
  user_location jsonb,
  country_code text collate "C",
  volume text,
  volume_number double precision generated always as (
    case when volume ~ '^-?[0-9]{1,15}(\.[0-9]{1,15})?$' then volume::double precision end
  ) stored,
  first_seen_at timestamptz not null default now(),
  removed_at timestamptz,
  primary key (project_id, suggestion_id)
);

create table {schema}.prompt_suggestion_tags (
  project_id text collate "C" not null,
  suggestion_id text collate "C" not null,
  tag_id text collate "C" not null,
  primary key (project_id, suggestion_id, tag_id)
);

create table {schema}.domain_classifications (
  project_id text collate "C" not null,
  name text collate "C" not null,
  color text,
  first_seen_at timestamptz not null default now(),
  removed_at timestamptz,
  primary key (project_id, name)
);

create table {schema}.chats (
  project_id text collate "C" not null,
  chat_id text collate "C" not null,
  prompt_id text collate "C",
  model_id text collate "C",
  model_channel_id text collate "C",
  date date not null,
  primary key (project_id, chat_id)
) with (fillfactor = 90);

-- A window of chats is replaced by its days.
create index chats_by_date on {schema}.chats (project_id, date);
