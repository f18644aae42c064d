import { type Html, html } from '../html.ts'

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
  const choices = projects.map(({ id, name }): Choice => [id, name])
  return select('Project', 'project', all === undefined ? choices : [['', all], ...choices], project)
}

export function streamField(streams: readonly string[], stream: string | undefined, all: string): Html {
  return select('Stream', 'stream', [['', all], ...streams.map((name): Choice => [name, name])], stream)
}

export type Choice = readonly [value: string, name: string]

/** Without a chosen value, the choice without one is selected. */
export function select(label: string, name: string, choices: readonly Choice[], chosen = ''): Html {
  const options = choices.map(
    ([value, text]) => html`<option value="${value}"${value === chosen && html` selected`}>${text}</option>`,
  )
  return field(label, html`<select name="${name}">${options}</select>`)
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
