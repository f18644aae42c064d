/* The parts of the protocol's library that are used. The build makes a file of its own of it, which only `mcp` and `/mcp` load. */

export { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
export { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio'
