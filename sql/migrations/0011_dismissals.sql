-- A row in quarantine may be dismissed: it no longer makes runs partial. Another version of the row is another entry.
alter table {ops}.quarantine add column dismissed_at timestamptz;
alter table {ops}.quarantine add column dismissed_because text;
