-- What single answers say, and what they retrieve and cite: one request for each, so only for some, within a daily budget.

create table {schema}.chat_contents (
  project_id text collate "C" not null,
  chat_id text collate "C" not null,
  messages jsonb,
  sources jsonb,
  brands_mentioned jsonb,
  queries jsonb,
  first_seen_at timestamptz not null default now(),
  removed_at timestamptz,
  primary key (project_id, chat_id)
);

-- Chats that are not asked for again: the service no longer has them, or what it gave is in quarantine.
create table {ops}.unread_chats (
  project_id text collate "C" not null,
  chat_id text collate "C" not null,
  status integer not null,
  asked_at timestamptz not null default now(),
  primary key (project_id, chat_id)
);

-- How many requests of a daily budget are used up. They are counted before they are sent.
create table {ops}.daily_requests (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  day date not null,
  requests integer not null,
  primary key (project_id, stream, day)
);
