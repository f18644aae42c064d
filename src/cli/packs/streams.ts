import type { Relation } from './relations.ts'

/** Which stream fills a table, if one does. */
const STREAMS: Record<string, string> = {
  project_profiles: 'project_profile',
  projects: 'project_profile',
  prompts: 'prompts',
  prompt_tags: 'prompts',
  prompt_suggestions: 'prompt_suggestions',
  prompt_suggestion_tags: 'prompt_suggestions',
  domain_classifications: 'domain_classifications',
  chats: 'chats',
}

export function streamOf({ name, kind }: Relation): string | undefined {
  return kind === 'report' ? name : STREAMS[name]
}
