-- Shares lie between 0 and 1, and no brand is named in more answers than there are.
select *
from {{ ref('brand_days') }}
where visibility_count > answers or mention_count > all_mentions or visibility_count < 0 or mention_count < 0
