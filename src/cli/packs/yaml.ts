import { stringify } from 'yaml'

/** A file of a pack, with a line that says where it comes from. Python reads YAML 1.1, in which dates need quotes, and yes and no. */
export function yamlFile(content: unknown): string {
  const text = stringify(content, { lineWidth: 120, aliasDuplicateObjects: false, version: '1.1' })
  return `# Made from src/warehouse/schema by "npm run generate". Changes go there.\n${text}`
}
