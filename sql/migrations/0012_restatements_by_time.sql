-- How old days were when they still changed is told from the restatements of the last 60 days: by this index they are found
-- without reading all others. Building it takes about a second for each million restatements; none can be written
-- meanwhile.
create index if not exists restatements_by_time on {ops}.restatements (seen_at);
