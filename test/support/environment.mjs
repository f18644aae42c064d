import vm from 'node:vm'
import { TestEnvironment } from 'jest-environment-node'

let shared

/**
 * One for all files of a worker, so that they can share modules (see runtime.cjs). Its global object is an ordinary one: the usual
 * kind looks each global up in two objects, which takes longer than the code around it.
 */
export default class extends TestEnvironment {
  constructor(...args) {
    if (shared) {
      // Handlers of the file before.
      delete shared.global[Symbol.for('EVENT_HANDLERS')]
      return shared
    }
    const { createContext } = vm
    vm.createContext = () => createContext(vm.constants.DONT_CONTEXTIFY)
    try {
      super(...args)
    } finally {
      vm.createContext = createContext
    }
    shared = this
  }

  async teardown() {}
}
