import { type Html, html } from '../html.ts'
import { option } from './layout.ts'

// A list of more choices than these is slower to use than typing.
const MOST_OPTIONS = 40

/** The field of a form that chooses a project. `all` is what no choice is called. */
export function projectField(
  projects: readonly { id: string; name: string }[],
  project: string | undefined,
  all?: string,
): Html {
  if (projects.length > MOST_OPTIONS)
    return field('Project', html`<input name="project" value="${project}" placeholder="id">`)
  const options = projects.map(({ id, name }) => option(id, name, project))
  return field('Project', html`<select name="project">${all && option('', all, project)}${options}</select>`)
}

export function streamField(streams: readonly string[], stream: string | undefined, all: string): Html {
  const options = streams.map((name) => option(name, name, stream))
  return field('Stream', html`<select name="stream">${option('', all, stream)}${options}</select>`)
}

export function field(label: string, control: Html): Html {
  return html`<label class="field">${label} ${control}</label>`
}

export function dateField(label: string, name: string, value?: string): Html {
  return field(
    label,
    html`<input type="date" name="${name}" value="${value}"${value === undefined ? html` required` : ''}>`,
  )
}

export function filterForm(path: string, fields: Html): Html {
  return html`<form method="get" action="${path}" class="row">${fields}<button class="button">Show</button></form>`
}
