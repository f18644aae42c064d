// Draws the charts of the insights page from the data that stands beside each. Without this script the tables are there.
const COLOURS = {
  light: ['#0a58ca', '#b35900', '#116329', '#a40e26', '#6639ba', '#0a7ea4', '#7a4b00', '#57606a'],
  dark: ['#6cb2ff', '#ffa657', '#56d364', '#ff8b83', '#d2a8ff', '#39c5e0', '#e3b341', '#9aa4af'],
}
const dark = window.matchMedia('(prefers-color-scheme: dark)')
const FORMATS = {
  share: (value) => `${(value * 100).toFixed(1)} %`,
  position: (value) => value.toFixed(2),
  score: (value) => value.toFixed(1),
}
const HEIGHT = 260

function draw(place) {
  const { x, series } = JSON.parse(place.querySelector('script').textContent)
  const style = getComputedStyle(document.body)
  const [text, line] = [style.getPropertyValue('--quiet').trim(), style.getPropertyValue('--line').trim()]
  const colours = COLOURS[dark.matches ? 'dark' : 'light']
  const format = FORMATS[place.dataset.unit]
  const shown = (_, value) => (value == null ? '–' : format(value))
  const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } }
  const options = {
    width: place.clientWidth,
    height: HEIGHT,
    tzDate: (seconds) => window.uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    // A lower position is better, so the best is on top.
    scales: { x: { time: true }, y: place.dataset.unit === 'position' ? { dir: -1 } : {} },
    axes: [axis, { ...axis, size: 64, values: (_, values) => values.map(format) }],
    series: [
      { value: '{YYYY}-{MM}-{DD}' },
      ...series.map(({ name }, index) => ({
        label: name,
        stroke: colours[index % colours.length],
        width: 2,
        dash: index >= 4 ? [6, 4] : undefined,
        points: { show: x.length < 20 },
        value: shown,
        spanGaps: true,
      })),
    ],
  }
  place.querySelector('.uplot')?.remove()
  const times = x.map((day) => Date.parse(`${day}T00:00:00Z`) / 1000)
  const plot = new window.uPlot(options, [times, ...series.map(({ values }) => values)], place)
  place.dataset.drawn = 'true'
  return plot
}

const places = [...document.querySelectorAll('.plot')]
let plots = places.map(draw)
dark.addEventListener('change', () => {
  plots = places.map(draw)
})
window.addEventListener('resize', () => {
  for (const [index, plot] of plots.entries()) plot.setSize({ width: places[index].clientWidth, height: HEIGHT })
})
