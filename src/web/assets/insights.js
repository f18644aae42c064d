// The numbers under the pointer, lines that are brought out, and filters that apply at once. Without this script, the tables
// have the numbers, and the filters have a button.
const SVG = 'http://www.w3.org/2000/svg'

function make(name, text = '', className = '') {
  const element = document.createElement(name)
  element.textContent = text
  if (className !== '') element.className = className
  return element
}

function makeShape(name, attributes) {
  const element = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  return element
}

const percent = (share) => `${share * 100}%`

// Nearer than this, in pixels, a line is meant.
const NEAR = 14

function interact(box) {
  const { x, across, notes, series } = JSON.parse(box.querySelector('script').textContent)
  const plot = box.querySelector('.plot')
  const area = plot.querySelector('.area')
  const shapes = makeShape('g', {})
  area.querySelector('svg').append(shapes)
  const tip = make('div', '', 'tip')
  tip.hidden = true
  tip.setAttribute('role', 'status')
  box.append(tip)
  plot.tabIndex = 0
  let shown = -1

  /** Dims all brands but one; undefined shows all alike. */
  function bringOut(colour) {
    if (colour === undefined) delete box.dataset.shown
    else box.dataset.shown = String(colour)
    for (const part of box.querySelectorAll('[data-series]'))
      part.classList.toggle('shown', part.dataset.series === box.dataset.shown)
  }

  function show(index) {
    if (index === shown) return
    shown = index
    shapes.replaceChildren()
    tip.hidden = index < 0
    if (index < 0) return
    const at = percent(across[index])
    shapes.append(makeShape('line', { class: 'cursor', x1: at, x2: at, y1: '0', y2: '100%' }))
    const list = make('dl')
    for (const { name, own, colour, texts, down } of [...series].sort(
      (a, b) => (a.down[index] ?? 2) - (b.down[index] ?? 2),
    )) {
      if (texts[index] === '') continue
      const className = own ? 'own' : ''
      list.append(make('dt', name, className), make('dd', texts[index], className))
      if (down[index] !== null)
        shapes.append(makeShape('circle', { class: `c${colour}`, cx: at, cy: percent(down[index]), r: '4' }))
    }
    const details = series.find(({ own }) => own)?.details[index] ?? ''
    const heading = make('p', [x[index], notes[index]].filter(Boolean).join(', '))
    tip.replaceChildren(heading, list, ...(details === '' ? [] : [make('p', details)]))
    const left = area.offsetLeft + across[index] * area.clientWidth
    // Not over the labels at the end of the lines.
    const room = Math.max(0, area.offsetLeft + area.clientWidth - tip.offsetWidth)
    const wanted = across[index] > 0.5 ? left - tip.offsetWidth - 12 : left + 12
    tip.style.left = `${Math.max(0, Math.min(room, wanted))}px`
  }

  function nearest(event) {
    const { left, width } = area.getBoundingClientRect()
    const share = (event.clientX - left) / width
    let best = 0
    for (let index = 1; index < across.length; index++)
      if (Math.abs(across[index] - share) < Math.abs(across[best] - share)) best = index
    return best
  }

  /** The colour of the line under the pointer, if there is one. */
  function lineAt(event, index) {
    const { top, height } = area.getBoundingClientRect()
    const distance = ({ down }) =>
      down[index] === null ? Number.POSITIVE_INFINITY : Math.abs(top + down[index] * height - event.clientY)
    const [closest] = [...series].sort((a, b) => distance(a) - distance(b))
    return closest !== undefined && distance(closest) < NEAR ? closest.colour : undefined
  }

  const showFocused = () => bringOut(box.querySelector('.legend li:focus-within')?.dataset.series)

  area.addEventListener('pointermove', (event) => {
    show(nearest(event))
    bringOut(lineAt(event, shown))
  })
  area.addEventListener('pointerdown', (event) => show(nearest(event)))
  area.addEventListener('pointerleave', () => {
    show(-1)
    showFocused()
  })
  for (const entry of box.querySelectorAll('.legend li')) {
    const button = make('button', entry.textContent, 'name')
    button.type = 'button'
    entry.replaceChildren(button)
    for (const event of ['pointerenter', 'focusin']) entry.addEventListener(event, () => bringOut(entry.dataset.series))
    for (const event of ['pointerleave', 'focusout']) entry.addEventListener(event, showFocused)
  }
  plot.addEventListener('focus', () => show(x.length - 1))
  plot.addEventListener('blur', () => show(-1))
  plot.addEventListener('keydown', (event) => {
    const end = x.length - 1
    const [before, after] = [Math.max(0, shown - 1), Math.min(end, shown + 1)]
    const to = { ArrowLeft: before, ArrowRight: after, Home: 0, End: end, Escape: -1 }
    if (!(event.key in to)) return
    event.preventDefault()
    show(to[event.key])
  })
}

for (const box of document.querySelectorAll('.chart-box')) interact(box)
for (const place of document.querySelectorAll('.screen-only')) {
  const button = make('button', 'Print', 'button tiny')
  button.type = 'button'
  button.addEventListener('click', () => print())
  place.append(' ', button)
}
for (const form of document.querySelectorAll('.filters')) {
  form.querySelector('button').hidden = true
  form.addEventListener('change', (event) => {
    // Both dates are chosen one after the other.
    const isDate = event.target.type === 'date'
    if (!isDate || form.reportValidity()) form.requestSubmit()
  })
}
