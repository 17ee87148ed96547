// Package agent has an example of an agent for updates in place (docs/updates.md): update-agent, a shell script, and
// the unit that runs it.
package agent
