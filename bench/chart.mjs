// A bar chart as SVG, without a library: five bars need none.
export function barChart(title, bars) {
  const most = Math.max(...bars.map(([, value]) => value))
  const row = 34
  const height = 60 + bars.length * row
  const lines = bars.map(([name, value], index) => {
    const width = Math.max(2, (value / most) * 420)
    const y = 48 + index * row
    const colour = name === 'visibility-sync' ? '#1f6feb' : '#8b949e'
    return `<text x="150" y="${y + 15}" text-anchor="end" fill="#57606a">${name}</text><rect x="160" y="${y}" width="${width.toFixed(1)}" height="22" rx="3" fill="${colour}"/><text x="${(168 + width).toFixed(1)}" y="${y + 15}" fill="#57606a">${value.toFixed(0)}</text>`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 ${height}" font-family="system-ui, sans-serif" font-size="13">
<title>${title}</title>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="20" y="28" font-size="15" fill="#24292f">${title}</text>
${lines.join('\n')}
</svg>
`
}
