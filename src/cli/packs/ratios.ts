import type { BiView } from '../../core/vocabulary.ts'

/* The metrics that people add up, as what is summed over what is summed: a ratio is never averaged. */

export interface Ratio {
  name: string
  label: string
  about: string
  view: BiView
  numerator: string
  denominator: string
  /** Shown as a percentage. */
  share: boolean
}

const ONE_BRAND = 'Take one brand, or split by brand: over several brands the number is a mean of them.'

export const RATIOS: readonly Ratio[] = [
  {
    name: 'visibility',
    label: 'Visibility',
    about: `Share of answers that name the brand. ${ONE_BRAND}`,
    view: 'visibility_daily',
    numerator: 'visibility_count',
    denominator: 'answers',
    share: true,
  },
  {
    name: 'share_of_voice',
    label: 'Share of voice',
    about: `The brand's mentions over those of all tracked brands. ${ONE_BRAND}`,
    view: 'share_of_voice_daily',
    numerator: 'mention_count',
    denominator: 'all_mentions',
    share: true,
  },
  {
    name: 'position',
    label: 'Mean position',
    about: 'Mean position in the answers that have one; lower is better.',
    view: 'visibility_daily',
    numerator: 'position_points',
    denominator: 'position_count',
    share: false,
  },
  {
    name: 'sentiment',
    label: 'Mean sentiment',
    about: "Mean sentiment of the mentions that have one, on the service's own scale.",
    view: 'visibility_daily',
    numerator: 'sentiment_points',
    denominator: 'sentiment_count',
    share: false,
  },
]
