-- 1. How visible are we, against the previous equal period?
-- Shown as: line week,series visibility
-- Filtered by: visibility_weekly project week brand
select week, series, visibility, visibility_low, visibility_high, previous_visibility, change, change_low, change_high, verdict,
  change_same_prompts, answers, previous_answers, is_complete, is_provisional, comparison_is_complete, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    count(*) over (order by week desc) as rows_so_far, dense_rank() over (order by week desc) as place,
    bool_or(is_complete) over (partition by project_id) as has_complete_weeks
  from visibility.visibility_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand)
) weeks
where (is_complete or not has_complete_weeks) and (rows_so_far <= 2000 or place = 1)
order by week desc, series;

-- 2. Share of voice over time, against each competitor?
-- Shown as: line date,series share_of_voice
-- Filtered by: share_of_voice_daily project date brand
select date, series, share_of_voice, is_own, mention_count, all_mentions, answers, enough_answers, is_unusual, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    count(*) over (order by date desc) as rows_so_far, dense_rank() over (order by date desc) as place
  from visibility.share_of_voice_daily
  where true
    -- filters
  window same_name as (partition by project, brand)
) days
where rows_so_far <= 2000 or place = 1
order by date desc, enough_answers desc, share_of_voice desc;

-- 3. Which models are strongest and weakest for us?
-- Shown as: bar model,series visibility
-- Filtered by: visibility_by_model_weekly project week brand
select coalesce(model_id, '(no model)') as model, series, visibility, visibility_low, visibility_high, rank, change, verdict,
  answers, week, is_complete, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    coalesce(max(week) filter (where is_complete) over of_project, max(week) over of_project) as newest_week
  from visibility.visibility_by_model_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand), of_project as (partition by project_id)
) weeks
where week = newest_week
order by series, enough_answers desc, rank, model;

-- 4. Head to head with one competitor, by model?
-- Shown as: table
-- Filtered by: head_to_head_weekly project week own_brand
select week, project, model_id, own_brand, rival_brand, own_visibility, rival_visibility, lead, lead_verdict,
  own_share_of_both, answers
from visibility.head_to_head_weekly
where true
  -- filters
order by is_complete desc, week desc, enough_answers desc, project, own_brand, rival_brand, lead;

-- 5. Which topics do we own, and where are we invisible?
-- Shown as: table
-- Filtered by: topics_weekly project week brand
select week, project, topic, brand, visibility, visibility_low, visibility_high, rank, leads, is_invisible, gap_to_leader,
  answers, enough_answers, is_complete
from visibility.topics_weekly
where is_own
  -- filters
order by is_complete desc, week desc, enough_answers desc, gap_to_leader;

-- 6. On which prompts are we absent while rivals appear?
-- Shown as: table
-- Filtered by: absent_prompts project week own_brand
select week, project, prompt, topic, model_id, own_brand, visibility_high, rivals, best_rival_visibility, rival_list, answers,
  is_complete
from visibility.absent_prompts
where true
  -- filters
order by is_complete desc, week desc, enough_answers desc, best_rival_visibility desc, answers desc;

-- 7. Is our average position improving?
-- Shown as: line week,series position
-- Filtered by: position_by_model_weekly project week brand
select week, series || ', ' || coalesce(model_id, '(no model)') as series, position, previous_position, change, is_improving,
  position_count, comparison_is_complete, project, brand, model_id
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    count(*) over (order by week desc) as rows_so_far, dense_rank() over (order by week desc) as place,
    bool_or(is_complete) over (partition by project_id) as has_complete_weeks
  from visibility.position_by_model_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand)
) weeks
where (is_complete or not has_complete_weeks) and (rows_so_far <= 2000 or place = 1)
order by week desc, answers >= 30 desc, change nulls last;

-- 8. Where is sentiment falling?
-- Shown as: table
-- Filtered by: sentiment_by_topic_weekly project week brand
select week, project, brand, topic, sentiment, previous_sentiment, change, sentiment_count, previous_sentiment_count,
  comparison_is_complete
from visibility.sentiment_by_topic_weekly
where is_falling and is_own
  -- filters
order by comparison_is_complete desc, week desc, least(sentiment_count, previous_sentiment_count) >= 30 desc, change;

-- 9. Who gained or lost most this week?
-- Shown as: table
-- Filtered by: movers_weekly project week brand
select week, project, brand, grain, topic, model_id, visibility, previous_visibility, change, change_low, change_high, verdict,
  is_mover, q_value, rank, answers, previous_answers
from visibility.movers_weekly
where rank <= 20
  -- filters
order by week desc, project, rank;

-- 10. Branded or not, or by funnel stage?
-- Shown as: bar tag,series visibility
-- Filtered by: visibility_by_tag_weekly project week brand
select tag || case when min(tag_id) over same_tag <> max(tag_id) over same_tag then ' (' || tag_id || ')' else '' end as tag,
  series, visibility, visibility_low, visibility_high, previous_visibility, change, verdict, answers, week, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    coalesce(max(week) filter (where is_complete) over of_project, max(week) over of_project) as newest_week
  from visibility.visibility_by_tag_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand), of_project as (partition by project_id)
) weeks
where week = newest_week
window same_tag as (partition by project_id, tag)
order by series, enough_answers desc, 1;

-- 11. Which countries lead or lag?
-- Shown as: bar country,series visibility
-- Filtered by: visibility_by_country_weekly project week brand
select coalesce(country_code, '(no country)') as country, series, visibility, visibility_low, visibility_high, rank, change, verdict,
  answers, week, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    coalesce(max(week) filter (where is_complete) over of_project, max(week) over of_project) as newest_week
  from visibility.visibility_by_country_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand), of_project as (partition by project_id)
) weeks
where week = newest_week
order by series, enough_answers desc, rank, country;

-- 12. Can I trust it: did every prompt and model run, is the sample large enough?
-- Shown as: table
-- Filtered by: sample_sizes_daily project date
select date, project, model_id, answers, enough_answers, chats, agrees, prompts_asked, prompts_of_the_day, prompts_missing,
  margin_of_error
from visibility.sample_sizes_daily
where true
  -- filters
order by date desc, project, model_id;

