-- What people were told of and is not over yet: each condition is told once, and once more when it clears.
create table {ops}.alerts (
  condition text collate "C" primary key,
  text text not null,
  -- The streams that it is about: one more is worth telling.
  members text[] not null default '{}',
  raised_at timestamptz not null default now()
);
