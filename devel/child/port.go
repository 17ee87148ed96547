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
)

// firstPort and lastPort are below the range from which systems serve port 0 and
// outgoing connections (32768 and up on Linux, 49152 elsewhere). No other program
// is therefore given the port of a server that a test has stopped for a while, and
// a client that keeps dialling it cannot connect to itself.
const firstPort, lastPort = 20000, 29999

// FreePort returns a port on loopback where nobody listens now, and reserves it
// among the processes that choose theirs here for as long as this one lives.
// Any other program may still take it before it is used.
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

// reservations are the locks that this process has. They end with it.
var reservations struct {
	sync.Mutex
	files []*os.File
}

// reserve locks a port, and reports whether nobody else had.
func reserve(port int) (bool, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("machinist-ports-%d", os.Getuid()))
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
