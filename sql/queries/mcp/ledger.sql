-- The last runs, and the open reasons of quarantine of a project.
(
  select 'Run ' || run_id || ', ' || command as what, coalesce(outcome, 'still running') as state, started_at as at, null::integer as rows
  from {ops}.runs where command not like 'create %' order by run_id desc limit 3
)
union all
(
  select 'Quarantine of ' || stream, reason, max(last_seen_at), sum(occurrences)::integer
  from {ops}.quarantine where project_id = {project} and resolved_at is null group by stream, reason order by 4 desc, 1, 2 limit 5
)
