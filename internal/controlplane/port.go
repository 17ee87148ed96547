package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are chosen below the range from which systems serve port 0 and
// outgoing connections (32768 and up on Linux, 49152 elsewhere). So nobody is
// given the port of a server that a test has stopped for a while, and a client
// that keeps dialling it cannot end up connected to itself.
const firstPort, lastPort = 20000, 29999

// FreeAddress returns an address on loopback for a server beside the control
// plane, where nobody listens now.
func FreeAddress() (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	return loopback(port), nil
}

// freePort returns a port on loopback where nobody listens now. Somebody else
// may still take it before it is used.
func freePort() (int, error) {
	var errs []error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("release port %d: %w", port, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d: %w", firstPort, lastPort, errors.Join(errs...))
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
