import { type Html, html } from '../html.ts'

// A list of more choices than these is slower to use than typing.
const MOST_OPTIONS = 40

interface Choices {
  projects: readonly { id: string; name: string }[]
  project: string | undefined
  streams: readonly string[]
  stream: string | undefined
}

export function option(value: string, name: string, chosen: string | undefined): Html {
  return html`<option value="${value}"${value === (chosen ?? '') ? html` selected` : ''}>${name}</option>`
}

/** The fields of a form that choose a project and a stream. */
export function projectAndStream({ projects, project, streams, stream }: Choices): Html {
  const byProject =
    projects.length > MOST_OPTIONS
      ? html`<label>Project <input name="project" value="${project ?? ''}" placeholder="id"></label>`
      : html`<label>Project <select name="project">${option('', 'all', project)}${projects.map(({ id, name }) => option(id, name, project))}</select></label>`
  return html`${byProject}
<label>Stream <select name="stream">${option('', 'all', stream)}${streams.map((name) => option(name, name, stream))}</select></label>`
}
