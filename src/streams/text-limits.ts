/* How long texts of the service may be. A row with a longer one is rejected: most likely it is no such text. */

/** Ids are indexed, and an index entry has a size limit in Postgres. */
export const ID_MAX = 255
/** Of brands and whatever else has a name. */
export const NAME_MAX = 1000
/** Of prompts, of which the service creates no longer ones than 700 characters, and of descriptions. */
export const TEXT_MAX = 10_000
/** Of addresses of pages, which are indexed by their digest. */
export const URL_MAX = 4000
/** Of a prompt. */
export const TAGS_MAX = 100

export function wrongLength(field: string, text: string, longest: number): string {
  return `${field}: has ${text.length} characters; allowed: 1 to ${longest}`
}
