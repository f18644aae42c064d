import vm from 'node:vm'
import { TestEnvironment } from 'jest-environment-node'

/** With an ordinary global object: the usual kind looks each global up in two objects, which takes longer than the code around it. */
function createEnvironment(...args) {
  const { createContext } = vm
  vm.createContext = () => createContext(vm.constants.DONT_CONTEXTIFY)
  try {
    return Object.assign(new TestEnvironment(...args), { teardown: async () => {} })
  } finally {
    vm.createContext = createContext
  }
}

let shared

/** One for all files of a worker, so that they can share modules (see runtime.cjs). */
export default function Environment(...args) {
  shared ??= createEnvironment(...args)
  // The handlers of the file before would be called, too.
  delete shared.global[Symbol.for('EVENT_HANDLERS')]
  return shared
}
