/** The reports that tests sync if they name no others. */
export const FOUR_GRAINS = [
  { name: 'brand_daily', dimensions: ['date'] },
  { name: 'by_model', dimensions: ['date', 'model_id'] },
  { name: 'by_topic', dimensions: ['date', 'topic_id'] },
  { name: 'by_prompt', dimensions: ['date', 'prompt_id', 'model_id', 'country_code'] },
]
