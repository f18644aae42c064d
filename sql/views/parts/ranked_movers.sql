-- Ranks the changes of `cells` within their project and week. A change is ranked if both periods were read whole and have 30 answers
-- each. If no change of a grain is ranked, the next coarser grain is used. The q-value is that of Benjamini and Hochberg.
select m.*, {schema}.p_value(m.clarity) as p_value,
  case when m.is_ranked then least(1, min({schema}.p_value(m.clarity) * m.ranked_cells / m.as_clear) over (
    partition by m.project_id, m.project, m.week, m.is_ranked order by m.rounded_clarity desc
    range between current row and unbounded following
  )) end as q_value
from (
  select l.*,
    count(*) over (ranked) as ranked_cells,
    count(*) over (ranked order by l.rounded_clarity desc) as as_clear,
    case when l.is_ranked then rank() over (ranked order by l.rounded_clarity desc) end as rank
  from (
    -- Rounded, so that changes that are as clear as each other share a rank.
    select c.*, round(c.clarity * 1e9) as rounded_clarity,
      min(c.level) filter (where c.is_ranked) over (partition by c.project_id, c.project, c.week) as ranked_level
    from (
      select f.project_id, f.project, f.week, f.brand_id, level,
        case when level in (1, 2) then f.topic_id end as topic_id,
        case when level in (1, 3) then f.model_id end as model_id,
        f.days, f.is_complete, f.is_provisional, f.comparison_is_complete,
        sum(f.k) as k, sum(f.n) as n, sum(f.previous_k) as previous_k, sum(f.previous_n) as previous_n,
        f.comparison_is_complete and sum(f.n) >= 30 and sum(f.previous_n) >= 30 as is_ranked,
        {schema}.clarity(sum(f.k), sum(f.n), sum(f.previous_k), sum(f.previous_n)) as clarity
      from (
        select s.*, bool_or(s.comparison_is_complete and s.n >= 30 and s.previous_n >= 30)
          over (partition by s.project_id, s.project, s.week) as is_fine_enough
        from cells s
      ) f
      cross join lateral generate_series(1, case when f.is_fine_enough then 1 else 4 end) level
      group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
      -- Without a period before, nothing moved.
      having sum(f.n) > 0 and sum(f.previous_n) > 0
    ) c
  ) l
  where l.level = coalesce(l.ranked_level, 1)
  window ranked as (partition by l.project_id, l.project, l.week, l.is_ranked)
) m
