-- Single answers of a model to a prompt on a day.
select
  project_id,
  chat_id,
  prompt_id,
  model_id,
  model_channel_id,
  date
from {{ source('visibility', 'chats') }}
