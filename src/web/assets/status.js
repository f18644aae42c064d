// Keeps the page current, makes the calendar usable by keyboard, filters the list of projects, and offers to copy commands.
// Without this script the page shows the same, but is not refreshed: days are links, the search is a form.
const IDLE_MS = 5000
const RUNNING_MS = 2000
const LONGEST_MS = 60_000
const main = document.querySelector('main')
const find = (id) => document.getElementById(id)
const partsOf = (root) => new Map([...root.querySelectorAll('[data-part]')].map((part) => [part.dataset.part, part]))
// What the server sent, to compare with: the page itself is changed by people and by this script.
let sent = htmlOf(partsOf(document))

function htmlOf(parts) {
  return new Map([...parts].map(([name, part]) => [name, part.outerHTML]))
}

/* Refreshing */

let failures = 0
let timer
let asking

function plan(ms) {
  clearTimeout(timer)
  timer = setTimeout(() => void refresh(), ms)
}

async function refresh(url = find('updated').dataset.url) {
  clearTimeout(timer)
  asking?.abort()
  const mine = new AbortController()
  asking = mine
  const patience = setTimeout(() => mine.abort(new Error('too late')), 15_000)
  try {
    const response = await fetch(url, { signal: mine.signal, headers: { accept: 'text/html' } })
    const page = new DOMParser().parseFromString(await response.text(), 'text/html')
    const next = page.querySelector('#updated')
    if (next === null) {
      // A run that has ended is not followed any more; what it came to is on its page.
      if (response.ok && url === find('updated').dataset.url) return location.reload()
      throw new Error(`HTTP ${response.status}`)
    }
    if (mine !== asking) return
    failures = 0
    find('updated').replaceWith(document.importNode(next, true))
    take(page)
    document.title = page.title
    tellLive()
  } catch {
    if (mine !== asking) return
    failures++
  } finally {
    clearTimeout(patience)
  }
  if (mine !== asking) return
  const usual = find('updated').dataset.running === 'true' ? RUNNING_MS : IDLE_MS
  const wait = failures === 0 ? usual : Math.min(LONGEST_MS, 2000 * 2 ** (failures - 1))
  if (failures > 0) tellGone()
  plan(wait)
}

function tellLive() {
  find('updated').className = 'small quiet live'
  find('gone').hidden = true
  main.classList.remove('is-gone')
}

function tellGone() {
  const gone = find('gone')
  // Said once, not at every attempt.
  if (!gone.hidden) return
  const since = find('updated').querySelector('time').textContent
  find('updated').className = 'small bad gone'
  main.classList.add('is-gone')
  gone.textContent = `The server does not answer. What you see is from ${since} UTC. It is asked again until it does.`
  gone.hidden = false
}

/** Puts in the parts that differ, unless somebody is at work in one. */
function take(page) {
  const next = partsOf(page)
  const present = partsOf(document)
  // Another kind of page, as after the first sync or when the database is back.
  if ([...next.keys()].join() !== [...present.keys()].join()) {
    if (isInUse(main)) return
    sent = htmlOf(next)
    main.replaceChildren(...[...page.querySelector('main').childNodes].map((node) => document.importNode(node, true)))
    enhance(main)
    return
  }
  for (const [name, part] of present) {
    const fresh = next.get(name)
    if (sent.get(name) === fresh.outerHTML || isInUse(part)) continue
    sent.set(name, fresh.outerHTML)
    replace(part, fresh)
  }
}

function isInUse(part) {
  const { activeElement } = document
  if (part.contains(activeElement) && activeElement.matches('input, select, textarea')) return true
  if (part.querySelector('.confirm[open]') !== null) return true
  const selection = getSelection()
  return selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode)
}

/** What people opened stays open, what they typed stays typed, and the focus stays where it was. */
function replace(part, fresh) {
  const open = new Map([...part.querySelectorAll('details[id]')].map(({ id, open: isOpen }) => [id, isOpen]))
  const typed = new Map([...part.querySelectorAll('input[type="search"]')].map(({ id, value }) => [id, value]))
  const scrolled = [...part.querySelectorAll('.scroll')].map(({ scrollLeft }) => scrollLeft)
  const active = part.contains(document.activeElement) ? pathTo(part, document.activeElement) : undefined
  const element = document.importNode(fresh, true)
  part.replaceWith(element)
  for (const details of element.querySelectorAll('details[id]')) details.open = open.get(details.id) ?? details.open
  for (const input of element.querySelectorAll('input[type="search"]')) input.value = typed.get(input.id) ?? input.value
  enhance(element)
  for (const [index, box] of element.querySelectorAll('.scroll').entries())
    box.scrollLeft = scrolled[index] ?? box.scrollLeft
  if (active !== undefined) follow(element, active)?.focus({ preventScroll: true })
}

/** Where an element is, by its place among its siblings: the same place in the new part is where the focus goes. */
function pathTo(root, element) {
  const path = []
  for (let at = element; at !== root; at = at.parentElement) path.unshift([...at.parentElement.children].indexOf(at))
  return path
}

function follow(root, path) {
  let at = root
  for (const index of path) at = at?.children[index]
  return at
}

/* The calendar: one tab stop, arrow keys, a detail on click or Enter */

function enhance(root) {
  for (const table of root.querySelectorAll('table[data-grid]')) makeGrid(table)
  for (const code of root.querySelectorAll('.command code, .sql code')) offerCopy(code)
  filterProjects()
}

