import { execFile, execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { parseAllDocuments } from 'yaml'
import { z } from 'zod'
import { runCli, temporaryFolder } from './support/cli.ts'
import { type Setup, setUp } from './support/setup.ts'

/* What people deploy: manifests, the image's recipe, the package. */

const root = fileURLToPath(new URL('..', import.meta.url))
const read = (path: string) => readFileSync(join(root, path), 'utf8')
const { version } = JSON.parse(read('package.json')) as { version: string }
const documents = (path: string) =>
  parseAllDocuments(read(path)).map((document) => {
    expect(document.errors).toEqual([])
    return document.toJS() as any
  })

const container = z.object({
  image: z.literal(`visibility-sync:${version}`),
  args: z.array(z.string()).min(1),
  env: z.array(z.object({ name: z.string() })),
  resources: z.object({
    requests: z.object({ cpu: z.string(), memory: z.string() }),
    limits: z.object({ memory: z.string() }),
  }),
  securityContext: z.object({
    allowPrivilegeEscalation: z.literal(false),
    readOnlyRootFilesystem: z.literal(true),
    capabilities: z.object({ drop: z.tuple([z.literal('ALL')]) }),
  }),
})
const pod = z.object({
  automountServiceAccountToken: z.literal(false),
  terminationGracePeriodSeconds: z.number().min(30),
  securityContext: z.object({ runAsNonRoot: z.literal(true), runAsUser: z.number() }),
  containers: z.tuple([container]),
})

test('the Kubernetes manifests are sound: limits, probes, no rights, no overlap', () => {
  const [job] = documents('deploy/kubernetes/cronjob.yaml')
  expect([job.apiVersion, job.kind, job.spec.concurrencyPolicy]).toEqual(['batch/v1', 'CronJob', 'Forbid'])
  pod.parse(job.spec.jobTemplate.spec.template.spec)
  const [deployment, service] = documents('deploy/kubernetes/serve.yaml')
  const spec = pod.parse(deployment.spec.template.spec)
  expect(spec.containers[0].args[0]).toBe('serve')
  const [serve] = deployment.spec.template.spec.containers
  expect([serve.livenessProbe.httpGet.path, serve.readinessProbe.httpGet.path]).toEqual(['/healthz', '/readyz'])
  expect(deployment.spec.selector.matchLabels).toEqual(deployment.spec.template.metadata.labels)
  expect(service.spec.selector).toEqual(deployment.spec.template.metadata.labels)
  const [workers, enqueuing] = documents('deploy/kubernetes/workers.yaml')
  expect(pod.parse(workers.spec.template.spec).containers[0].args).toEqual(['worker'])
  expect(workers.spec.selector.matchLabels).toEqual(workers.spec.template.metadata.labels)
  const queued = pod.parse(enqueuing.spec.jobTemplate.spec.template.spec)
  expect([enqueuing.kind, ...queued.containers[0].args]).toEqual(['CronJob', 'sync', '--queue'])
})

test('the systemd units name what exists, and give no rights', () => {
  const unit = (path: string) => {
    const sections: Record<string, Record<string, string[]>> = {}
    let current = ''
    for (const line of read(path).split('\n')) {
      if (/^\s*(#.*)?$/.test(line)) continue
      const header = /^\[(\w+)\]$/.exec(line)?.[1]
      if (header !== undefined) sections[(current = header)] = {}
      else {
        const [, key, value] = /^(\w+)=(.*)$/.exec(line)!
        ;(sections[current]![key!] ??= []).push(value!)
      }
    }
    return sections
  }
  const service = unit('deploy/systemd/visibility-sync.service')
  expect(service.Service).toMatchObject({ Type: ['oneshot'], DynamicUser: ['yes'], ProtectSystem: ['strict'] })
  expect(service.Service!.ExecStart).toEqual(['/usr/local/bin/visibility-sync sync'])
  expect(service.Service!.Environment).toContain('DATABASE_URL_FILE=%d/database_url')
  expect(unit('deploy/systemd/visibility-sync.timer').Timer!.OnCalendar).toEqual(['*-*-* *:15:00'])
})

test('the workflows and forms are sound YAML with what GitHub needs', () => {
  const workflows = [
    ...readdirSync(join(root, '.github/workflows')).map((name) => `.github/workflows/${name}`),
    'deploy/github/visibility-sync.yml',
  ]
  expect(workflows.length).toBeGreaterThanOrEqual(3)
  for (const path of workflows) {
    const [workflow] = documents(path)
    expect(workflow).toMatchObject({ name: expect.any(String), on: expect.anything(), permissions: expect.anything() })
    for (const job of Object.values<any>(workflow.jobs)) {
      expect(job['runs-on']).toBe('ubuntu-latest')
      for (const step of job.steps) expect(step.uses ?? step.run).toEqual(expect.any(String))
    }
  }
  for (const name of ['bug', 'idea']) {
    const [form] = documents(`.github/ISSUE_TEMPLATE/${name}.yml`)
    expect(form).toMatchObject({ name: expect.any(String), description: expect.any(String), body: expect.any(Array) })
  }
  expect(documents('.github/dependabot.yml')[0].version).toBe(2)
  expect(read('deploy/github/visibility-sync.yml')).toContain(`visibility-sync@${version}`)
})

test('Compose starts the three side by side, each when the one before is well, with secrets from files', () => {
  const [compose] = documents('compose.yaml')
  expect(Object.keys(compose.services)).toEqual(['postgres', 'visibility-sync', 'metabase'])
  const { 'visibility-sync': sync, postgres } = compose.services
  expect(sync).toMatchObject({
    read_only: true,
    init: true,
    cap_drop: ['ALL'],
    command: ['serve', '--host', '0.0.0.0'],
  })
  expect(sync.depends_on.postgres.condition).toBe('service_healthy')
  expect(sync.environment).toMatchObject({
    VISIBILITY_API_KEY_FILE: '/run/secrets/api_key',
    DATABASE_URL_FILE: '/run/secrets/database_url',
  })
  for (const secret of [...sync.secrets, ...postgres.secrets])
    expect(compose.secrets[secret].file).toMatch(/^\.\/secrets\//)
  expect(sync.ports).toEqual(['127.0.0.1:8080:8080'])
})

test('the image is made of what exists, runs without rights, and knows its version', () => {
  const lines = read('Dockerfile')
  for (const [, sources] of lines.matchAll(/^COPY (?!--from)(.+) \S+$/gm))
    for (const source of sources!.split(' ')) expect(existsSync(join(root, source))).toBe(true)
  // What .dockerignore leaves out cannot be copied.
  const allowed = read('.dockerignore')
    .split('\n')
    .flatMap((line) => (line.startsWith('!') ? [line.slice(1)] : []))
  for (const [, sources] of lines.matchAll(/^COPY (?!--from)(.+) \S+$/gm))
    for (const source of sources!.split(' ')) expect(allowed).toContain(source)
  expect(lines).toContain('USER 1000:1000')
  expect(lines).toContain('HEALTHCHECK')
  expect(lines).toContain(`ARG VERSION=${version}`)
  expect(lines).toContain('ARG NODE=node:24-slim')
  expect(read('CHANGELOG.md')).toContain(`## ${version}`)
})

test('where no engine can run, the acceptance script says so and fails', () => {
  const folder = temporaryFolder()
  try {
    for (const name of ['bash', 'dirname', 'env']) symlinkSync(`/usr/bin/${name}`, join(folder.path, name))
    execFileSync('/bin/bash', [join(root, 'scripts/image-acceptance.sh')], {
      env: { PATH: folder.path },
      stdio: 'pipe',
    })
    throw new Error('it passed')
  } catch (error) {
    expect(String((error as { stderr?: Buffer }).stderr)).toContain('nothing was checked')
  } finally {
    folder.remove()
  }
})

describe('the packed package in an empty folder', () => {
  let setup: Setup
  const folder = temporaryFolder()
  const home = join(folder.path, 'empty')

  beforeAll(async () => {
    setup = await setUp({ world: { projects: 1, prompts: 5, models: 2, brands: 3 } })
    execFileSync('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder.path], {
      cwd: root,
      stdio: 'pipe',
    })
    const [tarball] = readdirSync(folder.path).filter((name) => name.endsWith('.tgz'))
    const modules = join(home, 'node_modules')
    mkdirSync(join(modules, '.bin'), { recursive: true })
    execFileSync('tar', ['xzf', join(folder.path, tarball!), '-C', modules])
    execFileSync('mv', [join(modules, 'package'), join(modules, 'visibility-sync')])
    symlinkSync('../visibility-sync/bin/visibility-sync.js', join(modules, '.bin/visibility-sync'))
    // What npm would install beside it.
    for (const name of readdirSync(join(root, 'node_modules'))) {
      if (!name.startsWith('.')) symlinkSync(join(root, 'node_modules', name), join(modules, name))
    }
    writeFileSync(join(home, 'package.json'), '{"type":"module"}')
  }, 60_000)
  afterAll(async () => {
    folder.remove()
    await setup.close()
  })

  // Not the synchronous kind: the service that the commands ask runs in this very process.
  const shell = async (script: string) => {
    const options = {
      cwd: home,
      env: { PATH: process.env.PATH ?? '', HOME: folder.path, LOG_LEVEL: 'error' },
      timeout: 60_000,
    }
    return (await promisify(execFile)('bash', ['-euc', script], options)).stdout
  }

  test('holds what is needed and nothing else', () => {
    const held = readdirSync(join(home, 'node_modules/visibility-sync'))
    expect(held.sort()).toEqual(
      [
        'CHANGELOG.md',
        'LICENSE',
        'README.md',
        'bin',
        'config',
        'dist',
        'docs',
        'metabase',
        'package.json',
        'sql',
      ].sort(),
    )
  })

  test('init, check and the first sync work as the README has them, word for word', async () => {
    expect(await shell('npx visibility-sync init')).toContain('VISIBILITY_API_URL')
    const block = /## The first real sync\n\n```sh\n([\s\S]*?)```/.exec(read('README.md'))![1]!
    const filled = block
      .replace('https://…/v1', setup.env.VISIBILITY_API_URL!)
      .replace('VISIBILITY_API_KEY=…', `VISIBILITY_API_KEY=${setup.env.VISIBILITY_API_KEY}`)
      .replace('or_…,or_…', setup.env.VISIBILITY_PROJECTS!)
      .replace('postgres://…', setup.database.url)
    const output = await shell(filled)
    expect(output).toContain('All well.')
    expect(output).toContain('complete')
    await expect(shell('npx visibility-sync init')).rejects.toThrow('exists')
  }, 90_000)

  test('is a library too', async () => {
    writeFileSync(
      join(home, 'use.js'),
      `import { createClient, sync } from 'visibility-sync'
       const report = await sync({ streams: ['prompts'], env: { ...process.env } })
       console.log(report.outcome, typeof createClient)`,
    )
    const settings = Object.entries(setup.env).map(([name, value]) => `export ${name}='${value}'`)
    expect((await shell([...settings, 'node use.js'].join('\n'))).trim()).toBe('complete function')
  }, 90_000)
})

test('the version is that of the package', async () => {
  expect((await runCli(['--version'])).stdout.trim()).toBe(version)
})
