-- 2. Share of voice over time, against each competitor?
-- Shown as: area date,brand share_of_voice
select date, brand, is_own, share_of_voice, mention_count, all_mentions, answers, enough_answers, is_unusual
from visibility.share_of_voice_daily
order by date, share_of_voice desc;
