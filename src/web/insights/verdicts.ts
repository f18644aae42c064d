import type { SummaryRow } from './read-insights.ts'

/* Changes in words. Only what is clear of chance has a colour. */

export interface Verdict {
  mark: '▲' | '▼' | '='
  words: string
  tone: 'better' | 'worse' | 'plain'
}

const ENOUGH = 30

/** Of a share that has an interval. */
export function shareVerdict(verdict: string): Verdict {
  switch (verdict) {
    case 'up':
      return { mark: '▲', words: 'Clear rise', tone: 'better' }
    case 'down':
      return { mark: '▼', words: 'Clear fall', tone: 'worse' }
    case 'too_few':
      return { mark: '=', words: 'Too few answers to tell', tone: 'plain' }
    case 'new':
      return { mark: '=', words: 'No period before to compare with', tone: 'plain' }
    default:
      return { mark: '=', words: 'No clear change', tone: 'plain' }
  }
}

/** Of a headline. Without an interval nobody can say whether a change is more than chance, so it is not called clear. */
export function summaryVerdict(row: SummaryRow): Verdict {
  if (row.verdict !== null) return shareVerdict(row.verdict)
  if (row.change === null || row.previous_sample === null) return shareVerdict('new')
  const samples = [row.sample, row.previous_sample, row.answers, row.previous_answers]
  if (samples.some((sample) => (sample ?? 0) < ENOUGH)) return shareVerdict('too_few')
  if (row.change === 0) return { mark: '=', words: 'As before', tone: 'plain' }
  // The mark goes the way of the chart: a lower position is higher up.
  const higher = row.metric === 'position' ? row.change < 0 : row.change > 0
  const words = row.metric === 'position' ? (higher ? 'Named earlier' : 'Named later') : higher ? 'Higher' : 'Lower'
  return { mark: higher ? '▲' : '▼', words: `${words}; chance is not ruled out`, tone: 'plain' }
}

export function leadVerdict(verdict: string): Verdict {
  switch (verdict) {
    case 'ahead':
      return { mark: '▲', words: 'Clearly ahead', tone: 'better' }
    case 'behind':
      return { mark: '▼', words: 'Clearly behind', tone: 'worse' }
    case 'too_few':
      return { mark: '=', words: 'Too few answers to tell', tone: 'plain' }
    default:
      return { mark: '=', words: 'No clear lead', tone: 'plain' }
  }
}
