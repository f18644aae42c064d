/** One stream of one project. */
export interface StreamOfProject {
  projectId: string
  stream: string
}

/** One text for a project and a stream, to find things by. Ids hold no NUL, so different pairs have different keys. */
export function streamKey(projectId: string, stream: string): string {
  return `${projectId}\0${stream}`
}
