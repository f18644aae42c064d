-- What a worker can do: a run does itself what no worker that is about can take.
alter table {ops}.workers
  add source text not null default '',
  add projects text[] not null default '{}',
  add streams text[] not null default '{}';
