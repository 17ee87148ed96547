package controlplane

import (
	"net"
	"strconv"

	"machinist.dev/machinist/devel/child"
)

// FreeAddress returns an address on loopback for a server beside the control
// plane, where nobody listens now. No other process that asks for one is given
// it while this one lives, so that a server can be stopped and started again.
func FreeAddress() (string, error) {
	port, err := child.FreePort()
	if err != nil {
		return "", err
	}
	return loopback(port), nil
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
