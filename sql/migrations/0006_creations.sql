-- What was created through the service: every attempt is written down before it is sent and settled after, so that a
-- crash in between is noticed and resolved instead of being repeated.

create table {ops}.creations (
  creation_id bigint generated always as identity primary key,
  project_id text collate "C" not null,
  kind text not null check (kind in ('prompt', 'topic', 'domain-classification', 'url-classification')),
  -- What makes it the same thing: text and country, or the name.
  identity text collate "C" not null,
  request jsonb not null,
  state text not null check (state in ('sent', 'created', 'existing', 'failed')),
  -- The service's id, where it gives one.
  id text collate "C",
  warning text,
  error text,
  attempts integer not null default 1,
  sent_at timestamptz not null default now(),
  settled_at timestamptz,
  unique (project_id, kind, identity)
);

-- The interface cannot list these, so they are known from creating them.
create table {schema}.url_classifications (
  project_id text collate "C" not null,
  name text collate "C" not null,
  color text,
  first_seen_at timestamptz not null default now(),
  primary key (project_id, name)
);
