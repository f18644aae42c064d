-- A day is judged by the answer, the control totals and the stored day. What was learned from earlier days goes.

alter table {ops}.control_totals
  add column is_whole boolean not null default true,
  -- Set if the last answer dropped most of the day: the totals are those from before.
  add column in_review boolean not null default false;
update {ops}.control_totals set is_whole = false where counts_digest is null;

-- Somebody may have made a view of these.
do $$
declare
  statement text;
begin
  foreach statement in array array[
    'drop table {ops}.not_additive',
    'drop table {ops}.metric_totals',
    'alter table {ops}.control_totals drop column answers, drop column counts_digest, drop column answers_digest',
    'alter table {ops}.coverage drop column counts_digest, drop column answers_digest'
  ] loop
    begin
      execute statement;
    exception when dependent_objects_still_exist then
      null;
    end;
  end loop;
end $$;
