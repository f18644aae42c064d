-- Lists and reports that a service may offer beyond the contract: names, own brands, channels, cited sources.

alter table {schema}.projects
  add status text,
  add created_at text,
  add listed_at timestamptz,
  add removed_at timestamptz;

alter table {schema}.brands
  add domains jsonb,
  -- What the service says; is_own is what counts, since labels override it.
  add listed_own boolean,
  add listed_at timestamptz,
  add removed_at timestamptz;

alter table {schema}.topics add listed_at timestamptz, add removed_at timestamptz;
alter table {schema}.tags add listed_at timestamptz, add removed_at timestamptz;
alter table {schema}.url_classifications add removed_at timestamptz;

create table {schema}.model_channels (
  project_id text collate "C" not null,
  model_channel_id text collate "C" not null,
  name text,
  model_id text collate "C",
  first_seen_at timestamptz not null default now(),
  removed_at timestamptz,
  primary key (project_id, model_channel_id)
);

-- What the service was found not to offer, so that it is not asked for it again for a week.
create table {ops}.not_offered (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  status integer not null,
  asked_at timestamptz not null default now(),
  primary key (project_id, stream)
);

alter table {ops}.reports add of text not null default 'brands';

-- The definitions by which tables of custom streams were made.
create table {ops}.custom_streams (
  name text collate "C" primary key,
  definition jsonb not null,
  created_at timestamptz not null default now()
);
