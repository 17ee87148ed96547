package controlplane

import (
	"net"
	"strconv"

	"machinist.dev/machinist/devel/child"
)

// FreeAddress returns a free address on loopback for an additional server. FreeAddress never returns the address again
// in this process, so the server can be restarted.
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
