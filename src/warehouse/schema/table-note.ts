/** What a table or view and its columns mean. */
export interface TableNote {
  about: string
  columns: Record<string, string>
}

export const PROJECT = "The service's id of the project; 'default' if a project key was used without an id."
