/** One stream of one project. */
export interface ProjectStream {
  projectId: string
  stream: string
}

/** One text for a project and a stream, to find things by. Ids hold no NUL, so no two share one. */
export function streamKey(projectId: string, stream: string): string {
  return `${projectId}\0${stream}`
}
