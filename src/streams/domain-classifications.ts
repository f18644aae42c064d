import { COLORS } from '../core/vocabulary.ts'
import { type ClassificationItem, classificationItem } from '../source/items.ts'
import { defineListStream } from './stream.ts'

export const domainClassifications = defineListStream<ClassificationItem>({
  name: 'domain_classifications',
  table: 'domain_classifications',
  columns: [
    { name: 'name', type: 'text' },
    { name: 'color', type: 'text' },
  ],
  key: ['name'],
  item: classificationItem,
  read: (client, caller, page, context) => client.domainClassifications(caller, page, context),
  flatten: (item) => [item.name, item.color ?? null],
  vocabulary: [{ kind: 'colour', known: new Set(COLORS), valueOf: (item: ClassificationItem) => item.color }],
})
