// Package agent has an example of an agent for updates in place (docs/updates.md): update-agent, a shell script, and
// the unit that runs it.
package agent

import _ "embed" // for the files

// Script is the agent, for /opt/machinist/update-agent.
//
//go:embed update-agent
var Script []byte

// UnitName is the name of Unit, by which systemd runs the agent.
const UnitName = "update-agent.service"

// Unit is the agent's unit.
//
//go:embed update-agent.service
var Unit []byte