function makeGrid(table) {
  table.setAttribute('role', 'grid')
  // Days are reached by the arrow keys: as links they would be a tab stop each.
  for (const link of table.querySelectorAll('thead a')) link.tabIndex = -1
  const cells = [...table.querySelectorAll('td.cell')]
  for (const cell of cells) {
    cell.tabIndex = -1
    cell.title = cell.getAttribute('aria-label')
  }
  const selected = select(cells, new URL(find('updated').dataset.url, location.href).searchParams.get('day'))
  const start =
    selected[0] ?? cells.reduce((last, cell) => (cell.dataset.day > last.dataset.day ? cell : last), cells[0])
  if (start !== undefined) start.tabIndex = 0
}

/** Marks the cells of a day, and gives them. */
function select(cells, day) {
  for (const cell of cells) cell.ariaSelected = cell.dataset.day === day ? 'true' : null
  return cells.filter((cell) => cell.ariaSelected === 'true')
}

const STEPS = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  PageUp: [0, -7],
  PageDown: [0, 7],
}

document.addEventListener('keydown', (event) => {
  const cell = event.target.closest?.('table[data-grid] td.cell')
  if (cell == null) return
  if (event.key === 'Enter' || event.key === ' ') {
    event.preventDefault()
    void showDay(cell.dataset.day)
    return
  }
  const next = neighbour(cell, event)
  if (next === undefined) return
  event.preventDefault()
  moveTo(next)
})

function neighbour(cell, { key, ctrlKey }) {
  const table = cell.closest('table')
  const { rows } = table.tBodies[0]
  const row = [...rows].indexOf(cell.parentElement)
  const inRow = (index) => [...(rows[index]?.cells ?? [])].filter((other) => other.classList.contains('cell'))
  if (key === 'Home') return inRow(ctrlKey ? 0 : row)[0]
  if (key === 'End') return inRow(ctrlKey ? rows.length - 1 : row).at(-1)
  const [down, right] = STEPS[key] ?? []
  if (down === undefined) return undefined
  const { cells } = rows[row + down] ?? { cells: [] }
  // A step of a week in a year is one column.
  const wide = table.dataset.grid === 'year' && Math.abs(right) === 7 ? Math.sign(right) * 4 : right
  const wanted = cells[cell.cellIndex + wide]
  return wanted?.classList.contains('cell') ? wanted : undefined
}

function moveTo(cell) {
  for (const other of cell.closest('table').querySelectorAll('td[tabindex="0"]')) other.tabIndex = -1
  cell.tabIndex = 0
  cell.focus()
}

document.addEventListener('click', (event) => {
  const cell = event.target.closest?.('table[data-grid] td.cell')
  const link = event.target.closest?.('table[data-grid] thead a, #day a[href*="#project"]')
  if (cell != null) {
    moveTo(cell)
    void showDay(cell.dataset.day)
  } else if (link != null && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault()
    void showDay(new URL(link.href).searchParams.get('day'))
  }
})

/** Asks for the page with that day's detail; the address keeps it, so that it can be shared and is refreshed. */
async function showDay(day) {
  const url = new URL(find('updated').dataset.url, location.href)
  if (day === null) url.searchParams.delete('day')
  else url.searchParams.set('day', day)
  history.replaceState(null, '', url.pathname + url.search)
  select([...document.querySelectorAll('td.cell')], day)
  await refresh(url.pathname + url.search)
  const panel = document.querySelector('#day')
  if (day !== null) panel?.scrollIntoView({ block: 'nearest' })
  find('announce').textContent = day === null ? '' : `The details of ${day} are shown below the calendar.`
}

/* Commands, SQL and projects */

function offerCopy(code) {
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'button tiny copy'
  button.textContent = 'Copy'
  const name = code.parentElement.getAttribute('aria-label') ?? `command ${code.textContent}`
  button.setAttribute('aria-label', `Copy the ${name}`)
  button.addEventListener('click', () => void copy(code, button))
  code.closest('.command, .sql').append(button)
}

/** Browsers offer the clipboard to localhost and over HTTPS only; elsewhere the text is selected, to be copied by hand. */
async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent)
    button.textContent = 'Copied'
  } catch {
    getSelection().selectAllChildren(code)
    button.textContent = 'Selected: copy it'
  }
  setTimeout(() => {
    button.textContent = 'Copy'
  }, 2000)
}

function filterProjects() {
  const input = document.querySelector('#search')
  if (input === null) return
  const wanted = input.value.trim().toLowerCase()
  const section = input.closest('section')
  let shown = 0
  for (const item of section.querySelectorAll('.projects li')) {
    const link = item.querySelector('a')
    const text = `${link.textContent} ${link.getAttribute('href')}`.toLowerCase()
    item.hidden = wanted !== '' && !text.includes(wanted)
    if (!item.hidden) shown++
  }
  const fold = section.querySelector('#well')
  if (fold !== null && wanted !== '') fold.open = true
  section.querySelector('.none').hidden = shown > 0 || section.querySelector('.empty') !== null
}
document.addEventListener('input', (event) => {
  if (event.target.id === 'search') filterProjects()
})

enhance(document)
if (find('updated') !== null) {
  tellLive()
  plan(find('updated').dataset.running === 'true' ? RUNNING_MS : IDLE_MS)
  // A page that nobody sees is not refreshed; it is at once when somebody looks again.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) clearTimeout(timer)
    else void refresh()
  })
}
