-- The last runs, and the open reasons of quarantine of a project.
(
  select concat('Run ', run_id, ', ', command, ', began ', to_char(started_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI'), ' UTC') as what,
    coalesce(outcome, 'still running') as state
  from {ops}.runs where command not like 'create %' order by run_id desc limit 3
)
union all
(
  select concat('Quarantine of ', stream, ', rows: ', sum(occurrences)), reason
  from {ops}.quarantine where project_id = {project} and resolved_at is null
  group by stream, reason order by sum(occurrences) desc, stream, reason limit 5
)
