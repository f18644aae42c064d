import { stringify } from 'yaml'

/** A file of a pack, with a line that says where it comes from. */
export function yamlFile(content: unknown): string {
  const text = stringify(content, { lineWidth: 120, aliasDuplicateObjects: false })
  return `# Made from src/warehouse/schema by "npm run generate". Changes go there.\n${text}`
}
