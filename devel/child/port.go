package child

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"machinist.dev/machinist/internal/platform/runtimedir"
)

// firstPort and lastPort are below the range that systems use for port 0 and for outgoing connections (32768 and up on
// Linux, 49152 elsewhere). So no other program gets the port of a server that a test has stopped for a while, and a
// client that keeps dialing this port cannot connect to itself.
const firstPort, lastPort = 20000, 29999

// FreePort returns a free port on loopback. It reserves the port until this process ends, so that no other process gets
// it from FreePort. Any other program may still take it before it is used.
func FreePort() (int, error) {
	var errs []error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		reserved, err := reserve(port)
		if err != nil {
			return 0, err
		}
		if !reserved {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
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

// reservations contains the locks of this process. They end with it.
var reservations struct {
	sync.Mutex
	files []*os.File
}

// reserve locks a port, and reports whether the port was not locked before.
func reserve(port int) (bool, error) {
	dir, err := runtimedir.Folder()
	if err != nil {
		return false, fmt.Errorf("reserve port %d: %w", port, err)
	}
	dir = filepath.Join(dir, "ports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("reserve port %d: %w", port, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, fmt.Errorf("reserve port %d: %w", port, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return false, fmt.Errorf("reserve port %d: %w", port, err)
	}
	reservations.Lock()
	defer reservations.Unlock()
	reservations.files = append(reservations.files, file)
	return true, nil
}
