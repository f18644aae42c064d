// Keeps the page current, makes the calendar usable by keyboard, filters the list of projects, and offers to copy commands.
// Without this script the page shows the same, but is not refreshed: days are links, the search is a form.
const LONGEST_MS = 60_000
const main = document.querySelector('main')
const find = (id) => document.getElementById(id)
const addressOf = () => new URL(find('updated').dataset.url, location.href)

/* Refreshing */

let failures = 0
let timer
let asking

async function refresh(url = addressOf()) {
  clearTimeout(timer)
  asking?.abort()
  const mine = new AbortController()
  asking = mine
  try {
    const signal = AbortSignal.any([mine.signal, AbortSignal.timeout(15_000)])
    const response = await fetch(url, { signal, headers: { accept: 'text/html' } })
    const page = new DOMParser().parseFromString(await response.text(), 'text/html')
    const fresh = page.querySelector('main')
    if (page.getElementById('updated') === null) {
      // A run that has ended is not followed any more; its page has the result.
      if (response.ok) return location.reload()
      throw new Error(`HTTP ${response.status}`)
    }
    if (mine !== asking) return
    failures = 0
    enhance(fresh)
    morph(main, fresh)
    document.title = page.title
    // The arrow keys continue where they were.
    if (document.activeElement.matches('td.cell')) setTabStop(document.activeElement)
  } catch {
    if (mine !== asking) return
    failures++
    showGone()
  }
  plan()
}

function plan() {
  const wait = failures === 0 ? Number(find('updated').dataset.ms) : Math.min(LONGEST_MS, 1000 * 2 ** failures)
  timer = setTimeout(() => void refresh(), wait)
}

/** The next page that arrives takes all of this back. */
function showGone() {
  const [gone, updated] = [find('gone'), find('updated')]
  // Announced once, not at every attempt.
  if (!gone.hidden) return
  updated.className = 'small bad gone'
  main.className = 'is-gone'
  gone.textContent = `The server does not answer. What you see is from ${updated.querySelector('time').textContent} UTC. It is asked again until it does.`
  gone.hidden = false
}

/** Makes a part of the page like the fresh one. Elements stay, with their focus, what was typed, and what was opened. */
function morph(old, fresh) {
  const isElement = old.nodeType === Node.ELEMENT_NODE
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
    if (!isElement || !isInUse(old)) old.replaceWith(document.importNode(fresh, true))
    return
  }
  if (!isElement) {
    if (old.data !== fresh.data) old.data = fresh.data
    return
  }
  // The server sends the result of an action once.
  if (old.dataset.part === 'notice' && fresh.firstElementChild === null) return
  if (old !== main && old.matches('[data-part], section, form') && isInUse(old)) return
  morphAttributes(old, fresh)
  const children = [...old.childNodes]
  const wanted = [...fresh.childNodes]
  for (const [index, child] of children.entries()) {
    if (index < wanted.length) morph(child, wanted[index])
    else child.remove()
  }
  old.append(...wanted.slice(children.length).map((child) => document.importNode(child, true)))
}

function morphAttributes(old, fresh) {
  for (const { name } of [...old.attributes])
    if (name !== 'open' && !fresh.hasAttribute(name)) old.removeAttribute(name)
  for (const { name, value } of fresh.attributes)
    if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value)
}

/** A form that somebody fills in or is about to confirm must not change, nor a text that somebody selects. */
function isInUse(part) {
  const { activeElement } = document
  if (part.contains(activeElement) && activeElement.matches('input, select')) return true
  if (part.querySelector('.confirm[open]') !== null) return true
  const selection = getSelection()
  return selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode)
}

/** Adds to a page, on screen or fresh, what works with this script alone. */
function enhance(root) {
  for (const table of root.querySelectorAll('table[data-grid]')) makeGrid(table)
  for (const code of root.querySelectorAll('.command code, .sql code')) offerCopy(code)
  filterProjects(root)
  root.querySelector('#updated')?.classList.add('live')
}

/* The calendar: one tab stop, arrow keys, a detail on click or Enter */

