import vm from 'node:vm'
import { TestEnvironment } from 'jest-environment-node'

/**
 * The context of usual environments looks each global up in two objects, which takes longer than the code around it. This one has
 * an ordinary global object.
 */
export default class extends TestEnvironment {
  constructor(...args) {
    const { createContext } = vm
    vm.createContext = () => createContext(vm.constants.DONT_CONTEXTIFY)
    try {
      super(...args)
    } finally {
      vm.createContext = createContext
    }
  }
}
