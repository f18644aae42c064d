-- The first 1.0.0 and versions before it made digests of numbers that were not rounded. With 0, only the totals are compared, once.
update {ops}.control_totals set rows_digest = 0
where exists (select from {ops}.migrations where version = 26 and applied_at = now());