function makeGrid(table) {
  table.setAttribute('role', 'grid')
  // Days are reached by the arrow keys: as links they would be a tab stop each.
  for (const link of table.querySelectorAll('thead a')) link.tabIndex = -1
  const day = addressOf().searchParams.get('day')
  const cells = [...table.querySelectorAll('td.cell')]
  for (const cell of cells) {
    cell.tabIndex = -1
    cell.title = cell.getAttribute('aria-label')
    cell.ariaSelected = cell.dataset.day === day ? 'true' : null
  }
  const start = cells.find((cell) => cell.ariaSelected === 'true') ?? cells.sort(byDay)[0]
  if (start !== undefined) start.tabIndex = 0
}

const byDay = (a, b) => (a.dataset.day < b.dataset.day ? 1 : a.dataset.day > b.dataset.day ? -1 : 0)

function setTabStop(cell) {
  for (const other of cell.closest('table').querySelectorAll('td[tabindex="0"]')) other.tabIndex = -1
  cell.tabIndex = 0
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }

document.addEventListener('keydown', (event) => {
  const cell = event.target.closest?.('table[data-grid] td.cell')
  if (cell == null) return
  if (event.key === 'Enter' || event.key === ' ') void showDay(cell.dataset.day)
  else if (!moveFrom(cell, event.key)) return
  event.preventDefault()
})

function moveFrom(cell, key) {
  const row = cell.parentElement
  const inRow = [...row.querySelectorAll('.cell')]
  const [down, right] = STEPS[key] ?? [0, 0]
  const beside = row.parentElement.rows[row.sectionRowIndex + down]?.cells[cell.cellIndex + right]
  const next = { Home: inRow[0], End: inRow.at(-1) }[key] ?? beside
  if (next === cell || !next?.classList.contains('cell')) return false
  setTabStop(next)
  next.focus()
  return true
}

document.addEventListener('click', (event) => {
  const cell = event.target.closest?.('table[data-grid] td.cell')
  const link = event.target.closest?.('table[data-grid] thead a, #day a[href*="#project"]')
  const button = event.target.closest?.('.copy')
  if (cell != null) {
    setTabStop(cell)
    void showDay(cell.dataset.day)
  } else if (link != null && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault()
    void showDay(new URL(link.href).searchParams.get('day'))
  } else if (button != null) void copy(button)
})

/** Asks for the page with that day's detail; the address keeps it, so that it can be shared and is refreshed. */
async function showDay(day) {
  const url = addressOf()
  if (day === null) url.searchParams.delete('day')
  else url.searchParams.set('day', day)
  history.replaceState(null, '', url)
  find('updated').dataset.url = url
  await refresh()
  if (day !== null) find('day')?.scrollIntoView({ block: 'nearest' })
  find('announce').textContent = day === null ? '' : `The details of ${day} are shown below the calendar.`
}

/* Commands, SQL and projects */

function offerCopy(code) {
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'button tiny copy'
  button.textContent = 'Copy'
  button.ariaLabel = `Copy the ${code.parentElement.getAttribute('aria-label') ?? `command ${code.textContent}`}`
  code.closest('.command, .sql').append(button)
}

/** Browsers offer the clipboard to localhost and over HTTPS only; elsewhere the text is selected, to be copied by hand. */
async function copy(button) {
  const code = button.closest('.command, .sql').querySelector('code')
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

/** What is typed into the page on screen decides, also for a fresh page. */
function filterProjects(root) {
  const section = root.querySelector('#search')?.closest('section')
  const wanted = find('search')?.value.trim().toLowerCase() ?? ''
  if (section == null) return
  let shown = 0
  for (const item of section.querySelectorAll('.projects li')) {
    const link = item.querySelector('a')
    item.hidden = !`${link.textContent} ${link.getAttribute('href')}`.toLowerCase().includes(wanted)
    if (!item.hidden) shown++
  }
  const fold = section.querySelector('#well')
  if (fold !== null && wanted !== '') fold.open = true
  section.querySelector('.none').hidden = shown > 0 || section.querySelector('.empty') !== null
}
document.addEventListener('input', (event) => {
  if (event.target.id === 'search') filterProjects(main)
})

enhance(main)
if (find('updated') !== null) {
  plan()
  // A page that nobody sees is not refreshed; it is at once when somebody looks again.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) clearTimeout(timer)
    else void refresh()
  })
}
