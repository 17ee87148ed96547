// Package agent contains an example of an agent for updates in place (docs/updates.md): the shell script update-agent
// and its systemd unit.
package agent

import _ "embed" // for the files

// Script is the agent. The agent belongs at /opt/machinist/update-agent.
//
//go:embed update-agent
var Script []byte

// UnitName is the file name of Unit.
const UnitName = "update-agent.service"

// Unit is the systemd unit that runs the agent.
//
//go:embed update-agent.service
var Unit []byte
