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

// firstPort and lastPort are below the ports that systems assign automatically (32768 and up on Linux, 49152
// elsewhere). No other program gets the port while a test has stopped its server. The system also does not choose such
// a port as the local port of a client, so a client that dials a free port cannot connect to itself.
const firstPort, lastPort = 20000, 29999

// FreePort returns a free port on loopback. FreePort does not return the port again, in any process, until this process
// ends. A program that does not call FreePort may take the port first.
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

var reservations struct {
	sync.Mutex
	files []*os.File
}

// reserve locks a port. It returns false if the port was already locked.
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
