import { monotonic } from '../core/monotonic.ts'
import { nextItem, type Task, type WorkItem } from '../sync/run/task.ts'

/** Hands out the work items of all tasks in turn, but none of a project whose requests are spent. */
export class TaskRotation {
  private readonly tasks: Task[]
  private turn = 0
  /** Projects whose requests are spent, until a time. */
  private readonly spentUntil = new Map<string, number>()

  constructor(tasks: readonly Task[]) {
    this.tasks = byStream(tasks)
  }

  next(): WorkItem | undefined {
    this.forgetPast()
    for (let step = 0; step < this.tasks.length; step++) {
      const index = (this.turn + step) % this.tasks.length
      const task = this.tasks[index]!
      if (this.spentUntil.has(task.project.id)) continue
      const item = nextItem(task)
      if (item === undefined) continue
      this.turn = index + 1
      return item
    }
    return undefined
  }

  /** The requests of a project are spent for so long. */
  pause(projectId: string, ms: number): void {
    this.spentUntil.set(projectId, monotonic() + ms)
  }

  /** True while a project waits for its requests: it may have items later. */
  get isWaiting(): boolean {
    this.forgetPast()
    return this.spentUntil.size > 0
  }

  private forgetPast(): void {
    const now = monotonic()
    for (const [project, until] of this.spentUntil) if (until <= now) this.spentUntil.delete(project)
  }
}

/** Stream after stream, each of all projects: workers that take windows in this order seldom share a project. */
function byStream(tasks: readonly Task[]): Task[] {
  const groups = new Map<string, Task[]>()
  for (const task of tasks) {
    const group = groups.get(task.stream.name)
    if (group === undefined) groups.set(task.stream.name, [task])
    else group.push(task)
  }
  return [...groups.values()].flat()
}
