// Package mcp answers the agent: the tools, their schemas, the resources, and
// the stdio server.
//
// It owns the words an agent reads (names, descriptions, refusals, summaries),
// the limits of an answer, and the framing of stdin and stdout. One table of
// toolsets says which tools exist; every transport gets a server of its own
// made from that table.
//
// It must never touch a run file or the index itself (it asks a Traces), never
// judge a payment or decide a review (it asks a Guard), never dial (it asks a Market),
// never read the environment, never decide what a receipt says, and never write to anything
// but the writer it was given. No type of the MCP library leaves this package.
package mcp
