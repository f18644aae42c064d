import * as ts from 'typescript/unstable/ast'
import * as is from 'typescript/unstable/ast/is'
import { sqlMutants } from './sql-mutants.mjs'

const { SyntaxKind } = ts

const OPERATORS = new Map([
  [SyntaxKind.AmpersandAmpersandToken, '||'],
  [SyntaxKind.BarBarToken, '&&'],
  [SyntaxKind.EqualsEqualsEqualsToken, '!=='],
  [SyntaxKind.ExclamationEqualsEqualsToken, '==='],
  [SyntaxKind.LessThanToken, '<='],
  [SyntaxKind.LessThanEqualsToken, '<'],
  [SyntaxKind.GreaterThanToken, '>='],
  [SyntaxKind.GreaterThanEqualsToken, '>'],
  [SyntaxKind.MinusToken, '+'],
  [SyntaxKind.AsteriskToken, '/'],
])

/** The operators that Kysely takes as texts. */
const KYSELY_OPERATORS = {
  '=': '!=',
  '!=': '=',
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  is: 'is not',
  'is not': 'is',
}

const CONDITIONS = new Set(['where', 'having', 'filter'])

/**
 * The mutants of a source file: what is between `start` and `end` becomes `replacement`. None is in a type, a comment or a message.
 * @returns {{ start: number, end: number, replacement: string }[]}
 */
export function mutantsOf(source) {
  const { text } = source
  const mutants = []
  const begin = (node) => node.getStart(source)
  const textOf = (node) => text.slice(begin(node), node.end)
  const add = (start, end, replacement) => mutants.push({ start, end, replacement })
  const replace = (node, replacement) => add(begin(node), node.end, replacement)
  const negate = (node) => {
    if (!hasOtherMutant(node)) replace(node, `!(${textOf(node)})`)
  }

  visit(source)
  return mutants.sort((a, b) => a.start - b.start || a.end - b.end)

  function visit(node) {
    if (isLeftOut(node)) return
    mutate(node)
    node.forEachChild(visit)
  }

  function isLeftOut(node) {
    if (is.isTypeNode(node) || is.isTypeAliasDeclaration(node) || is.isInterfaceDeclaration(node)) return true
    if (is.isImportDeclaration(node) || is.isExportDeclaration(node)) return true
    if (is.isNewExpression(node)) return /(Error|Problem)$/.test(textOf(node.expression))
    if (is.isCallExpression(node)) return /\blog\??\.(trace|debug|info|warn|error)$/.test(textOf(node.expression))
    return is.isPropertyAssignment(node) && /^(message|hint|description)$/.test(textOf(node.name))
  }

  function mutate(node) {
    if (is.isBinaryExpression(node)) {
      const token = node.operatorToken
      if (OPERATORS.has(token.kind)) replace(token, OPERATORS.get(token.kind))
    } else if (is.isIfStatement(node)) {
      negate(node.expression)
      if (node.elseStatement === undefined) replace(node, ';')
    } else if (is.isWhileStatement(node)) negate(node.expression)
    else if (is.isConditionalExpression(node)) negate(node.condition)
    else if (is.isPrefixUnaryExpression(node)) {
      if (node.operator === SyntaxKind.ExclamationToken) replace(node, textOf(node.operand))
    } else if (isRemovable(node)) replace(node, ';')
    else if (is.isNumericLiteral(node)) replace(node, String(Number(node.text.replaceAll('_', '')) + 1))
    else if (node.kind === SyntaxKind.TrueKeyword) replace(node, 'false')
    else if (node.kind === SyntaxKind.FalseKeyword) replace(node, 'true')
    else if (is.isObjectLiteralExpression(node)) removeEach(node.properties)
    else if (is.isArrayLiteralExpression(node)) removeEach(node.elements, isListed)
    else if (is.isCallExpression(node)) mutateCall(node)
    else if (isText(node)) for (const mutant of sqlMutants(textOf(node), isTagged(node))) shift(mutant, begin(node))
  }

  /** Whether another mutant negates the condition, too. */
  function hasOtherMutant(condition) {
    if (is.isPrefixUnaryExpression(condition)) return condition.operator === SyntaxKind.ExclamationToken
    return is.isBinaryExpression(condition) && /^[!=]==$/.test(textOf(condition.operatorToken))
  }

  function isRemovable(node) {
    if (is.isExpressionStatement(node)) return !isLeftOut(node.expression) && !isOnlyOneOfIf(node)
    return (
      (is.isThrowStatement(node) || is.isContinueStatement(node) || is.isBreakStatement(node)) && !isOnlyOneOfIf(node)
    )
  }

  /** The `if` is removed with it. */
  function isOnlyOneOfIf({ parent }) {
    return is.isIfStatement(parent) && parent.elseStatement === undefined
  }

  function mutateCall(node) {
    const { expression, arguments: args } = node
    // Without a list of its parameters a statement fails.
    removeEach(args, (argument) => argument === args.at(-1) && !is.isArrayLiteralExpression(argument))
    if (is.isPropertyAccessExpression(expression) && CONDITIONS.has(textOf(expression.name)))
      add(expression.expression.end, node.end, '')
    const operator = args[1]
    if (args.length === 3 && operator !== undefined && is.isStringLiteral(operator)) {
      const other = KYSELY_OPERATORS[operator.text]
      if (other !== undefined) replace(operator, `'${other}'`)
    }
  }

  /** An element that may be there or not. The others are mostly parameters of statements, which fail without each. */
  function isListed(element) {
    return is.isSpreadElement(element) || is.isStringLiteral(element)
  }

  /** Removes nodes between commas, each with the comma before it, or after the first one. */
  function removeEach(nodes, isChosen = () => true) {
    nodes.forEach((node, index) => {
      if (!isChosen(node)) return
      const [previous, next] = [nodes[index - 1], nodes[index + 1]]
      if (previous !== undefined) add(previous.end, node.end, '')
      else add(begin(node), next === undefined ? node.end : begin(next), '')
    })
  }

  function isText(node) {
    return is.isStringLiteral(node) || is.isNoSubstitutionTemplateLiteral(node) || is.isTemplateExpression(node)
  }

  function isTagged(node) {
    return is.isTaggedTemplateExpression(node.parent) && textOf(node.parent.tag).startsWith('sql')
  }

  function shift({ start, end, replacement }, by) {
    add(start + by, end + by, replacement)
  }
}
