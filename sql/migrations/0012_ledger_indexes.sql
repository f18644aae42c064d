-- Pages and probes stay fast when the ledger is large: the newest restatements are found without reading all of them, and
-- so are the runs that are still open. Building the first takes about a second for each million restatements; they cannot
-- be written meanwhile.

create index if not exists restatements_by_time on {ops}.restatements (seen_at);

create index if not exists runs_open on {ops}.runs (run_id) where outcome is null;
